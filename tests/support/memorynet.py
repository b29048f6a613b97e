"""Connections in memory: transports that keep bytes as a kernel and an event loop do, moved by a test step by step."""

from collections.abc import Callable

HIGH_WATER, LOW_WATER = 65536, 16384
"""As in uvloop."""
KERNEL = 20_000
"""Bytes that a kernel takes for a peer that does not read."""
ONE_READ = 262144
"""Most bytes that a protocol gets at once, as in uvloop."""


class MemoryTransport:
    """The router's end of a connection; the test holds the other end."""

    def __init__(self, protocol, later: Callable[[Callable[[], None]], None]) -> None:
        self.protocol = protocol
        self._later = later
        self.out = bytearray()
        """Bytes in the router's own buffer."""
        self.wire = bytearray()
        """Bytes in the kernel, for the peer to read."""
        self.incoming = bytearray()
        """Bytes from the peer that the router has not read."""
        self.reading = True
        self.paused = False
        self.closing = False
        self.lost = False
        self.was_reset = False
        """Whether the peer sees a reset."""
        self.ended = False
        """Whether the peer sees an end after the bytes on the wire."""
        self._eof_asked = False

    # --- For the protocol ----------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes | bytearray)
        if self.closing:
            return
        assert not self._eof_asked, "bytes after the end"
        self.out += data
        self._flush()
        if len(self.out) > HIGH_WATER and not self.paused:
            self.paused = True
            self.protocol.pause_writing()

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def write_eof(self) -> None:
        self._eof_asked = True
        self._flush()

    def get_write_buffer_size(self) -> int:
        return len(self.out)

    def get_extra_info(self, name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._flush()

    def abort(self) -> None:
        if not self.lost:
            self.closing = True
            self.out.clear()
            self._lose(None)

    # --- For the test --------------------------------------------------------------------------------------------

    def read(self, size: int) -> bytes:
        """What the peer reads."""
        if self.was_reset:
            return b""
        data = bytes(self.wire[:size])
        del self.wire[:size]
        self._flush()
        if self.paused and len(self.out) <= LOW_WATER and not self.lost:
            self.paused = False
            self.protocol.resume_writing()
        return data

    def deliver(self, size: int = ONE_READ) -> bool:
        """Let the protocol read what has come; whether there was anything."""
        if self.closing or not self.reading or not self.incoming:
            return False
        data = bytes(self.incoming[: min(size, ONE_READ)])
        del self.incoming[: len(data)]
        self.protocol.data_received(data)
        return True

    def end(self) -> None:
        """The peer sends no more."""
        if self.reading and not self.closing:
            self.deliver()
        if not self.closing and not self.protocol.eof_received():
            self.close()

    def break_off(self) -> None:
        """The peer resets the connection."""
        if not self.lost:
            self.closing = True
            self.out.clear()
            self.wire.clear()
            self._lose(ConnectionResetError())

    def _flush(self) -> None:
        room = KERNEL - len(self.wire)
        self.wire += self.out[:room]
        del self.out[: max(0, room)]
        if not self.out and self.closing and not self.lost:
            # closing on bytes that were not read resets the connection
            self.was_reset = self.was_reset or bool(self.incoming)
            self._lose(None)
        elif not self.out and self._eof_asked:
            self.ended = True

    def _lose(self, error: Exception | None) -> None:
        self.lost = self.ended = True
        self._later(lambda: self.protocol.connection_lost(error))
