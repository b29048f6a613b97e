"""Decides the error for a request whose group is scaled to zero."""

from promptgroup_contract.table import Sleep
from promptgroup_router.base.errors import NO_REPLICA_SECONDS, ApiError

STARTING = "starting"
"""Code of the errors of a group that is starting a replica: a client that retries later can be served."""
ASLEEP = "no_replica"
"""Code of the errors of a group that requests do not wake."""


def refusal(sleep: Sleep, group: str) -> ApiError | None:
    """Return the error for a request that would wait in vain; None for one that is held.

    Args:
        sleep: the state of the group in the table.
        group: its label, for the message.
    """
    if sleep.problem:
        return _error(sleep, f"group {group!r} cannot start a replica: {sleep.problem}", STARTING)
    if not sleep.wake_timeout:
        return _error(sleep, f"group {group!r} has no replicas: it is scaled to zero", ASLEEP)
    return None


def full(sleep: Sleep, group: str) -> ApiError:
    """Return the error for a request while too many others wait for the same group."""
    return _error(sleep, f"group {group!r} is starting, and too many requests wait for it already", STARTING)


def starting(sleep: Sleep, group: str) -> ApiError:
    """Return the error for a request that wakes its group, and cannot be held."""
    return _error(sleep, f"group {group!r} had no replica, and starts one", STARTING)


def too_late(sleep: Sleep, group: str, waited: float) -> ApiError:
    """Return the error for a request that was held for as long as its group allows.

    Args:
        sleep: the current state of the group in the table.
        group: its label, for the message.
        waited: seconds for which it was held.
    """
    if sleep.since:
        why = "and nobody has asked for a replica yet: see whether the operator runs and can read this router"
    else:
        why = "and a replica was asked for"
    return _error(sleep, f"group {group!r} had no warm replica within {waited:.0f} s, {why}", STARTING)


def in_words(sleep: Sleep) -> str:
    """Return a description of how a request is held."""
    waits = f"it is held for {sleep.wake_timeout} s at most, until a replica is warm"
    usual = f"; the latest start took {sleep.start} s" if sleep.start else ""
    if sleep.since:
        return f"the group has no replica since {sleep.since}, and the request wakes it: {waits}{usual}"
    return f"the group has no replica, and one was asked for: {waits}{usual}"


def _error(sleep: Sleep, message: str, code: str) -> ApiError:
    seconds = sleep.start or NO_REPLICA_SECONDS
    return ApiError(503, f"{message}; retry later", param="model", code=code, retry_after=seconds)
