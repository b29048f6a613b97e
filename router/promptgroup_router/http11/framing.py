"""Where a message body ends: counters over the bytes as they come, and the decoder for chunks. No I/O.

`feed(data)` returns how many bytes of `data` belong to the body; `done` says that the body is whole. The bytes
themselves are not touched: a chunk is relayed as received. (RFC 9112 section 7.)
"""

import enum
import re
from typing import Protocol

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11.http1 import CHUNKED, UNTIL_CLOSE

MAX_LINE = 4096
"""Bytes of a chunk-size or trailer line: extensions and trailers are rare and short."""
MAX_TRAILERS = 16384
"""Bytes of all trailer lines together."""

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*+;[\t\x20-\x7e\x80-\xff]*+)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[\t\x20-\x7e\x80-\xff]*+\r\n")


class Body(Protocol):
    """Counts the bytes of one body."""

    done: bool

    def feed(self, data: bytes) -> int:
        """Bytes of `data` that belong to the body; raises HttpError."""


class Sized:
    """A body of known length."""

    __slots__ = ("_left", "done")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def feed(self, data: bytes) -> int:
        """Bytes of `data` that belong to the body."""
        size = len(data)
        if size < self._left:
            self._left -= size
            return size
        taken, self._left, self.done = self._left, 0, True
        return taken


class UntilClose:
    """A body that ends with its connection."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def feed(self, data: bytes) -> int:
        """All of it."""
        return len(data)


class _Expect(enum.Enum):
    SIZE = enum.auto()
    DATA = enum.auto()
    DATA_END = enum.auto()
    TRAILER = enum.auto()


class Chunked:
    """A body in the chunked transfer coding.

    SIZE ──size > 0──▶ DATA ──▶ DATA_END ──▶ SIZE
      └──size = 0──▶ TRAILER ──blank line──▶ done
    """

    __slots__ = ("_expect", "_left", "_line", "_trailers", "done")

    def __init__(self) -> None:
        self.done = False
        self._expect = _Expect.SIZE
        self._left = 0
        self._line = b""
        self._trailers = 0

    def feed(self, data: bytes, sink: list[bytes] | None = None) -> int:
        """Bytes of `data` that belong to the body; decoded content is appended to `sink`.

        Raises:
            HttpError: the coding is broken.
        """
        end = len(data)
        at = self._whole_chunks(data, sink)
        while at < end and not self.done:
            if self._expect is _Expect.DATA:
                taken = min(self._left, end - at)
                if sink is not None:
                    sink.append(data[at : at + taken])
                at += taken
                self._left -= taken
                if self._left == 0:
                    self._expect = _Expect.DATA_END
                continue
            line_end = data.find(b"\n", at) + 1
            line = self._line + data[at : line_end or end]
            if len(line) > MAX_LINE:
                raise HttpError(400, f"a chunk-size or trailer line is longer than {MAX_LINE} bytes")
            if not line_end:
                self._line = line
                return end
            self._line = b""
            at = line_end
            self._take_line(line)
        return at

    def _whole_chunks(self, data: bytes, sink: list[bytes] | None) -> int:
        """Bytes of the chunks that begin and end in `data`, which most do: 0.7 µs for one, step by step 1.9."""
        at = 0
        if self._expect is not _Expect.SIZE or self._line:
            return at
        while (line := _SIZE.match(data, at)) is not None and line.end() - at <= MAX_LINE:
            start = line.end()
            stop = start + int(line[1], 16)
            if stop == start or not data.startswith(b"\r\n", stop):
                break
            if sink is not None:
                sink.append(data[start:stop])
            at = stop + 2
        return at

    def _take_line(self, line: bytes) -> None:
        match self._expect:
            case _Expect.SIZE:
                size = _SIZE.fullmatch(line)
                if size is None:
                    raise HttpError(400, "a chunk size is malformed, expected hexadecimal digits and CRLF")
                self._left = int(size[1], 16)
                self._expect = _Expect.DATA if self._left else _Expect.TRAILER
            case _Expect.DATA_END:
                if line != b"\r\n":
                    raise HttpError(400, "a chunk is longer than its size says")
                self._expect = _Expect.SIZE
            case _:
                self._trailers += len(line)
                if line == b"\r\n":
                    self.done = True
                elif self._trailers > MAX_TRAILERS or not _TRAILER.fullmatch(line):
                    raise HttpError(400, "a trailer line is malformed, or there are too many")


def body_of(framing: int) -> Sized | Chunked | UntilClose:
    """The counter for a head's framing."""
    if framing == CHUNKED:
        return Chunked()
    return UntilClose() if framing == UNTIL_CLOSE else Sized(framing)
