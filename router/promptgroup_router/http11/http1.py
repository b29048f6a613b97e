"""Parses and writes heads of HTTP/1.1 messages (RFC 9112). Does no I/O.

The parser is strict where a lenient one could disagree with the next hop about where a message ends (request
smuggling): lines end with CRLF, field names are tokens, values are not folded, and a message has one framing at most.
"""

import enum
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11.lines import (
    REMEMBERED_FIELDS,
    HeaderField,
    is_authority,
    read_field,
    read_request_line,
    read_status_line,
    remember,
)

MAX_HEAD = 65536
"""Most bytes of a message head: more than common limits (nginx 8 KiB a line, Node 16 KiB), so that the router is not
the hop that refuses a long token or trace state."""

MAX_FIELDS = 1000
"""Most fields of a head: a field of three bytes takes as long to read as one of a hundred. Common servers take 100."""

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, and values, of fields to send."""

_BLANK_LINES = re.compile(rb"(?:\r\n)*+")
_NEVER = re.compile(rb"(?<!\r)\n|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Bytes that no head may have: a line feed alone, and control characters, such as those that a TLS client sends."""
_SINGLE = (b"host", b"content-length", b"transfer-encoding", b"authorization", b"x-api-key", b"api-key")
"""Fields that a message may have only once, since smuggled requests repeat them (RFC 9112 sections 3.2 and 6.3): of two
credentials a gateway may have judged the one and this router would judge the other."""

HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
"""Fields that concern one connection and are not forwarded (RFC 9110 section 7.6.1)."""
_END_TO_END = frozenset((b"content-length", b"content-type", b"content-encoding", b"content-range", b"cache-control"))
"""Fields that Connection must not name: they are for the recipient, and without them the body cannot be read."""
_ZERO = ord("0")
LENGTH_DIGITS = 15
"""Most digits of a length."""
REMEMBERED_HEAD = 512
"""Bytes of the longest head of an answer that is cached."""
_REMEMBERED = REMEMBERED_FIELDS | {b"content-length"}
_NO_OPTIONS: frozenset[bytes] = frozenset()


class Framing(enum.Enum):
    """The ways in which a message determines the end of its body (RFC 9112 section 6.3)."""

    LENGTH = "length"
    """The head gives the number of bytes, 0 for no body."""
    CHUNKED = "chunked"
    """The last chunk ends the body."""
    UNTIL_CLOSE = "until close"
    """The end of the connection ends the body; for answers only."""


@dataclass(slots=True)
class RequestHead:
    """The head of a request."""

    method: bytes
    path: bytes
    """Without query and authority."""
    query: bytes
    headers: list[HeaderField]
    """In the order received."""
    fields: dict[bytes, bytes]
    """Name → value; of a repeated field the last value."""
    options: frozenset[bytes]
    """The options of all Connection fields, in lower case (RFC 9110 section 7.6.1)."""
    framing: Framing
    length: int
    """Bytes of the body; 0 for other framings than LENGTH."""
    minor: int
    """The client's version is HTTP/1.minor."""
    keep_alive: bool
    expects_continue: bool


@dataclass(slots=True)
class ResponseHead:
    """The head of a response."""

    status: int
    headers: list[HeaderField]
    """In the order received."""
    options: frozenset[bytes]
    """The options of all Connection fields, in lower case (RFC 9110 section 7.6.1)."""
    framing: Framing
    length: int
    """Bytes of the body; 0 for other framings than LENGTH."""
    keep_alive: bool
    content_type: bytes = b""
    """In lower case; empty without one."""
    coded: bool = False
    """True if the body has a content coding, such as a compression."""
    comes_again: bool = False
    """True if the head is cached."""
    relayed: bytes = b""
    """The lines of a cached head that clients get, joined, once a client has got them."""


_answers: dict[bytes, ResponseHead] = {}
"""Heads of answers as they were received. Those of streams differ in their date alone, which changes every second;
those of whole answers differ in their length, too. No field of them holds a secret."""


class HeadBuffer:
    """A buffer for the bytes of a head until it is whole."""

    __slots__ = ("_data", "_most", "_skip_blank_lines")

    def __init__(self, *, skip_blank_lines: bool, most: int = MAX_HEAD) -> None:
        """Start an empty buffer.

        Args:
            skip_blank_lines: whether empty lines may precede the head, as RFC 9112 section 2.2 allows for requests.
            most: bytes of the longest head.
        """
        self._most = most
        self._skip_blank_lines = skip_blank_lines
        self._data = b""

    def __len__(self) -> int:
        return len(self._data)

    def take(self, data: bytes, at: int = 0) -> tuple[bytes, int] | None:
        """Add the received bytes from `at` on.

        Returns:
            The head with its blank line, and the position in `data` behind it; None while the head is not whole, which
            takes all of `data`.

        Raises:
            HttpError: 431 for a head that is too long, 414 if its first line is, 400 for what no head begins with.
        """
        seen = len(self._data)
        text, start, shift = (self._data + data[at:], 0, at - seen) if seen else (data, at, 0)
        if self._skip_blank_lines and text[start : start + 2] == b"\r\n":
            start, seen = _BLANK_LINES.match(text, start).end(), 0  # type: ignore[union-attr] # matches the empty string
        end, most = text.find(b"\r\n\r\n", max(start, start + seen - 3)) + 4, self._most
        if 4 <= end <= start + most:
            self._data = b""
            return text[start:end], end + shift
        # a whole head is checked when it is parsed; this check ends the wait for the rest of what can be no head
        # the first byte apart: a carriage return before it would be the end of another message's body
        if text.startswith(b"\n", start) or _NEVER.search(text, max(start, start + seen - 1), start + most):
            raise HttpError(400, "the head has a control character, or a line that ends with LF alone: send HTTP/1.1")
        if len(text) - start >= most:
            if text.find(b"\r\n", start, start + most) < 0:
                raise HttpError(414, f"the target is longer than {most} bytes: send the query in the body")
            raise HttpError(431, f"the head is larger than {most} bytes: send fewer or shorter header fields")
        self._data = text[start:]
        return None


def parse_request(head: bytes) -> RequestHead:
    """Parse the head of a request, blank line included.

    Raises:
        HttpError: carries the status to answer: 400, 501 for a transfer coding other than chunked, 505 for a version.
    """
    lines = head[:-4].split(b"\r\n")
    line = read_request_line(lines[0])
    headers, fields = _read_fields(lines)  # first, since HeadBuffer may have refused a broken line already
    minor = line.minor
    if line.major != 1:
        raise HttpError(505, f"HTTP/{line.major} is not served on this port: use HTTP/1.1")
    host = fields.get(b"host")
    if host is None:
        if minor == 1:
            raise HttpError(400, "the host header is missing: HTTP/1.1 requires one")
    elif host and not is_authority(host):
        raise HttpError(400, "the host header is not a host with an optional port")
    options = _connection_options(headers, fields)
    framing, length = _request_framing(fields, minor)
    expect = fields.get(b"expect")
    return RequestHead(
        method=line.method,
        path=line.path,
        query=line.query,
        headers=headers,
        fields=fields,
        options=options,
        framing=framing,
        length=length,
        minor=minor,
        keep_alive=_persists(options, minor),
        expects_continue=expect is not None and minor == 1 and expect.lower() == b"100-continue",
    )


def parse_response(head: bytes) -> ResponseHead:
    """Parse the head of an answer to a POST, blank line included. Equal heads may be one object.

    Raises:
        HttpError: the engine's answer is not HTTP/1.1.
    """
    answer = _answers.get(head)
    if answer is not None:
        return answer
    lines = head[:-4].split(b"\r\n")
    line = read_status_line(lines[0])
    headers, fields = _read_fields(lines)
    options = _connection_options(headers, fields)
    framing, length = _response_framing(fields, line.status)
    keep_alive = framing is not Framing.UNTIL_CLOSE and _persists(options, line.minor)
    if framing is Framing.CHUNKED and line.minor == 0:
        keep_alive = False  # HTTP/1.0 has no chunks: who sends them may be confused (RFC 9112 section 6.1)
    read = ResponseHead(
        status=line.status,
        headers=headers,
        options=options,
        framing=framing,
        length=length,
        keep_alive=keep_alive,
        content_type=fields.get(b"content-type", b"").lower(),
        coded=b"content-encoding" in fields,
        comes_again=len(head) <= REMEMBERED_HEAD and fields.keys() <= _REMEMBERED,
    )
    if read.comes_again:
        remember(_answers, head, read)
    return read


def forwarded(head: RequestHead | ResponseHead, allowed: frozenset[bytes]) -> list[bytes]:
    """Return the lines of the fields for the next hop: those with the allowed names that Connection does not name.

    None of HOP_BY_HOP may be allowed.
    """
    if head.options:
        allowed -= head.options - _END_TO_END
    return [field.line for field in head.headers if field.name in allowed]


def forwarded_but(head: RequestHead, dropped: frozenset[bytes]) -> list[bytes]:
    """Return the lines of all fields but those in `dropped`, which has HOP_BY_HOP, and those that Connection names."""
    dropped |= head.options - _END_TO_END
    return [field.line for field in head.headers if field.name not in dropped]


def pairs(fields: Iterable[HeaderField]) -> Headers:
    """Return the names and values of fields."""
    return [(field.name, field.value) for field in fields]


def encode(first_line: bytes, fields: Sequence[bytes]) -> bytes:
    """Write a message head, blank line included; all lines are given without their ends."""
    return b"\r\n".join([first_line, *fields, b"", b""])


def fields_of(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Return the header fields of lines that end with CRLF, the last one or not."""
    parts = (line.partition(b": ") for line in lines.split(b"\r\n") if line)
    return [(name, value) for name, _, value in parts]


def lines_of(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the lines of fields, without their ends."""
    return [name + b": " + value for name, value in headers]


def _read_fields(lines: list[bytes]) -> tuple[list[HeaderField], dict[bytes, bytes]]:
    """Read the lines of a head behind its first."""
    if len(lines) > MAX_FIELDS + 1:
        raise HttpError(431, f"the head has {len(lines) - 1} fields, at most {MAX_FIELDS}: send fewer")
    headers, fields = [], {}
    for number in range(1, len(lines)):
        field = read_field(lines[number])
        headers.append(field)
        fields[field.name] = field.value
    if len(fields) != len(headers):
        names = [field.name for field in headers]
        for name in _SINGLE:
            if names.count(name) > 1:
                raise HttpError(400, f"{name.decode()} is given twice: send it once")
    return headers, fields


def _connection_options(headers: list[HeaderField], fields: dict[bytes, bytes]) -> frozenset[bytes]:
    if b"connection" not in fields:
        return _NO_OPTIONS
    values = [field.value for field in headers if field.name == b"connection"]
    return frozenset(option.strip(b" \t").lower() for value in values for option in value.split(b","))


def _persists(options: frozenset[bytes], minor: int) -> bool:
    """Return True if a connection stays open after a message (RFC 9112 section 9.3)."""
    return b"close" not in options and (minor > 0 or b"keep-alive" in options)


def _request_framing(fields: dict[bytes, bytes], minor: int) -> tuple[Framing, int]:
    coding = fields.get(b"transfer-encoding")
    length = fields.get(b"content-length")
    if coding is None:
        return Framing.LENGTH, 0 if length is None else _length(length)
    if length is not None:
        raise HttpError(400, "content-length and transfer-encoding are both given: send one of them")
    if minor == 0:
        raise HttpError(400, "transfer-encoding is given, which HTTP/1.0 does not have: send content-length")
    if coding.lower() != b"chunked":
        raise HttpError(501, "transfer-encoding is not chunked: no other coding is supported")
    return Framing.CHUNKED, 0


def _response_framing(fields: dict[bytes, bytes], status: int) -> tuple[Framing, int]:
    # RFC 9112 section 6.3, for answers to a POST
    coding = fields.get(b"transfer-encoding")
    length = fields.get(b"content-length")
    if coding is not None and (length is not None or coding.lower() != b"chunked"):
        raise HttpError(502, "the engine's framing is ambiguous")
    size = 0 if length is None else _length(length)
    if status < 200 or status in (204, 304):
        return Framing.LENGTH, 0
    if coding is not None:
        return Framing.CHUNKED, 0
    return (Framing.UNTIL_CLOSE if length is None else Framing.LENGTH), size


def _length(value: bytes) -> int:
    if not value.isdigit() or len(value) > LENGTH_DIGITS:
        raise HttpError(400, f"content-length is not a decimal number of at most {LENGTH_DIGITS} digits")
    length = 0
    for at in range(len(value)):  # compiled, this takes a tenth of the time of int()
        length = 10 * length + value[at] - _ZERO
    return length
