"""Puts the fields of a stream together, which may arrive in several frames, and decodes them."""

from typing import NamedTuple

from promptgroup_picker.http2 import frames
from promptgroup_picker.http2.fields import FieldReader
from promptgroup_picker.http2.frames import ErrorCode, Frame, FrameType, Http2Error

MAX_FIELD_BYTES = 16384
"""Most bytes of the fields of one stream, in all their frames: the clients' own fields are in messages."""


class FieldBlock(NamedTuple):
    """The fields of a stream, once all of them have arrived."""

    stream: int
    path: str
    """The call's path; empty for trailers."""
    ends_stream: bool
    cost: float
    """The units that decoding them has cost (`budget`)."""


class FieldBlocks:
    """The fields of one connection's streams: no frame of another kind may come between those of one block."""

    def __init__(self) -> None:
        self._reader = FieldReader()
        self._partial: tuple[int, int, bytearray] | None = None
        """Stream, flags and first bytes of fields that go on in the next frame."""

    @property
    def waiting(self) -> int:
        """Number of bytes of fields that are not whole."""
        return len(self._partial[2]) if self._partial is not None else 0

    def drop(self) -> None:
        """Forget fields that are not whole."""
        self._partial = None

    def check(self, frame: Frame) -> None:
        """Check that a frame may come now.

        Raises:
            Http2Error: fields have begun, and it does not continue them.
        """
        if self._partial is not None and frame.type != FrameType.CONTINUATION:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "fields of a stream are interrupted by another frame")

    def begin(self, frame: Frame) -> FieldBlock | None:
        """Take the first frame of fields; returns them if it is the last, too.

        Raises:
            Http2Error: they are too large, or cannot be decoded.
        """
        return self._take(frame.stream, frame.flags, frames.content(frame))

    def go_on(self, frame: Frame) -> FieldBlock | None:
        """Take another frame of fields; returns them if it is the last.

        Raises:
            Http2Error: it continues none, or with nothing, or they are too large or cannot be decoded.
        """
        if self._partial is None or self._partial[0] != frame.stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a frame continues fields that did not begin")
        if not frame.payload and not frame.flags & frames.END_HEADERS:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "a frame continues fields with nothing")
        _, flags, started = self._partial
        started += frame.payload
        return self._take(frame.stream, flags | frame.flags & frames.END_HEADERS, started)

    def _take(self, stream: int, flags: int, block: bytes | bytearray) -> FieldBlock | None:
        if len(block) > MAX_FIELD_BYTES:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"fields of a stream have more than {MAX_FIELD_BYTES} bytes")
        if not flags & frames.END_HEADERS:
            self._partial = stream, flags, block if isinstance(block, bytearray) else bytearray(block)
            return None
        self._partial = None
        path = self._reader.path(bytes(block))  # also where it is not wanted: each list may change the table
        return FieldBlock(stream, path, bool(flags & frames.END_STREAM), self._reader.cost)
