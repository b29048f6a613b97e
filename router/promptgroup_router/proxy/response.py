"""Heads of answers to clients: the router's own, and those that it relays from engines. Does no I/O."""

from http import HTTPStatus
from typing import NamedTuple

from promptgroup_router.apis.errors import OVERLOADED
from promptgroup_router.contract import names
from promptgroup_router.http11 import http1
from promptgroup_router.http11.http1 import Framing, Headers, ResponseHead

REQUEST_ID = b"x-request-id"

STATUS_LINES = {int(status): f"HTTP/1.1 {int(status)} {status.phrase}".encode() for status in HTTPStatus}
STATUS_LINES[OVERLOADED] = b"HTTP/1.1 %d Overloaded" % OVERLOADED

_SERVED_BY = names.HEADER_SERVED_BY.encode()
_REVISION = names.HEADER_REVISION.encode()
_NOT_RELAYED = frozenset((_SERVED_BY, _REVISION, REQUEST_ID))
_LENGTH = frozenset((b"content-length",))


class RelayedHead(NamedTuple):
    """The head of a relayed answer, and how its body goes to the client."""

    head: bytes
    keep: bool
    """True if the client's connection may carry another request."""
    decode: bool
    """True if chunks are decoded: HTTP/1.0 has none, so that the end of the connection ends the body."""


def own_answer(status: int, headers: Headers, body: bytes, *, minor: int, keep: bool, head_only: bool = False) -> bytes:
    """Return a whole answer of the router itself; `head_only` leaves out the body, for HEAD."""
    framing = [(b"content-length", b"%d" % len(body))]
    head = http1.encode(STATUS_LINES[status], [*headers, *framing, *connection_header(minor, keep=keep)])
    return head if head_only else head + body


def is_event_stream(answer: ResponseHead) -> bool:
    """Return True if the body of an engine's answer is a stream of server-sent events."""
    return any(name == b"content-type" and value[:17].lower() == b"text/event-stream" for name, value in answer.headers)


def interim_head(answer: ResponseHead) -> bytes:
    """Rewrite the head of an interim answer (1xx) for the client."""
    line = STATUS_LINES.get(answer.status) or b"HTTP/1.1 %d " % answer.status
    return http1.encode(line, http1.forwarded(answer.headers, _NOT_RELAYED))


def relayed_head(
    answer: ResponseHead, *, minor: int, keep: bool, served_by: str, revision: str, request_id: bytes
) -> RelayedHead:
    """Rewrite the head of an engine's answer for the client.

    Args:
        answer: the engine's head.
        minor: the client's version is HTTP/1.minor.
        keep: whether client and router would keep the connection.
        served_by: the replica's label.
        revision: short fingerprint of the request's own prompt; empty without a group.
        request_id: the client's id of the request; engines know another one.
    """
    # a 204 has no length (RFC 9110 section 8.6): a client might wait for so many bytes
    headers = http1.forwarded(answer.headers, _NOT_RELAYED if answer.status != 204 else _NOT_RELAYED | _LENGTH)
    decode = answer.framing is Framing.CHUNKED and minor == 0
    keep = keep and answer.framing is not Framing.UNTIL_CLOSE and not decode
    if answer.framing is Framing.CHUNKED and not decode:
        headers.append((b"transfer-encoding", b"chunked"))
    headers.append((_SERVED_BY, served_by.encode()))
    if revision:
        headers.append((_REVISION, revision.encode()))
    headers.append((REQUEST_ID, request_id))
    headers += connection_header(minor, keep=keep)
    line = STATUS_LINES.get(answer.status) or b"HTTP/1.1 %d " % answer.status
    return RelayedHead(http1.encode(line, headers), keep, decode)


def connection_header(minor: int, *, keep: bool) -> Headers:
    """Return the fields that tell an HTTP/1.minor client whether the connection stays open (RFC 9112 section 9.3)."""
    if not keep:
        return [(b"connection", b"close")]
    return [(b"connection", b"keep-alive")] if minor == 0 else []
