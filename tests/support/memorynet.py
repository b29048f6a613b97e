"""Connections in memory: transports that keep bytes as a kernel and an event loop do, moved by a test step by step."""

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Buffers:
    """The sizes of a connection's buffers, in bytes."""

    high: int = 65536
    """The loop's buffer pauses its protocol above this, as in uvloop."""
    low: int = 16384
    kernel: int = 20_000
    """What a kernel takes for a peer that does not read."""
    one_read: int = 262144
    """Most bytes that a protocol gets at once, as in uvloop."""


SMALL = Buffers(high=4096, low=1024, kernel=1500, one_read=8192)
"""Buffers that short messages fill: a test reaches their edges soon."""


class MemoryTransport:
    """The router's end of a connection; the test holds the other end."""

    def __init__(
        self,
        protocol,
        later: Callable[[Callable[[], None]], object],
        *,
        buffers: Buffers | None = None,
        options: socket.socket | None = None,
    ) -> None:
        """Start a connection.

        Args:
            protocol: hears of it.
            later: calls back in the next turn of the loop.
            buffers: how much it holds.
            options: a real socket, which takes the options that the router sets: so a reset is seen.
        """
        self.protocol = protocol
        self.buffers = buffers or Buffers()
        self._later = later
        self._options = options
        self.out = bytearray()
        """Bytes in the router's own buffer."""
        self.wire = bytearray()
        """Bytes in the kernel, for the peer to read."""
        self.incoming = bytearray()
        """Bytes from the peer that the router has not read."""
        self.reading = True
        self.paused = False
        self.written_while_paused = 0
        """Bytes that the router wrote although it was asked to stop."""
        self.closing = False
        self.lost = False
        self.closed = False
        """Whether the protocol knows that the connection is lost."""
        self.was_reset = False
        """Whether the peer sees a reset."""
        self.ended = False
        """Whether the peer sees an end after the bytes on the wire."""
        self.eof_asked = False
        self._peer_ended = False
        self._peer_broke = False

    # --- For the protocol ----------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert isinstance(data, bytes | bytearray | memoryview)
        if self.closed:
            raise RuntimeError("the handler is closed")  # as uvloop has it
        if self.closing:
            return
        assert not self.eof_asked, "bytes after the end"
        if self.paused:
            self.written_while_paused += len(data)
        self.out += data
        if self._peer_broke:
            self._lose_to_peer()
            return
        self._flush()
        if len(self.out) > self.buffers.high and not self.paused:
            self.paused = True
            self.protocol.pause_writing()

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof_asked = True
        self._flush()

    def get_write_buffer_size(self) -> int:
        return len(self.out)

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self._options if name == "socket" else None

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True
        if self._peer_broke:
            self._lose_to_peer()

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._flush()

    def abort(self) -> None:
        if self._takes_linger():
            self.was_reset = True
            self.wire.clear()
        if not self.lost:
            self.closing = True
            self.out.clear()
            self._lose(None)

    def vanish(self) -> None:
        """Close without a word to the protocol, as uvloop does where opening a connection is cancelled too late."""
        self.closing = self.lost = self.ended = self.closed = True
        self.out.clear()

    # --- For the test --------------------------------------------------------------------------------------------

    def read(self, size: int) -> bytes:
        """What the peer reads."""
        if self.was_reset:
            return b""
        data = bytes(self.wire[:size])
        del self.wire[:size]
        self._flush()
        if self.paused and len(self.out) <= self.buffers.low and not self.lost:
            self.paused = False
            self.protocol.resume_writing()
        return data

    def send(self, data: bytes) -> None:
        """What the peer sends."""
        if self.lost and data:
            # the kernel answers bytes for a socket that is closed with a reset, which takes what was not read
            self.was_reset = True
        else:
            self.incoming += data

    def deliver(self, size: int = 2**30) -> bool:
        """Let the protocol read what has come; whether there was anything."""
        if self.closing or not self.reading:
            return False
        if not self.incoming:
            return self._deliver_end()
        data = bytes(self.incoming[: min(size, self.buffers.one_read)])
        del self.incoming[: len(data)]
        self.protocol.data_received(data)
        return True

    def end(self) -> None:
        """The peer sends no more; the protocol hears of it once it has read everything."""
        self._peer_ended = True
        self.deliver()

    def break_off(self) -> None:
        """The peer resets the connection; a loop that neither reads nor writes it hears of it when it does."""
        if self.lost:
            return
        self._peer_broke = True
        self.incoming.clear()
        self.wire.clear()
        if self.reading or self.out:
            self._lose_to_peer()

    def _deliver_end(self) -> bool:
        if not self._peer_ended:
            return False
        self._peer_ended = False
        if not self.protocol.eof_received():
            self.close()
        return True

    def _flush(self) -> None:
        room = self.buffers.kernel - len(self.wire)
        self.wire += self.out[: max(0, room)]
        del self.out[: max(0, room)]
        if not self.out and self.closing and not self.lost:
            # closing on bytes that were not read resets the connection
            self.was_reset = self.was_reset or bool(self.incoming)
            self._lose(None)
        elif not self.out and self.eof_asked:
            self.ended = True

    def _lose_to_peer(self) -> None:
        if not self.lost:
            self.closing = True
            self.out.clear()
            self._lose(ConnectionResetError())

    def _lose(self, error: Exception | None) -> None:
        self.lost = self.ended = True

        def tell() -> None:
            self.protocol.connection_lost(error)
            self.closed = True

        self._later(tell)

    def _takes_linger(self) -> bool:
        """Whether the router has asked for a reset on close (SO_LINGER with no time)."""
        if self._options is None:
            return False
        on, seconds = struct.unpack("ii", self._options.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        if on:
            self._options.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        return bool(on) and seconds == 0
