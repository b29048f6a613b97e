"""Heads of HTTP/1.1 messages (RFC 9112): bytes in, values out. No I/O.

Strict where leniency would let two parsers disagree about where a message ends (request smuggling): line ends are
CRLF, field names are tokens, no folding, one framing at most. A regular expression checks all field lines at once and
a second takes them apart: 4 µs for nine fields, against 6 µs for a loop over lines.
"""

import re
from dataclasses import dataclass

from promptgroup_router.base.errors import HttpError

MAX_HEAD = 65536
"""Bytes of a message head. Larger than common limits (nginx 8 KiB a line, Node 16 KiB), so that the router is not the
hop that refuses a long token or trace state."""

CHUNKED = -1
"""Framing by the chunked transfer coding."""
UNTIL_CLOSE = -2
"""Framing of an answer that ends with its connection."""

Headers = list[tuple[bytes, bytes]]
"""Field names in lower case, values without blanks around them, in the order received."""

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_FIELD_LINES = re.compile(rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*+\r\n)*+")
_FIELD = re.compile(rb"([^:\r\n]++):[ \t]*+([^\r\n]*+)\r\n")
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e\x80-\xff]++) HTTP/(\d)\.(\d)\r\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.(\d) ([1-5]\d\d)(?: [\t\x20-\x7e\x80-\xff]*+)?\r\n")
_BLANK_LINES = re.compile(rb"(?:\r\n)*+")
_NEVER = re.compile(rb"(?<!\r)\n|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""What no head has: a line feed alone, and control characters, such as those of a TLS client on this port."""
_LENGTH = re.compile(rb"\d{1,15}")

_SINGLE = (b"host", b"content-length", b"transfer-encoding")
"""Fields that a message may have once: twice is how smuggled requests begin (RFC 9112 sections 3.2 and 6.3)."""

HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
"""Fields that concern one connection and are not passed on (RFC 9110 section 7.6.1)."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request."""

    method: bytes
    path: bytes
    """Without query and authority."""
    query: bytes
    headers: Headers
    fields: dict[bytes, bytes]
    """The same for look-up; of a repeated field the last."""
    framing: int
    """Bytes of the body, or CHUNKED."""
    minor: int
    """Version of the client: HTTP/1.minor."""
    keep_alive: bool
    expects_continue: bool


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a response."""

    status: int
    headers: Headers
    framing: int
    """Bytes of the body, CHUNKED or UNTIL_CLOSE."""
    keep_alive: bool


class HeadBuffer:
    """Gathers bytes until a head is whole."""

    __slots__ = ("_data", "_seen")

    def __init__(self) -> None:
        self._data = b""
        self._seen = 0

    def __len__(self) -> int:
        return len(self._data)

    def take(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Add data; the head with its blank line and what follows it, once the head is whole.

        Empty lines before a head are skipped, as RFC 9112 section 2.2 asks.

        Raises:
            HttpError: 431 for a head over MAX_HEAD, 400 for what can never be one.
        """
        data = self._data + data if self._data else data
        if data.startswith(b"\r\n"):
            data = data[_BLANK_LINES.match(data).end() :]  # type: ignore[union-attr] # matches the empty string too
            self._seen = 0
        end = data.find(b"\r\n\r\n", max(0, self._seen - 3))
        if 0 <= end <= MAX_HEAD - 4:
            self._data, self._seen = b"", 0
            return data[: end + 4], data[end + 4 :]
        # looked for only here, so that nobody waits for the end of what is no head: whole ones are checked when parsed
        if _NEVER.search(data, max(0, self._seen - 1), MAX_HEAD):
            raise HttpError(400, "the head has a control character, or a line that ends with LF alone: send HTTP/1.1")
        if len(data) >= MAX_HEAD:
            raise HttpError(431, f"the head is larger than {MAX_HEAD} bytes: send fewer or shorter header fields")
        self._data, self._seen = data, len(data)
        return None


def parse_request(head: bytes) -> RequestHead:
    """The head of a request, blank line included.

    Raises:
        HttpError: with the status to answer: 400; 501 for a transfer coding other than chunked; 505 for a version.
    """
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise HttpError(400, "the first line is no HTTP/1.1 request line: METHOD TARGET HTTP/1.1")
    method, target, major, digit = line.groups()
    if major != b"1":
        raise HttpError(505, f"HTTP/{major.decode()} is not served on this port: use HTTP/1.1")
    minor = min(int(digit), 1)
    headers, fields = _fields(head, line.end())
    if minor == 1 and b"host" not in fields:
        raise HttpError(400, "the host header is missing, HTTP/1.1 requires it")
    path, query = _origin(target)
    connection = fields.get(b"connection", b"").lower()
    return RequestHead(
        method=method,
        path=path,
        query=query,
        headers=headers,
        fields=fields,
        framing=_request_framing(fields, minor),
        minor=minor,
        keep_alive=b"close" not in connection if minor else b"keep-alive" in connection,
        expects_continue=minor == 1 and fields.get(b"expect", b"").lower() == b"100-continue",
    )


def parse_response(head: bytes) -> ResponseHead:
    """The head of an answer to a POST, blank line included.

    Raises:
        HttpError: the engine broke HTTP.
    """
    line = _STATUS_LINE.match(head)
    if line is None:
        raise HttpError(502, "the engine's first line is no HTTP/1.1 status line")
    status, minor = int(line[2]), int(line[1])
    headers, fields = _fields(head, line.end())
    connection = fields.get(b"connection", b"").lower()
    framing = _response_framing(fields, status)
    return ResponseHead(
        status=status,
        headers=headers,
        framing=framing,
        keep_alive=framing != UNTIL_CLOSE and (b"close" not in connection if minor else b"keep-alive" in connection),
    )


def passed_on(headers: Headers, fields_to_drop: frozenset[bytes]) -> Headers:
    """Fields that the next hop gets: all but the hop-by-hop ones, those that Connection names, and `fields_to_drop`."""
    named = [value for name, value in headers if name == b"connection"]
    if named:
        fields_to_drop |= {token.strip().lower() for value in named for token in value.split(b",")}
    return [field for field in headers if field[0] not in fields_to_drop and field[0] not in HOP_BY_HOP]


def encode(first_line: bytes, headers: Headers) -> bytes:
    """A message head, blank line included. `first_line` has no line end."""
    return b"\r\n".join([first_line, *[b"%b: %b" % field for field in headers], b"", b""])


def _fields(head: bytes, start: int) -> tuple[Headers, dict[bytes, bytes]]:
    lines = _FIELD_LINES.match(head, start)
    if lines is None or lines.end() != len(head) - 2:
        raise HttpError(400, "a header line is malformed, expected `name: value` and CRLF")
    headers = [(name.lower(), value.rstrip(b" \t")) for name, value in _FIELD.findall(head, start)]
    fields = dict(headers)
    if len(fields) != len(headers):
        names = [name for name, _ in headers]
        for name in _SINGLE:
            if names.count(name) > 1:
                raise HttpError(400, f"{name.decode()} stands twice")
    return headers, fields


def _request_framing(fields: dict[bytes, bytes], minor: int) -> int:
    coding = fields.get(b"transfer-encoding")
    length = fields.get(b"content-length")
    if coding is None:
        return 0 if length is None else _length(length)
    if length is not None:
        raise HttpError(400, "content-length and transfer-encoding are both given, send one of them")
    if minor == 0:
        raise HttpError(400, "transfer-encoding is given with HTTP/1.0, which has none: send content-length")
    if coding.lower() != b"chunked":
        raise HttpError(501, "transfer-encoding is not chunked, no other is understood")
    return CHUNKED


def _response_framing(fields: dict[bytes, bytes], status: int) -> int:
    # RFC 9112 section 6.3, for answers to a POST
    if status < 200 or status in (204, 304):
        return 0
    coding = fields.get(b"transfer-encoding")
    length = fields.get(b"content-length")
    if coding is None:
        return UNTIL_CLOSE if length is None else _length(length)
    if length is not None or coding.lower() != b"chunked":
        raise HttpError(502, "the engine's framing is ambiguous")
    return CHUNKED


def _length(value: bytes) -> int:
    if not _LENGTH.fullmatch(value):
        raise HttpError(400, "content-length is no decimal number of at most 15 digits")
    return int(value)


def _origin(target: bytes) -> tuple[bytes, bytes]:
    if target[:1] != b"/":
        # absolute form, which a server must accept (RFC 9112 section 3.2.2); others (`*`, CONNECT) match no path
        _, scheme, rest = target.partition(b"://")
        if scheme:
            _, slash, path = rest.partition(b"/")
            target = slash + path or b"/"
    path, _, query = target.partition(b"?")
    return path, query
