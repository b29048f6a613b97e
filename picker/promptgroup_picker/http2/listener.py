"""Accepts gateways' connections, and moves bytes between their transports and `ServerConnection`.

Connections have turns, bounded by what their frames cost (`budget`). One whose turn is over is not read until the next.
Of those that wait, the ones whose network owes the least are first, and then those that owe the least themselves, so
that no connection waits for frames that make no calls; equal ones are served in order.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from promptgroup_picker.http2.budget import CREDIT, ROUND, TURN, Budget, Network, forgive
from promptgroup_picker.http2.connection import ServerConnection
from promptgroup_picker.http2.frames import HEADER_BYTES, MAX_FRAME
from promptgroup_picker.http2.stream import Opener
from promptgroup_router.base.logs import fault, fields
from promptgroup_router.proxy.making_room import network_of

log = logging.getLogger("promptgroup.picker")

UNSENT_BYTES = 2**24
"""Bytes that a connection may leave unread before nothing more is read from it."""
IDLE_SECONDS = 3600.0
"""Time after which a connection without a stream is closed: gateways keep theirs open as long as they run."""
PREFACE_SECONDS = 10.0
"""Time limit for a peer to begin to speak HTTP/2."""
STALL_SECONDS = 60.0
"""Time limit for a peer that reads nothing of what is sent to it."""
MAX_CALLS = 2**14
"""Most calls at the same time on all connections of a port."""
MAX_HELD = 2**26
"""Most bytes that all connections of a port hold: parts of frames and messages, and output that is not read."""
LEARN_SECONDS = 5.0
"""Time limit for a peer to acknowledge that a connection drains."""
_STEP = CREDIT / 10
"""Connections that owe as much in these steps have turns in order."""


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
        self.networks: dict[str, Network] = {}
        """The accounts of networks that have connections, or still owe for some."""
        self.calls = 0
        """Calls that are open."""
        self.held = 0
        """Bytes that the connections hold, as far as they were weighed."""
        self.draining = False
        self._waiting: dict[GrpcConnection, None] = {}
        """Connections that have frames to read, in order, and wait for their turn."""
        self._spent = 0.0
        """Units of this round."""
        self._next_round: asyncio.Handle | None = None
        self._ticked = clock()
        self._idle = asyncio.Event()
        self._idle.set()

    def accept(self) -> "GrpcConnection":
        """Return a protocol for a new connection."""
        return GrpcConnection(self)

    def drain(self) -> None:
        """Ask all peers to begin no more calls; those that are open, or on their way, go on."""
        self.draining = True
        for connection in list(self.connections):
            connection.drain()

    def abort(self) -> None:
        """Close all connections at once."""
        for connection in list(self.connections):
            connection.abort()

    def tick(self, now: float) -> None:
        """Close connections that stall, idle or owe too much, and forgive what others owe; called every second."""
        for connection in list(self.connections):
            connection.tick(now)
        budgets = [connection.budget for connection in self.connections] + [
            network.gone for network in self.networks.values()
        ]
        forgive(budgets, now - self._ticked)
        self._ticked = now
        self.networks = {name: network for name, network in self.networks.items() if not network.settled}
        for connection in list(self.connections):
            connection.go_on()

    def queue(self, connection: "GrpcConnection") -> None:
        """Give a connection its turn: now, unless others wait or have had enough."""
        if self._waiting or self._spent >= ROUND:
            self._wait(connection)
        else:
            self._turn(connection)

    def _turn(self, connection: "GrpcConnection") -> None:
        self._spent += connection.take_turn()
        if connection.ready:
            self._wait(connection)

    def _wait(self, connection: "GrpcConnection") -> None:
        self._waiting[connection] = None
        if self._next_round is None:
            self._next_round = asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        """Give turns to those that wait, for as long as a round lasts."""
        self._next_round, self._spent = None, 0.0
        while self._waiting and self._spent < ROUND:
            connection = min(self._waiting, key=lambda item: (item.account.owed // _STEP, item.budget.owed // _STEP))
            del self._waiting[connection]
            if connection.ready:
                self._turn(connection)
        if self._waiting and self._next_round is None:
            self._next_round = asyncio.get_running_loop().call_soon(self._round)

    async def wait_closed(self) -> None:
        """Wait until there is no connection."""
        await self._idle.wait()

    def add(self, connection: "GrpcConnection") -> None:
        """Add a connection that was opened."""
        self.connections.add(connection)
        self._idle.clear()

    def make_room(self, newcomer: Network) -> bool:
        """Return True if another connection is accepted; an open one may have been closed for it.

        Connections without a call give way: of the network with the most connections the one that is idle for the
        longest. Where all have calls, a network that has more than half of all connections gives way to others.
        """
        if len(self.connections) < self.max_connections:
            return True
        leaving = min(
            (connection for connection in self.connections if connection.idle),
            key=lambda item: (-item.account.open, item.seen),
            default=None,
        )
        if leaving is None:
            crowd = [
                connection for connection in self.connections if connection.account.open > self.max_connections / 2
            ]
            leaving = min(crowd, key=lambda item: item.seen) if crowd and crowd[0].account is not newcomer else None
        if leaving is None:
            return False
        self.remove(leaving)
        leaving.abort()
        return True

    def relieve(self) -> None:
        """Close connections until all hold no more than they may: of the network that holds the most the heaviest."""
        for connection in self.connections:
            connection.weigh()
        while self.held > self.max_held and self.connections:
            of_networks: Counter[Network] = Counter()
            for connection in self.connections:
                of_networks[connection.account] += connection.held
            heaviest = max(self.connections, key=lambda connection: (of_networks[connection.account], connection.held))
            self.remove(heaviest)
            heaviest.abort()

    def remove(self, connection: "GrpcConnection") -> None:
        """Remove a connection that was closed."""
        if connection in self.connections:
            self.connections.remove(connection)
            self.held -= connection.held
            self.calls -= connection.calls
            self._waiting.pop(connection, None)
            connection.account.end(connection.budget)
        if not self.connections:
            self._idle.set()


class GrpcConnection(asyncio.Protocol):
    """One connection of a gateway."""

    __slots__ = (
        "_drained_at",
        "_http2",
        "_listener",
        "_paused",
        "_receiving",
        "_sent",
        "_stalled",
        "_transport",
        "_unsent",
        "account",
        "calls",
        "held",
        "seen",
    )

    def __init__(self, listener: GrpcListener) -> None:
        self._listener = listener
        self._http2 = ServerConnection(listener.opener, listener.max_message, self.flush, _log_fault)
        self._transport: asyncio.Transport
        self.account: Network
        """That of its network."""
        self._receiving = False
        self._stalled = False
        """True while the peer does not read what is sent to it."""
        self._paused = False
        """True while nothing is read."""
        self.seen = listener.clock()
        """Time at which something was last received."""
        self._sent = self.seen
        """Time at which the peer last read something, or had nothing to read."""
        self._unsent = 0
        self.held = 0
        """Bytes that it held when it was last weighed."""
        self.calls = 0
        """Calls that it had then."""
        self._drained_at: float | None = None
        """The time at which a drain was announced to the peer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream has no other
        """Say the settings."""
        self._transport = transport
        name = transport.get_extra_info("peername")
        peer = name[0] if isinstance(name, tuple) else ""
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        network = network_of(peer)
        account = self._listener.networks.get(network) or Network()
        if not self._listener.make_room(account):
            transport.abort()
            return
        self.account = self._listener.networks[network] = account
        self._http2.admit(peer, account.begin())
        self._listener.add(self)
        if self._listener.draining:
            self.drain()
        self._write()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and write all that they cause at once, when it is this connection's turn."""
        self.seen = self._listener.clock()
        self._http2.keep(data)
        if self._paused:  # they were on their way
            self.weigh()
        self.go_on()

    def take_turn(self) -> float:
        """Read frames for one turn. Return the units that they have cost."""
        self._receiving = True
        self._http2.full = self._listener.calls >= MAX_CALLS
        try:
            return self._http2.read(TURN)
        finally:
            self._receiving = False
            self._write()
            self._regulate()

    @property
    def budget(self) -> Budget:
        """The account of its costs."""
        return self._http2.budget

    @property
    def ready(self) -> bool:
        """True if it has frames to read, and may have another turn."""
        return self._http2.more and not self._stalled and not self.budget.overdrawn

    def go_on(self) -> None:
        """Request a turn if there is something to read, and nothing prevents it."""
        if self.ready:
            self._listener.queue(self)
        self._regulate()

    def _regulate(self) -> None:
        """Read from the transport only while nothing waits here."""
        waits = self._stalled or self._http2.more or self.budget.overdrawn
        if waits != self._paused and not self._transport.is_closing():
            self._paused = waits
            if waits:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def eof_received(self) -> None:
        """Close: HTTP/2 has no half-closed connection."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls."""
        self._listener.remove(self)
        self._http2.lost()

    def pause_writing(self) -> None:
        """Read nothing while the peer does not read."""
        self._stalled = True
        self._regulate()

    def resume_writing(self) -> None:
        """Read again."""
        self._stalled = False
        self.go_on()

    @property
    def idle(self) -> bool:
        """True if it has no call."""
        return not self._http2.streams.open

    def drain(self) -> None:
        """Take no more calls once the peer has learned that, and close when there is none."""
        self._drained_at = self._listener.clock()
        self._http2.drain()
        self._write()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def weigh(self) -> None:
        """Report the size of the connection's buffers to the listener."""
        held, calls = self._http2.held + self._transport.get_write_buffer_size(), len(self._http2.streams.open)
        self._listener.held += held - self.held
        self._listener.calls += calls - self.calls
        self.held, self.calls = held, calls

    def tick(self, now: float) -> None:
        """Close if the peer reads nothing, has gone silent without a call, or does not acknowledge a drain."""
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent or not unsent:
            self._sent = now
        self._unsent = unsent
        idle = self.idle and now - self.seen > (IDLE_SECONDS if self._http2.begun else PREFACE_SECONDS)
        if idle or now - self._sent > STALL_SECONDS or self._http2.closed:
            self._transport.abort()
        elif self._drained_at is not None and now - self._drained_at > LEARN_SECONDS:
            self._http2.refuse()
        if self._http2.tick():
            peer = self._http2.streams.peer
            log.warning("connection closed: its frames cost more than its calls", extra=fields(peer=peer))
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
