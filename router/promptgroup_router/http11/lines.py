"""Parses the lines of heads of HTTP/1.1 messages (RFC 9112). Does no I/O.

Most lines of a client's heads are the same each time, and so are most of an engine's. Those without a secret are cached
with their parsed values, which saves most of the time for a head.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import TypeVar

from promptgroup_router.base.errors import HttpError

_T = TypeVar("_T")

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++")
_NOT_IN_VALUES = re.compile(rb"[^\t\x20-\x7e\x80-\xff]")
_REQUEST_LINE = re.compile(rb"(" + _TOKEN.pattern + rb") ([\x21-\x7e]++) HTTP/(\d)\.(\d)")
_STATUS_LINE = re.compile(rb"HTTP/1\.(\d) ([1-5]\d\d)(?: [\t\x20-\x7e\x80-\xff]*+)?")
_AUTHORITY = re.compile(rb"((?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})++|\[[0-9A-Fa-f:.]++\])(?::(\d{1,5})?)?")
"""Host and port of a URI (RFC 3986 section 3.2); user information is refused (RFC 9110 section 4.2.4)."""
_ABSOLUTE = re.compile(rb"https?://([^/?]*+)(?:(/[^?]*+)?(?:\?(.*+))?)", re.IGNORECASE)

REMEMBERED_FIELDS = frozenset(
    b"accept accept-encoding accept-language anthropic-version cache-control connection content-type date host server "
    b"transfer-encoding user-agent x-stainless-arch x-stainless-async x-stainless-lang x-stainless-os "
    b"x-stainless-package-version x-stainless-read-timeout x-stainless-retry-count x-stainless-runtime "
    b"x-stainless-runtime-version".split()
)
"""Fields that clients and engines send with few values, none of which is a secret."""
REMEMBERED_LINES = 1024
"""Most lines of each kind, and names of fields, that are cached."""
REMEMBERED_BYTES = 128
"""Longest line that is cached."""


@dataclass(slots=True)
class RequestLine:
    """The first line of a request."""

    method: bytes
    path: bytes
    """Without query and authority."""
    query: bytes
    major: int
    minor: int
    """1 at most: what a later version adds is not used."""


@dataclass(slots=True)
class StatusLine:
    """The first line of an answer."""

    status: int
    minor: int


@dataclass(slots=True)
class HeaderField:
    """A field that was received."""

    name: bytes
    """In lower case."""
    value: bytes
    """Without blanks around it."""
    line: bytes
    """Both, as they are sent on."""


_SPACE = ord(" ")
_request_lines: dict[bytes, RequestLine] = {}
_status_lines: dict[bytes, StatusLine] = {}
_fields: dict[bytes, HeaderField] = {}
_names: dict[bytes, bytes] = {}
"""Names as they were spelled → in lower case."""
_authorities: dict[bytes, bool] = {}
"""Hosts → whether they are ones."""


def read_request_line(line: bytes) -> RequestLine:
    """Read the first line of a request.

    Raises:
        HttpError: 400, it is malformed.
    """
    request_line = _request_lines.get(line)
    if request_line is not None:
        return request_line
    result = _REQUEST_LINE.fullmatch(line)
    if result is None:
        raise HttpError(400, "the first line is not an HTTP/1.1 request line: send METHOD TARGET HTTP/1.1")
    method, target, major, minor = result.groups()
    path, query = _origin(method, target)
    read = RequestLine(method, path, query, int(major), min(int(minor), 1))
    if b"?" not in target and len(line) <= REMEMBERED_BYTES:  # a query may hold a secret
        remember(_request_lines, line, read)
    return read


def read_status_line(line: bytes) -> StatusLine:
    """Read the first line of an answer.

    Raises:
        HttpError: 502, it is malformed.
    """
    status_line = _status_lines.get(line)
    if status_line is not None:
        return status_line
    result = _STATUS_LINE.fullmatch(line)
    if result is None:
        raise HttpError(502, "the engine's first line is not an HTTP/1.1 status line")
    read = StatusLine(int(result[2]), int(result[1]))
    if len(line) <= REMEMBERED_BYTES:
        remember(_status_lines, line, read)
    return read


def read_field(line: bytes) -> HeaderField:
    """Read the line of a field.

    Raises:
        HttpError: 400, it is malformed.
    """
    header_field = _fields.get(line)
    if header_field is not None:
        return header_field
    spelled, colon, value = line.partition(b": ")
    name = _names.get(spelled)
    if name is None:  # the field is not cached, or no blank follows the colon
        spelled, colon, value = line.partition(b":")
        name = _names.get(spelled) or _read_name(spelled)
    # nearly all values are printable, which is seen in half the time that a pattern takes
    if not colon or (not value.decode("latin-1").isprintable() and _NOT_IN_VALUES.search(value)):
        raise HttpError(400, _MALFORMED)
    if not value or value[0] <= _SPACE or value[-1] <= _SPACE:
        value = value.strip(b" \t")
    field = HeaderField(name, value, name + b": " + value)
    if name in REMEMBERED_FIELDS and len(line) <= REMEMBERED_BYTES:
        remember(_fields, line, field)
    return field


_MALFORMED = "a header line is malformed: send `name: value` and CRLF"


def _read_name(spelled: bytes) -> bytes:
    if not _TOKEN.fullmatch(spelled):
        raise HttpError(400, _MALFORMED)
    name = spelled.lower()
    if len(spelled) <= REMEMBERED_BYTES:
        remember(_names, spelled, name)
    return name


def remember(cache: dict[bytes, _T], received: bytes, read: _T) -> None:
    """Cache a parsed value, and clear the cache when it is full, so that a hit costs only a look-up."""
    if len(cache) >= REMEMBERED_LINES:
        cache.clear()
    cache[received] = read


def is_authority(value: bytes) -> bool:
    """Return True if a value is a host with an optional port."""
    authority = _authorities.get(value)
    if authority is None:
        authority = _read_authority(value)
        if len(value) <= REMEMBERED_BYTES:
            remember(_authorities, value, authority)
    return authority


def _read_authority(value: bytes) -> bool:
    result = _AUTHORITY.fullmatch(value)
    if result is None or int(result[2] or 0) > 65535:
        return False
    if value[:1] == b"[":
        try:
            ipaddress.IPv6Address(result[1][1:-1].decode())
        except ValueError:
            return False
    return True


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
    if absolute is None or not is_authority(absolute[1]):
        raise HttpError(400, "the target is neither a path nor an http URL with a host")
    return absolute[2] or b"/", absolute[3] or b""
