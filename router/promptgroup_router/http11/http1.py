"""Parses and writes heads of HTTP/1.1 messages (RFC 9112). Does no I/O.

The parser is strict where a lenient one could disagree with the next hop about where a message ends (request
smuggling): lines end with CRLF, field names are tokens, values are not folded, and a message has one framing at most.
Most lines of a client's heads are the same each time, and so are most of an engine's: those whose values are no secret
are remembered with their name and value, which saves most of the time for a head.
"""

import enum
import ipaddress
import re
from typing import NamedTuple

from promptgroup_router.base.errors import HttpError

MAX_HEAD = 65536
"""Most bytes of a message head: more than common limits (nginx 8 KiB a line, Node 16 KiB), so that the router is not
the hop that refuses a long token or trace state."""

Headers = list[tuple[bytes, bytes]]
"""Fields in the order received: names in lower case, values without blanks around them."""

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*+([\t\x20-\x7e\x80-\xff]*+)")
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]++) HTTP/(\d)\.(\d)\r\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.(\d) ([1-5]\d\d)(?: [\t\x20-\x7e\x80-\xff]*+)?\r\n")
_BLANK_LINES = re.compile(rb"(?:\r\n)*+")
_NEVER = re.compile(rb"(?<!\r)\n|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Bytes that no head may have: a line feed alone, and control characters, such as those that a TLS client sends."""
_AUTHORITY = re.compile(rb"((?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})++|\[[0-9A-Fa-f:.]++\])(?::(\d{1,5})?)?")
"""Host and port of a URI (RFC 3986 section 3.2); user information is refused (RFC 9110 section 4.2.4)."""
_ABSOLUTE = re.compile(rb"https?://([^/?]*+)(?:(/[^?]*+)?(?:\?(.*+))?)", re.IGNORECASE)
_LENGTH = re.compile(rb"\d{1,15}")

_SINGLE = (b"host", b"content-length", b"transfer-encoding")
"""Fields that a message may have only once, since smuggled requests repeat them (RFC 9112 sections 3.2 and 6.3)."""

HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
"""Fields that concern one connection and are not forwarded (RFC 9110 section 7.6.1)."""
_END_TO_END = frozenset((b"content-length", b"content-type", b"content-encoding", b"content-range", b"cache-control"))
"""Fields that Connection must not name: they are for the recipient, and without them the body cannot be read."""
REMEMBERED_FIELDS = frozenset(
    b"accept accept-encoding accept-language anthropic-version cache-control connection content-type date host server "
    b"transfer-encoding user-agent x-stainless-arch x-stainless-async x-stainless-lang x-stainless-os "
    b"x-stainless-package-version x-stainless-read-timeout x-stainless-retry-count x-stainless-runtime "
    b"x-stainless-runtime-version".split()
)
"""Fields that clients and engines send with few values, none of which is a secret."""
REMEMBERED_LINES = 1024
"""Most lines that are remembered."""
REMEMBERED_BYTES = 128
"""Longest line that is remembered."""
_remembered: dict[bytes, tuple[bytes, bytes]] = {}
_NO_OPTIONS: frozenset[bytes] = frozenset()


class Framing(enum.Enum):
    """The ways in which a message says where its body ends (RFC 9112 section 6.3)."""

    LENGTH = "length"
    """The head gives the number of bytes, 0 for no body."""
    CHUNKED = "chunked"
    """The last chunk ends the body."""
    UNTIL_CLOSE = "until close"
    """The end of the connection ends the body; for answers only."""


class RequestHead(NamedTuple):
    """The head of a request."""

    method: bytes
    path: bytes
    """Without query and authority."""
    query: bytes
    headers: Headers
    fields: dict[bytes, bytes]
    """The same fields by name; of a repeated field the last value."""
    framing: Framing
    length: int
    """Bytes of the body; 0 for other framings than LENGTH."""
    minor: int
    """The client's version is HTTP/1.minor."""
    keep_alive: bool
    expects_continue: bool


class ResponseHead(NamedTuple):
    """The head of a response."""

    status: int
    headers: Headers
    framing: Framing
    length: int
    """Bytes of the body; 0 for other framings than LENGTH."""
    keep_alive: bool


class HeadBuffer:
    """A buffer for the bytes of a head until it is whole."""

    __slots__ = ("_data", "_skip_blank_lines")

    def __init__(self, *, skip_blank_lines: bool) -> None:
        """Start an empty buffer.

        Args:
            skip_blank_lines: whether empty lines may precede the head, as RFC 9112 section 2.2 allows for requests.
        """
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
            HttpError: 431 for a head over MAX_HEAD, 400 for bytes that no head begins with.
        """
        seen = len(self._data)
        text, start, shift = (self._data + data[at:], 0, at - seen) if seen else (data, at, 0)
        if self._skip_blank_lines and text.startswith(b"\r\n", start):
            start, seen = _BLANK_LINES.match(text, start).end(), 0  # type: ignore[union-attr] # matches the empty string
        end = text.find(b"\r\n\r\n", max(start, start + seen - 3)) + 4
        if 4 <= end <= start + MAX_HEAD:
            self._data = b""
            return text[start:end], end + shift
        # a whole head is checked when it is parsed; this check ends the wait for the rest of what can be no head
        # the first byte apart: a carriage return before it would be the end of another message's body
        if text.startswith(b"\n", start) or _NEVER.search(text, max(start, start + seen - 1), start + MAX_HEAD):
            raise HttpError(400, "the head has a control character, or a line that ends with LF alone: send HTTP/1.1")
        if len(text) - start >= MAX_HEAD:
            raise HttpError(431, f"the head is larger than {MAX_HEAD} bytes: send fewer or shorter header fields")
        self._data = text[start:]
        return None


def parse_request(head: bytes) -> RequestHead:
    """Parse the head of a request, blank line included.

    Raises:
        HttpError: carries the status to answer: 400, 501 for a transfer coding other than chunked, 505 for a version.
    """
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise HttpError(400, "the first line is not an HTTP/1.1 request line: send METHOD TARGET HTTP/1.1")
    method, target, major, digit = line.groups()
    headers, fields = _fields(head, line.end())  # first, since HeadBuffer may have refused a broken line already
    if major != b"1":
        raise HttpError(505, f"HTTP/{major.decode()} is not served on this port: use HTTP/1.1")
    minor = min(int(digit), 1)
    host = fields.get(b"host")
    if host is None:
        if minor == 1:
            raise HttpError(400, "the host header is missing: HTTP/1.1 requires one")
    elif host and not _is_authority(host):
        raise HttpError(400, "the host header is not a host with an optional port")
    path, query = _origin(method, target)
    options = _connection_options(headers, fields)
    framing, length = _request_framing(fields, minor)
    return RequestHead(
        method=method,
        path=path,
        query=query,
        headers=headers,
        fields=fields,
        framing=framing,
        length=length,
        minor=minor,
        keep_alive=_persists(options, minor),
        expects_continue=minor == 1 and fields.get(b"expect", b"").lower() == b"100-continue",
    )


def parse_response(head: bytes) -> ResponseHead:
    """Parse the head of an answer to a POST, blank line included.

    Raises:
        HttpError: the engine's answer is not HTTP/1.1.
    """
    line = _STATUS_LINE.match(head)
    if line is None:
        raise HttpError(502, "the engine's first line is not an HTTP/1.1 status line")
    status, minor = int(line[2]), int(line[1])
    headers, fields = _fields(head, line.end())
    framing, length = _response_framing(fields, status)
    keep_alive = framing is not Framing.UNTIL_CLOSE and _persists(_connection_options(headers, fields), minor)
    if framing is Framing.CHUNKED and minor == 0:
        keep_alive = False  # HTTP/1.0 has no chunks: who sends them may be confused (RFC 9112 section 6.1)
    return ResponseHead(
        status=status,
        headers=headers,
        framing=framing,
        length=length,
        keep_alive=keep_alive,
    )


def forwarded(headers: Headers, fields_to_drop: frozenset[bytes]) -> Headers:
    """Return the fields for the next hop.

    Hop-by-hop fields, fields that Connection names, and `fields_to_drop` are left out.
    """
    options = _connection_options(headers, None)
    if options:
        fields_to_drop |= options - _END_TO_END
    return [field for field in headers if field[0] not in fields_to_drop and field[0] not in HOP_BY_HOP]


def encode(first_line: bytes, headers: Headers) -> bytes:
    """Write a message head, blank line included; `first_line` comes without its line end."""
    return b"\r\n".join([first_line, *map(b": ".join, headers), b"", b""])


def _fields(head: bytes, start: int) -> tuple[Headers, dict[bytes, bytes]]:
    lines = head[start:-4].split(b"\r\n") if start < len(head) - 2 else []
    headers = [_remembered.get(line) or _field(line) for line in lines]
    fields = dict(headers)
    if len(fields) != len(headers):
        names = [name for name, _ in headers]
        for name in _SINGLE:
            if names.count(name) > 1:
                raise HttpError(400, f"{name.decode()} is given twice: send it once")
    return headers, fields


def _field(line: bytes) -> tuple[bytes, bytes]:
    found = _FIELD.fullmatch(line)
    if found is None:
        raise HttpError(400, "a header line is malformed: send `name: value` and CRLF")
    field = found[1].lower(), found[2].rstrip(b" \t")
    if field[0] in REMEMBERED_FIELDS and len(line) <= REMEMBERED_BYTES:
        if len(_remembered) >= REMEMBERED_LINES:
            _remembered.clear()
        _remembered[line] = field
    return field


def _connection_options(headers: Headers, fields: dict[bytes, bytes] | None) -> frozenset[bytes]:
    """Return the options of all Connection fields, in lower case (RFC 9110 section 7.6.1)."""
    if fields is not None and b"connection" not in fields:
        return _NO_OPTIONS
    values = [value for name, value in headers if name == b"connection"]
    return frozenset(option.strip(b" \t").lower() for value in values for option in value.split(b","))


def _persists(options: frozenset[bytes], minor: int) -> bool:
    """Return True if a connection stays open after a message (RFC 9112 section 9.3)."""
    return b"close" not in options and (minor > 0 or b"keep-alive" in options)


def _is_authority(value: bytes) -> bool:
    found = _AUTHORITY.fullmatch(value)
    if found is None or int(found[2] or 0) > 65535:
        return False
    if value[:1] == b"[":
        try:
            ipaddress.IPv6Address(found[1][1:-1].decode())
        except ValueError:
            return False
    return True


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
    if not _LENGTH.fullmatch(value):
        raise HttpError(400, "content-length is not a decimal number of at most 15 digits")
    return int(value)


def _origin(method: bytes, target: bytes) -> tuple[bytes, bytes]:
    """Return path and query of a request target (RFC 9112 section 3.2)."""
    if b"#" in target:
        raise HttpError(400, "the target has a fragment (`#`): leave it out")
    if target[:1] == b"/":
        path, _, query = target.partition(b"?")
        return path, query
    if target == b"*" and method == b"OPTIONS":
        return target, b""
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or not _is_authority(absolute[1]):
        raise HttpError(400, "the target is neither a path nor an http URL with a host")
    return absolute[2] or b"/", absolute[3] or b""
