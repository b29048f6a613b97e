"""Heads of answers to clients: the router's own, and those that it relays from engines. Does no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from promptgroup_contract import names
from promptgroup_contract.caller_rules import NO_RULES, CallerRules
from promptgroup_router.apis.errors import OVERLOADED, AnswerForm
from promptgroup_router.decision.engine_headers import from_engine
from promptgroup_router.http11 import http1
from promptgroup_router.http11.http1 import Framing, Headers, ResponseHead

REQUEST_ID = b"x-request-id"
RETRY_AFTER_DIGITS = 6
"""A longer time than this is none."""

STATUS_LINES = {int(status): f"HTTP/1.1 {int(status)} {status.phrase}".encode() for status in HTTPStatus} | {
    413: b"HTTP/1.1 413 Content Too Large",
    414: b"HTTP/1.1 414 URI Too Long",
    416: b"HTTP/1.1 416 Range Not Satisfiable",
    422: b"HTTP/1.1 422 Unprocessable Content",
    OVERLOADED: b"HTTP/1.1 %d Overloaded" % OVERLOADED,
}
"""Older versions of Python have older phrases than RFC 9110."""

_SERVED_BY = names.HEADER_SERVED_BY.encode() + b": "
_REVISION = names.HEADER_REVISION.encode() + b": "
_ID = REQUEST_ID + b": "


@dataclass(slots=True)
class RelayedHead:
    """The head of a relayed answer, and the framing of its body for the client."""

    head: bytes
    keep: bool
    """True if the client's connection may carry another request."""
    decode: bool
    """True if chunks are decoded: HTTP/1.0 has none, so that the end of the connection ends the body, and what is
    rewritten gets chunks of its own."""


def own_answer(
    status: int, headers: Headers, body: bytes, *, minor: int, keep: bool, date: bytes = b"", head_only: bool = False
) -> bytes:
    """Return a whole answer of the router itself, with a date if there is one; for HEAD without its body."""
    lines = [b"date: " + date] if date else []
    lines += http1.lines_of(headers)
    lines += [b"content-length: %d" % len(body), *connection_lines(minor, keep=keep)]
    head = http1.encode(STATUS_LINES[status], lines)
    return head if head_only else head + body


def id_fields(form: AnswerForm, request_id: bytes) -> Headers:
    """Return the header fields by which an answer of the router itself reports the id of its request."""
    return [(name, request_id) for name in form.id_fields]


def retry_after(answer: ResponseHead) -> float:
    """Return the seconds of an engine's Retry-After (RFC 9110 section 10.2.3); 0 if it has none, or a date."""
    value = _value_of(answer, b"retry-after")
    return float(value) if value is not None and len(value) <= RETRY_AFTER_DIGITS and value.isdigit() else 0.0


def is_event_stream(answer: ResponseHead) -> bool:
    """Return True if the body of an engine's answer is a stream of server-sent events."""
    return answer.content_type.startswith(b"text/event-stream")


def is_json(answer: ResponseHead) -> bool:
    """Return True if the body of an engine's answer is a JSON document that can be read."""
    return answer.content_type.startswith(b"application/json") and not answer.coded


def is_compressed(answer: ResponseHead) -> bool:
    """Return True if the body of an engine's answer is compressed, so that the router cannot inspect it."""
    return answer.coded


def _value_of(answer: ResponseHead, name: bytes) -> bytes | None:
    """Return the first value of a field."""
    for field in answer.headers:
        if field.name == name:
            return field.value
    return None


def interim_head(answer: ResponseHead, rules: CallerRules) -> bytes:
    """Rewrite the head of an interim answer (1xx) for the client; it has no length (RFC 9110 section 8.6)."""
    line = STATUS_LINES.get(answer.status) or b"HTTP/1.1 %d " % answer.status
    return http1.encode(line, http1.forwarded(answer, from_engine(rules, sized=False)))


def relayed_head(
    answer: ResponseHead,
    *,
    minor: int,
    keep: bool,
    served_by: str,
    revision: str,
    request_id: bytes,
    rewritten: bool = False,
    further: Sequence[tuple[bytes, bytes]] = (),
    limits: bytes = b"",
    rules: CallerRules = NO_RULES,
) -> RelayedHead:
    """Rewrite the head of an engine's answer for the client.

    Args:
        answer: the engine's head.
        minor: the client's version is HTTP/1.minor.
        keep: whether client and router would keep the connection.
        served_by: the replica's label.
        revision: short fingerprint of the request's own prompt; empty without a group.
        request_id: the client's id of the request; engines get another one.
        rewritten: whether the body is rewritten, so that its length is unknown in advance.
        further: fields that the router adds to this answer.
        limits: lines of fields that report the client's limits, without the end of the last.
        rules: of the group, which name the engine's fields that clients get beside those of every group.
    """
    # a 204 has no length (RFC 9110 section 8.6): a client might wait for so many bytes
    unsized = answer.status == 204 or rewritten
    lines = http1.forwarded(answer, from_engine(rules, sized=False)) if unsized else _relayed_lines(answer, rules)
    chunked = answer.framing is Framing.CHUNKED or rewritten
    decode = answer.framing is Framing.CHUNKED and (minor == 0 or rewritten)
    keep = keep and (chunked or answer.framing is not Framing.UNTIL_CLOSE) and not (chunked and minor == 0)
    if chunked and minor == 1:
        lines.append(b"transfer-encoding: chunked")
    lines.append(_SERVED_BY + served_by.encode())
    if revision:
        lines.append(_REVISION + revision.encode())
    lines.append(_ID + request_id)
    if further:
        lines += http1.lines_of(further)
    if limits:
        lines.append(limits)
    lines += connection_lines(minor, keep=keep)
    line = STATUS_LINES.get(answer.status) or b"HTTP/1.1 %d " % answer.status
    return RelayedHead(http1.encode(line, lines), keep, decode)


def early_head(notes: Headers, request_id: bytes, *, keep: bool) -> bytes:
    """Return the head of a stream that begins before an engine answers, for a client of HTTP/1.1.

    Args:
        notes: fields that the router adds to the answer.
        request_id: the client's id of the request.
        keep: whether client and router would keep the connection.
    """
    lines = [b"content-type: text/event-stream; charset=utf-8", b"cache-control: no-cache"]
    lines += http1.lines_of([*notes, (REQUEST_ID, request_id)])
    lines += [b"transfer-encoding: chunked", *connection_lines(1, keep=keep)]
    return http1.encode(STATUS_LINES[200], lines)


def _relayed_lines(answer: ResponseHead, rules: CallerRules) -> list[bytes]:
    """Return the lines of an engine's fields, all of them as one for a head that is cached."""
    if answer.relayed and not rules.headers:
        return [answer.relayed]
    lines = http1.forwarded(answer, from_engine(rules))
    if answer.comes_again and not rules.headers:
        answer.relayed = b"\r\n".join(lines)
    return lines


def connection_lines(minor: int, *, keep: bool) -> list[bytes]:
    """Return the fields that inform an HTTP/1.minor client whether the connection stays open (RFC 9112 section 9.3)."""
    if not keep:
        return [b"connection: close"]
    return [b"connection: keep-alive"] if minor == 0 else []
