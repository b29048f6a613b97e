"""Errors that end a request without an engine's answer, and the ways in which engines fail."""

import enum
from collections.abc import Sequence

import orjson

RETRY_AFTER_SECONDS = 1
"""Retry-After of a 503: a lost replica is out of the table, and often replaced, within a second or so."""

NO_ROOM_SECONDS = 2
"""Retry-After where all replicas are full: capacity is free once an answer ends, and other requests wait already."""
NO_REPLICA_SECONDS = 5
"""Retry-After where there is no replica: a new one has to become warm."""

SHOWN = 100
"""Most characters of a client's value that an error repeats: names are shorter, other text is not repeated in full."""


def shown(word: str) -> str:
    """Return a client's value as an error repeats it: quoted, and shortened to SHOWN characters."""
    return repr(word) if len(word) <= SHOWN else repr(word[:SHOWN]) + "…"


def internal_error() -> "ApiError":
    """Return the error for a request that failed by a fault of the router itself."""
    return ApiError(500, "the router failed at this request, and its log says where: report it", code="internal_error")


class HttpError(Exception):
    """A violation of HTTP by a client or an engine, after which its connection cannot be used."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """Status to answer if a client is at fault."""


class RewriteError(Exception):
    """An answer cannot be rewritten, and must not reach its client as it is."""


class ApiError(Exception):
    """An error for a client; the message names the field, the value and the way out."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        allow: str = "",
        retry_after: int = RETRY_AFTER_SECONDS,
        further: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        """The field at fault."""
        self.code = code
        """The name by which programs distinguish errors."""
        self.allow = allow
        """Methods that the resource has, for a 405."""
        self.retry_after = retry_after
        """Seconds to wait, for a 429 or 503."""
        self.further = further
        """Response headers beside those of the status."""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the response headers that belong to the status."""
        headers = [(b"content-type", b"application/json")]
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))  # RFC 9110 section 11.6.1
        if self.status in (429, 503):
            headers.append((b"retry-after", b"%d" % self.retry_after))
        headers += self.further
        return headers

    def body(self) -> bytes:
        """Return the error object of OpenAI's API."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return orjson.dumps(
            {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}},
        )


class Failure(enum.Enum):
    """The ways in which an engine fails before the first byte of its answer."""

    REFUSED = "connection refused"
    CONNECT_TIMEOUT = "connect timeout"
    UNTRUSTED = "certificate not trusted"
    """The engine's certificate is signed by no CA of its group, or has another name, or no CA bundle was read yet."""
    NO_TLS = "no TLS"
    """The engine's port does not speak TLS, or no version of it that the router supports."""
    NO_CREDENTIAL = "credential of the engine not read yet"
    """The engine requires a credential that the router lacks. Its refusal would look like the client's fault."""
    RESET = "closed before an answer"
    STALE = "idle connection closed"
    """The engine closed a pooled connection as the request was sent, which says nothing about its health."""
    MALFORMED = "malformed answer"
    STATUS = "unavailable by status"
    """The engine answered 502, 503 or 504."""
    DEADLINE = "deadline"
    NO_TOKEN = "no token in time"  # noqa: S105 - a token of an answer
    """The engine has the request and did not begin to answer within the group's limit."""
    ABORTED = "aborted by the engine"
    """The engine ended its answer prematurely, and the answer says so."""
    REPORTED = "the engine's own error"
    """The engine reported an error in an event of its stream: it is responsive, and the request may be the cause."""
    STALLED = "stalled within an answer"
    """The engine sent nothing more for longer than the group's limit."""
    LEAVING = "the replica leaves"
    """The replica completes its requests and is removed then, or is no longer in the table."""


class KeysAwaitedError(ApiError):
    """A 503 that a wait may avoid: the keys of the issuer of the request's token are about to be requested."""


def cut_short(failure: Failure) -> ApiError:
    """Return the error that ends a stream that the client has received in part."""
    if failure in (Failure.STALLED, Failure.DEADLINE):
        return ApiError(504, "the engine has sent nothing more for too long, the answer is cut: retry", code="timeout")
    return ApiError(502, f"the answer is cut, {failure.value}: retry", code="answer_cut")


def refused_late(status: int) -> ApiError:
    """Return the error for an engine's answer that is no stream, in a stream that a keep-alive has begun."""
    text = f"the engine answered with {status} after a keep-alive had begun the stream: ask without `stream` to see why"
    return ApiError(status if status >= 400 else 502, text, code="engine_error")
