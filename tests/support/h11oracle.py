"""h11 as a second opinion on what the router reads.

Only one direction is a rule: h11 reads all that the router reads, and reads it the same. The router refuses more than
h11 does, since a message that two parsers could read differently is how requests are smuggled.
"""

import re

import h11

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import MAX_HEAD, Framing
from promptgroup_router.http11.reader import RequestReader, ResponseReader

MAX_BODY = 100_000

_BAD_BLANKS = re.compile(rb"[0-9A-Fa-f][ \t]+;")
"""Blanks before a chunk extension, which a recipient must read (RFC 9112 section 7.1.1), and h11 does not."""
_BLANK_LINES = re.compile(rb"\A(?:\r\n)+")
"""Empty lines before a request, which a server should ignore (RFC 9112 section 2.2), and h11 does not."""
_ORIGIN = re.compile(rb"https?://[^/?]*", re.IGNORECASE)


def requests_agree(data: bytes) -> bool:
    """Return True if the router reads a whole request at the beginning of `data`; h11 must read the same."""
    found = _read_by_router(data)
    if not found or _BAD_BLANKS.search(data):
        return False
    read = _read_by_h11(data)
    assert read == found, f"{read} by h11, {found} by the router"
    return True


def answers_agree(data: bytes) -> bool:
    """Return True if the router reads a whole answer at the beginning of `data`; h11 must read the same."""
    reader = ResponseReader()
    try:
        body = reader.feed(data)
    except HttpError:
        return False
    if not reader.done or reader.head is None or _BAD_BLANKS.search(data):
        return False
    if reader.head.framing is Framing.CHUNKED:
        content = bytearray()
        Chunked().feed(body, content)
        body = bytes(content)
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=2 * MAX_HEAD)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "engine"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    answer = connection.next_event()
    while isinstance(answer, h11.InformationalResponse):
        answer = connection.next_event()
    assert isinstance(answer, h11.Response), answer
    expected = (answer.status_code, _lists(answer.headers), _content(connection))
    assert (reader.head.status, _folded(_pairs(reader.head)), body) == expected
    if reader.reusable and bytes(answer.http_version) == b"1.1":
        assert connection.their_state is h11.DONE
        assert not connection.trailing_data[0]
    return True


def _read_by_router(data: bytes) -> list:
    """Return the first request, and the number of bytes behind it; nothing where it is refused or not whole."""
    reader = RequestReader(MAX_BODY)
    reader.feed(data)
    try:
        request = reader.next()
    except HttpError:
        return []
    if request is None:
        return []
    head = request.head
    target = head.path + b"?" + head.query if head.query else head.path
    kept = head.minor == 0 or head.keep_alive  # h11 keeps no connection of HTTP/1.0
    return [head.method, target, _folded(_pairs(head)), request.body, kept, reader.buffered]


def _read_by_h11(data: bytes) -> list:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * MAX_HEAD)
    connection.receive_data(_BLANK_LINES.sub(b"", data, count=1))
    request = connection.next_event()
    assert isinstance(request, h11.Request), request
    body = _content(connection)
    # while an upgrade may still be accepted, the state does not tell whether the connection closes otherwise
    undecided = connection.their_state is h11.MIGHT_SWITCH_PROTOCOL and connection._cstate.keep_alive
    kept = request.http_version == b"1.0" or connection.their_state is h11.DONE or undecided
    # h11 gives the target as it was sent, the router path and query of it
    target = _ORIGIN.sub(b"", bytes(request.target), count=1) if request.target[:1] != b"/" else bytes(request.target)
    path, _, query = target.partition(b"?")
    target = (path or b"/") + (b"?" + query if query else b"")
    return [request.method, target, _lists(request.headers), body, kept, len(connection.trailing_data[0])]


def _content(connection: h11.Connection) -> bytes:
    body = b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data), event
        body += bytes(event.data)
    return body


def _lists(headers) -> list[tuple[bytes, bytes]]:
    return [(bytes(name), bytes(value)) for name, value in headers]


def _pairs(head) -> list[tuple[bytes, bytes]]:
    return [(field.name, field.value) for field in head.headers]


def _folded(headers) -> list[tuple[bytes, bytes]]:
    """h11 gives transfer-encoding in lower case."""
    return [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in headers]
