"""gRPC's messages within a stream: each has a length before it (gRPC over HTTP/2). Does no I/O."""

import enum
from collections.abc import Iterator

PREFIX_BYTES = 5


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

    __slots__ = ("_buffer", "_most")

    def __init__(self, most: int) -> None:
        self._buffer = bytearray()
        self._most = most

    @property
    def waiting(self) -> int:
        """Number of bytes that are no whole message yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that the received bytes complete.

        Raises:
            GrpcError: a message is compressed or too large.
        """
        buffer = self._buffer
        if not buffer and len(data) >= PREFIX_BYTES and int.from_bytes(data[1:5], "big") == len(data) - PREFIX_BYTES:
            # one message in one frame, as nearly all are
            self._check(data)
            yield data[PREFIX_BYTES:]
            return
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= PREFIX_BYTES:
                end = at + PREFIX_BYTES + self._check(buffer[at : at + PREFIX_BYTES])
                if len(buffer) < end:
                    return
                message = bytes(buffer[at + PREFIX_BYTES : end])
                at = end
                yield message
        finally:
            del buffer[:at]

    def _check(self, prefix: bytes | bytearray) -> int:
        """Return the length that a prefix tells."""
        if prefix[0]:
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, "a message is compressed: send it as it is")
        length = int.from_bytes(prefix[1:5], "big")
        if length > self._most:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"a message has {length} bytes, at most {self._most}")
        return length


def framed(message: bytes) -> bytes:
    """Return a message with its length before it."""
    return b"\0" + len(message).to_bytes(4, "big") + message
