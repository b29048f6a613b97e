"""Decides the sleep state of a group that may have no replica, for routers and for later passes."""

from datetime import datetime
from math import ceil

from promptgroup_contract.table import Sleep
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from promptgroup_operator.base import durations
from promptgroup_operator.base.timestamps import parse_time, rfc3339

WAKE_TIMEOUT = "5m"
"""Default of `routing.wakeTimeout` for groups that a request wakes."""
AWAKE = Sleep()
"""The sleep of a group without a recorded state."""


def may_sleep(spec: PromptGroupSpec) -> bool:
    """Return True for a group that is scaled to zero while there are no requests, and started by the next request."""
    return spec.sizing is not None and spec.sizing.min_replicas == 0


def own(
    spec: PromptGroupSpec, standing: Sleep, *, value: int, ready: bool, failure: str, now: datetime
) -> Sleep | None:
    """Return the sleep of a group with an engine of its own; None for one that is meant to have a replica always.

    Args:
        spec: of the group.
        standing: its sleep as the PromptRoute stands.
        value: replicas that are wanted.
        ready: whether routers may send to one.
        failure: why no replica can be made; empty where nothing is known.
        now: the time of the pass.
    """
    timeout = _timeout(spec, WAKE_TIMEOUT if may_sleep(spec) else None)
    if value and not timeout:
        return None
    return remembered(standing, timeout=timeout, value=value, ready=ready, failure=failure, now=now)


def of_guest(spec: PromptGroupSpec, host: Sleep | None) -> Sleep | None:
    """Return the sleep of a group that lives on the replicas of another one: it sleeps when that one does.

    Args:
        spec: of the guest.
        host: the sleep of the host, as its PromptRoute stands; None where the host always has a replica.
    """
    if host is None:
        return None
    return Sleep(_timeout(spec, None) or host.wake_timeout, host.since, host.woken, host.start, host.problem)


def _timeout(spec: PromptGroupSpec, default: str | None) -> int:
    """Return the seconds for which requests are held; 0 where they are not."""
    text = spec.routing.wake_timeout or default
    return ceil(durations.parse(text).total_seconds()) if text is not None else 0


def remembered(standing: Sleep, *, timeout: int, value: int, ready: bool, failure: str, now: datetime) -> Sleep:
    """Return the sleep that the PromptRoute tells routers of, and that the next pass remembers by it.

    Args:
        standing: as the PromptRoute stands.
        timeout: seconds for which requests are held; 0 for none.
        value: replicas that are wanted.
        ready: whether routers may send to one.
        failure: why no replica can be made; empty where nothing is known.
        now: the time of the pass.
    """
    if not value:
        since = standing.since if parse_time(standing.since) is not None else rfc3339(now)
        return Sleep(timeout, since=since, start=standing.start)
    woken = parse_time(standing.woken) or (now if standing.since else None)
    if woken is None or ready:
        took = int((now - woken).total_seconds()) + 1 if woken is not None else standing.start
        return Sleep(timeout, start=took)
    # the words of a failure may differ with every try: the first ones stand
    problem = (standing.problem or failure) if failure else ""
    return Sleep(timeout, woken=rfc3339(woken), start=standing.start, problem=problem)
