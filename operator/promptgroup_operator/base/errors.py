"""The errors that end a pass, or a request to an engine."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

PASSING = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
)
"""Statuses from 400 to 499 of a request that a retry may mend; none of the others does."""
REFUSED_WITH_500 = ("failed calling webhook", "failed to create typed", "failed to convert", "failed to apply")
"""Words of the API server for what it refuses with 500, as its own faults: an admission webhook that does not answer,
and an object that does not fit the schema of its kind (server-side apply)."""


class ClusterError(Exception):
    """The API server did not answer, or refused: the pass is retried."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        unknown_kind: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status; None if there was no response."""
        self.unknown_kind = unknown_kind
        """True if the API server does not serve the requested kind."""
        self.retry_after = retry_after
        """Seconds of the response's `Retry-After`; None without one."""

    @property
    def is_refusal(self) -> bool:
        """True if a retry cannot succeed, at least not soon."""
        if self.status is None:
            return False
        if self.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            return any(words in str(self) for words in REFUSED_WITH_500)
        return 400 <= self.status < 500 and self.status not in PASSING

    @property
    def may_be_outage(self) -> bool:
        """True if the API server as a whole may be unavailable or overloaded, or may reject this process's identity."""
        return not self.is_refusal and self.status != HTTPStatus.CONFLICT


class ImpossibleNameError(ClusterError):
    """No object can have such a name, so that none is there (404): nothing was sent."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind}: no object or namespace can be named {name[:80]!r}", status=404)


class UnreadError(ClusterError):
    """One object cannot be read, and there is no cached copy; the API server responds to other requests."""


class NotLeadingError(ClusterError):
    """Another process is the leader, or may be: nothing was sent."""

    def __init__(self) -> None:
        super().__init__("this process is not the leader")


class StoredSpecError(Exception):
    """A group was stored under an older schema, and its spec lacks what this version needs."""

    def __init__(self, message: str, generation: int, status: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.generation = generation
        """Generation of the group."""
        self.status = status
        """Status of the group."""


class UnreadGroupError(StoredSpecError):
    """An object cannot be read without which nothing can be decided about a group."""


class EngineError(Exception):
    """An engine did not answer, refused, or gave an answer that cannot be used."""

    def __init__(self, message: str, *, status: int | None = None, untrusted: bool = False) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status; None if there was no answer."""
        self.untrusted = untrusted
        """True if its certificate could not be verified: nothing was sent."""


class AdapterError(EngineError):
    """An engine does not have an adapter, and refused to load it."""
