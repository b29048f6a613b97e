"""gRPC's messages within a stream: each has a length before it (gRPC over HTTP/2)."""

import enum
from collections.abc import Callable, Iterator

PREFIX_BYTES = 5
LARGE = 2**17
"""The length of a larger message is reported before the message is buffered."""


class GrpcStatus(enum.IntEnum):
    """The end of a call."""

    OK = 0
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


class GrpcError(Exception):
    """A call that cannot go on; the message names what is wrong."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class MessageReader:
    """Splits the bytes of a stream into messages."""

    __slots__ = ("_announced", "_begun", "_buffer", "_most")

    def __init__(self, most: int, begun: Callable[[int], None] = lambda _: None) -> None:
        """Begin with nothing read.

        Args:
            most: the most bytes of a message.
            begun: called with the length of each message above `LARGE`, once and before it is buffered; its exception
                ends the stream.
        """
        self._buffer = bytearray()
        self._most = most
        self._begun = begun
        self._announced = False
        """True once the length of the incomplete message was reported."""

    @property
    def waiting(self) -> int:
        """Number of bytes that are no whole message yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that the received bytes complete.

        Raises:
            GrpcError: a message is compressed or too large, or `begun` has refused it.
        """
        buffer = self._buffer
        if not buffer and len(data) >= PREFIX_BYTES and int.from_bytes(data[1:5], "big") == len(data) - PREFIX_BYTES:
            # one message in one frame, as nearly all are
            self._check(data)
            self._announced = False
            yield data[PREFIX_BYTES:]
            return
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= PREFIX_BYTES:
                end = at + PREFIX_BYTES + self._check(buffer[at : at + PREFIX_BYTES])
                if len(buffer) < end:
                    return
                with memoryview(buffer) as view:  # a slice of the buffer itself would be another copy
                    message = bytes(view[at + PREFIX_BYTES : end])
                at = end
                self._announced = False
                yield message
        finally:
            del buffer[:at]

    def _check(self, prefix: bytes | bytearray) -> int:
        """Return the length in a prefix."""
        if prefix[0]:
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, "a message is compressed: send it as it is")
        length = int.from_bytes(prefix[1:5], "big")
        if length > LARGE and not self._announced:
            self._announced = True
            self._begun(length)
        if length > self._most:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"a message has {length} bytes, at most {self._most}")
        return length


def framed(message: bytes) -> bytes:
    """Return a message with its length before it."""
    return b"\0" + len(message).to_bytes(4, "big") + message
