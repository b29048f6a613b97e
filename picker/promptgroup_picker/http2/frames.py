"""The frames of HTTP/2 as bytes (RFC 9113 section 4 and 6)."""

import enum
from collections.abc import Iterator
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
MAX_FRAME = 2**20
"""Largest payload that is accepted, announced as SETTINGS_MAX_FRAME_SIZE: a body of many megabytes has few frames."""
SENT_FRAME = 16384
"""Largest payload that every peer takes, and so the largest that is sent."""

_UNKNOWN = 255


class FrameType(enum.IntEnum):
    """The types of frames that are processed."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class ErrorCode(enum.IntEnum):
    """The reason why a stream or a connection ends (RFC 9113 section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


END_STREAM = 1
END_HEADERS = 4
PADDED = 8
WITH_PRIORITY = 32
ACK = 1

SETTINGS_HEADER_TABLE_SIZE = 1
SETTINGS_MAX_CONCURRENT_STREAMS = 3
SETTINGS_INITIAL_WINDOW_SIZE = 4
SETTINGS_MAX_FRAME_SIZE = 5
SETTINGS_MAX_HEADER_LIST_SIZE = 6


class Http2Error(Exception):
    """A violation of HTTP/2, after which the connection cannot be used."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Frame(NamedTuple):
    """One frame."""

    type: int
    flags: int
    stream: int
    payload: bytes


class FrameReader:
    """Splits received bytes into frames; each byte is copied at most twice."""

    __slots__ = ("_buffer", "begun")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.begun = False
        """True once the preface is here."""

    @property
    def waiting(self) -> int:
        """Number of bytes that are no whole frame yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Keep received bytes, and yield the frames that are whole."""
        self.keep(data)
        return self.frames()

    def keep(self, data: bytes) -> None:
        """Keep received bytes."""
        self._buffer += data

    def drop(self) -> None:
        """Forget the bytes of frames that were not taken."""
        self._buffer.clear()

    def frames(self) -> Iterator[Frame]:
        """Yield the frames that are whole; those that are not taken stay.

        Raises:
            Http2Error: the preface is wrong, or a frame is too large.
        """
        buffer = self._buffer
        at = 0
        if not self.begun:
            if not PREFACE.startswith(buffer[: len(PREFACE)]):
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the connection does not begin as HTTP/2")
            if len(buffer) < len(PREFACE):
                return
            self.begun, at = True, len(PREFACE)
        end = len(buffer)
        try:
            while end - at >= HEADER_BYTES:
                length = int.from_bytes(buffer[at : at + 3], "big")
                if length > MAX_FRAME:
                    raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame has {length} bytes, at most {MAX_FRAME}")
                if end - at < HEADER_BYTES + length:
                    return
                begin = at + HEADER_BYTES
                stream = int.from_bytes(buffer[at + 5 : begin], "big") & 0x7FFFFFFF
                frame = Frame(buffer[at + 3], buffer[at + 4], stream, bytes(buffer[begin : begin + length]))
                at = begin + length
                yield frame
        finally:
            del buffer[:at]


def frame(type_: FrameType, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    """Return one frame as bytes."""
    return len(payload).to_bytes(3, "big") + bytes((type_, flags)) + stream.to_bytes(4, "big") + payload


def settings(values: dict[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    payload = b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values.items())
    return frame(FrameType.SETTINGS, 0, 0, payload)


def read_settings(payload: bytes) -> dict[int, int]:
    """Return the values of a SETTINGS frame.

    Raises:
        Http2Error: the payload is no list of settings, or a value is out of its range (RFC 9113 section 6.5.2).
    """
    if len(payload) % 6:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS has {len(payload)} bytes, expected a multiple of 6")
    values = {
        int.from_bytes(payload[at : at + 2], "big"): int.from_bytes(payload[at + 2 : at + 6], "big")
        for at in range(0, len(payload), 6)
    }
    if values.get(SETTINGS_INITIAL_WINDOW_SIZE, 0) >= 2**31:
        raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE is above 2^31 - 1")
    return values


def window_update(stream: int, more: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))


def reset(stream: int, code: ErrorCode) -> bytes:
    """Return a RST_STREAM frame."""
    return frame(FrameType.RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway(last: int, code: ErrorCode) -> bytes:
    """Return a GOAWAY frame."""
    return frame(FrameType.GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big"))


def content(item: Frame) -> bytes:
    """Return the payload of a DATA or HEADERS frame without padding and priority.

    Raises:
        Http2Error: they are longer than the frame.
    """
    payload, begin, pad = item.payload, 0, 0
    if item.flags & PADDED:
        if not payload:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a padded frame is empty")
        begin, pad = 1, payload[0]
    if item.type == FrameType.HEADERS and item.flags & WITH_PRIORITY:
        begin += 5
    if begin + pad > len(payload):
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the padding of a frame is longer than the frame")
    return payload[begin : len(payload) - pad] if begin or pad else payload
