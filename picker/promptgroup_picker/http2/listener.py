"""Accepts gateways' connections, and moves bytes between their transports and `ServerConnection`."""

import asyncio
import logging
from collections.abc import Callable

from promptgroup_picker.http2.connection import Opener, ServerConnection
from promptgroup_picker.http2.frames import HEADER_BYTES, MAX_FRAME
from promptgroup_router.base.logs import fault

log = logging.getLogger("promptgroup.picker")

UNSENT_BYTES = 2**24
"""Bytes that a connection may leave unread before nothing more is read from it."""
IDLE_SECONDS = 3600.0
"""Time after which a connection without a stream is closed: gateways keep theirs as long as they live."""
PREFACE_SECONDS = 10.0
"""Time limit for a peer to begin to speak HTTP/2."""
STALL_SECONDS = 60.0
"""Time limit for a peer that reads nothing of what is sent to it."""
MAX_CALLS = 2**14
"""Most calls at the same time on all connections of a port."""
MAX_HELD = 2**26
"""Most bytes that all connections of a port hold: parts of frames and messages, and output that is not read."""
LEARN_SECONDS = 5.0
"""Time limit for a peer to say that it has read that a connection drains."""


class GrpcListener:
    """All connections of one port."""

    def __init__(
        self,
        opener: Opener,
        clock: Callable[[], float],
        *,
        max_message: int,
        max_connections: int = 1000,
        max_held: int = MAX_HELD,
    ) -> None:
        self.opener = opener
        self.clock = clock
        self.max_message = max_message
        self.max_connections = max_connections
        self.max_held = max_held
        self.connections: set[GrpcConnection] = set()
        self.calls = 0
        """Calls that are open."""
        self.held = 0
        """Bytes that the connections hold, as far as they were weighed."""
        self.draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    def accept(self) -> "GrpcConnection":
        """Return a protocol for a new connection."""
        return GrpcConnection(self)

    def drain(self) -> None:
        """Ask all peers to begin no more calls; those that are open, or on their way, go on."""
        self.draining = True
        for each in list(self.connections):
            each.drain()

    def abort(self) -> None:
        """Close all connections at once."""
        for each in list(self.connections):
            each.abort()

    def tick(self, now: float) -> None:
        """Close connections that stall or idle; called every second."""
        for each in list(self.connections):
            each.tick(now)

    async def wait_closed(self) -> None:
        """Wait until there is no connection."""
        await self._idle.wait()

    def add(self, connection: "GrpcConnection") -> None:
        """Add a connection that was opened."""
        self.connections.add(connection)
        self._idle.clear()

    def make_room(self) -> bool:
        """Return True if there is room for another connection; the one that is idle for the longest gives way."""
        if len(self.connections) < self.max_connections:
            return True
        idle = min((each for each in self.connections if each.idle), key=lambda each: each.seen, default=None)
        if idle is None:
            return False
        self.remove(idle)
        idle.abort()
        return True

    def relieve(self) -> None:
        """Close the connections that hold the most until all hold no more than they may."""
        for each in self.connections:
            each.weigh()
        while self.held > self.max_held and self.connections:
            heaviest = max(self.connections, key=lambda each: each.held)
            self.remove(heaviest)
            heaviest.abort()

    def remove(self, connection: "GrpcConnection") -> None:
        """Remove a connection that was closed."""
        if connection in self.connections:
            self.connections.remove(connection)
            self.held -= connection.held
            self.calls -= connection.calls
        if not self.connections:
            self._idle.set()


class GrpcConnection(asyncio.Protocol):
    """One connection of a gateway."""

    __slots__ = (
        "_asked",
        "_http2",
        "_listener",
        "_receiving",
        "_sent",
        "_transport",
        "_unsent",
        "calls",
        "held",
        "seen",
    )

    def __init__(self, listener: GrpcListener) -> None:
        self._listener = listener
        self._http2 = ServerConnection(listener.opener, listener.max_message, self.flush, _log_fault)
        self._transport: asyncio.Transport
        self._receiving = False
        self.seen = listener.clock()
        """Time at which something was last received."""
        self._sent = self.seen
        """Time at which the peer last read something, or had nothing to read."""
        self._unsent = 0
        self.held = 0
        """Bytes that it held when it was last weighed."""
        self.calls = 0
        """Calls that it had then."""
        self._asked: float | None = None
        """The time at which the peer was asked to begin no more calls."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream has no other
        """Say the settings."""
        self._transport = transport
        name = transport.get_extra_info("peername")
        self._http2.peer = name[0] if isinstance(name, tuple) else ""
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        if not self._listener.make_room():
            transport.abort()
            return
        self._listener.add(self)
        if self._listener.draining:
            self.drain()
        self._write()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and write all that they cause at once."""
        self.seen = self._listener.clock()
        self._receiving = True
        self._http2.full = self._listener.calls >= MAX_CALLS
        try:
            self._http2.receive(data)
        finally:
            self._receiving = False
        self._write()

    def eof_received(self) -> None:
        """Close: HTTP/2 has no half-closed connection."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls."""
        self._listener.remove(self)
        self._http2.lost()

    def pause_writing(self) -> None:
        """Read nothing while the peer does not read."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def idle(self) -> bool:
        """True if it has no call."""
        return not self._http2.streams

    def drain(self) -> None:
        """Take no more calls once the peer has learned that, and close when there is none."""
        self._asked = self._listener.clock()
        self._http2.drain()
        self._write()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def weigh(self) -> None:
        """Tell the listener what the connection holds."""
        held, calls = self._http2.held + self._transport.get_write_buffer_size(), len(self._http2.streams)
        self._listener.held += held - self.held
        self._listener.calls += calls - self.calls
        self.held, self.calls = held, calls

    def tick(self, now: float) -> None:
        """Close if the peer reads nothing, has gone silent without a call, or does not say that it knows of a drain."""
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent or not unsent:
            self._sent = now
        self._unsent = unsent
        idle = self.idle and now - self.seen > (IDLE_SECONDS if self._http2.begun else PREFACE_SECONDS)
        if idle or now - self._sent > STALL_SECONDS:
            self._transport.abort()
        elif self._asked is not None and now - self._asked > LEARN_SECONDS:
            self._http2.refuse()
        self._http2.tick()
        self._write()

    def flush(self) -> None:
        """Write what was sent outside of `data_received`."""
        if not self._receiving:
            self._write()

    def _write(self) -> None:
        if self._transport.is_closing():
            return
        if self._http2.has_output:
            out = self._http2.take()
            if sum(map(len, out)) > MAX_FRAME + HEADER_BYTES:
                self._transport.writelines(out)
            else:
                self._transport.write(b"".join(out))
        if self._http2.closed or self._http2.drained:
            self._transport.close()
        if self in self._listener.connections:
            self.weigh()
            if self._listener.held > self._listener.max_held:
                self._listener.relieve()


def _log_fault(error: Exception) -> None:
    log.error("a call failed", extra=fault(error))
