"""How a request can end without an engine's answer, and whose fault it was. Each edge maps these once."""

import enum

import orjson

RETRY_AFTER_SECONDS = 1
"""What a 503 tells clients to wait: a lost replica is out of the table, and often replaced, within a second or so."""


SHOWN = 100
"""Characters of a client's word that an error repeats: names are shorter, and what is not a name is not sent back."""


def shown(word: str) -> str:
    """A client's word, as an error repeats it."""
    return repr(word) if len(word) <= SHOWN else repr(word[:SHOWN]) + "…"


class HttpError(Exception):
    """A peer broke HTTP; its connection cannot be used any more."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """What to answer when the peer is a client."""


class ApiError(Exception):
    """A request that gets an error: the message names the field, the value and the way out."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, allow: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        """The field at fault."""
        self.code = code
        """What programs tell errors apart by."""
        self.allow = allow
        """Methods that the resource has, for a 405."""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Response headers that belong to the status."""
        headers = [(b"content-type", b"application/json")]
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if self.status == 503:
            headers.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
        return headers

    def body(self) -> bytes:
        """The error object of OpenAI's API."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return orjson.dumps(
            {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}},
        )


class Failure(enum.Enum):
    """What can go wrong with an engine before the first byte of its answer."""

    REFUSED = "connection refused"
    CONNECT_TIMEOUT = "connect timeout"
    RESET = "closed before an answer"
    STALE = "idle connection closed"
    """A kept connection that the engine closed as the request was sent: says nothing about the engine."""
    MALFORMED = "malformed answer"
    STATUS = "unavailable by status"
    """It answered 502, 503 or 504."""
    DEADLINE = "deadline"
