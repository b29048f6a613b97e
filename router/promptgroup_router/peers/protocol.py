"""The exchange between routers: datagrams in, datagrams out, and the clock passed in. Pure.

Every tick a router tells each live peer where it has placed sessions and what load it has on each replica. All of it
may be lost: a note is outdated by the next turn, a load by the next tick. Nothing is acknowledged or sent again.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Protocol

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.peers.catch_up import SnapshotClient, SnapshotServer
from promptgroup_router.peers.datagram import RECORDS, Datagram, DatagramKind, Refusal, decode, encode
from promptgroup_router.peers.members import Address, Arrival, Membership, Peer
from promptgroup_router.policy.gossip import LoadReport, PlacementReport

HELLO_SECONDS = 1.0
"""Between heartbeats to every address where a router may be: five of them are missed before a peer is given up."""
DATAGRAMS_A_TICK = 16
"""Most that a peer is sent in one tick beside a copy, half of them for loads, half for notes: at 20 ticks a second
6,000 placements a second, more than a router serves. Past 300 busy replicas each load is told every few ticks."""
WAITING_NOTES = 20_000
"""Notes kept for later ticks when a tick has too many; then the oldest go."""
MAX_CANDIDATES = 512
"""Addresses that heartbeats go to: all ports of a range at every address of every name."""


class GossipHandler(Protocol):
    """The policy: says what this router does, and listens to what others do."""

    def export(self, now: float) -> tuple[list[PlacementReport], list[LoadReport]]:
        """What was placed since the last call, and the load of every replica that has some or had some then."""

    def merge(self, sender: int, notes: Sequence[PlacementReport], loads: Sequence[LoadReport], now: float) -> None:
        """A peer's notes and loads; notes may come twice and out of order."""

    def restore(self, notes: Sequence[PlacementReport], now: float) -> None:
        """A part of a peer's records, the newest first."""

    def drop_peer(self, sender: int) -> None:
        """A peer is gone: its load counts no more."""

    def snapshot(self) -> Iterator[PlacementReport]:
        """All that a router that starts should copy, newest first; read over several calls."""


class GossipProtocol:
    """This router's end of the exchange."""

    def __init__(self, handler: GossipHandler, metrics: Metrics, sender: int) -> None:
        self.key: bytes | None = None
        """Seals datagrams. Without it nothing is sent and nothing accepted."""
        self._handler = handler
        self._metrics = metrics
        self._sender = sender
        self._sequence = 0
        self._candidates: list[Address] = []
        self._membership = Membership()
        self._snapshot_client = SnapshotClient()
        self._snapshot_server = SnapshotServer()
        self._notes: deque[PlacementReport] = deque()
        self._loads: dict[int, LoadReport] = {}
        self._hello_at = 0.0

    def aim(self, candidates: Collection[Address]) -> None:
        """Where routers may be, this one among them."""
        self._candidates = list(islice(dict.fromkeys(candidates), MAX_CANDIDATES))

    # --- In ------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, address: Address, now: float, wall: float) -> Refusal | None:
        """Take in a datagram; why it was dropped, if it was."""
        metrics = self._metrics
        metrics.peer_datagrams.add("received")
        metrics.peer_bytes.add("received", amount=len(data))
        refusal = self._receive(data, address, now, wall)
        if refusal is not None:
            metrics.peer_dropped.add(refusal.value)
        return refusal

    def _receive(self, data: bytes, address: Address, now: float, wall: float) -> Refusal | None:
        if self.key is None:
            return Refusal.NO_KEY
        datagram = decode(data, self.key, wall)
        if isinstance(datagram, Refusal):
            return datagram
        sender = datagram.sender
        if sender == self._sender:
            return None  # its own heartbeat, sent to an address that is its own
        arrival = self._membership.receive(sender, datagram.sequence, address, now)
        if arrival is Arrival.REPLAYED:
            return Refusal.REPLAYED
        if arrival is Arrival.CROWD:
            return Refusal.CROWD
        if datagram.kind is DatagramKind.ASK and arrival is Arrival.NEWEST:
            self._snapshot_server.start(sender, self._handler.snapshot())
        if datagram.notes:
            self._metrics.peer_notes.add("received", amount=len(datagram.notes))
        if datagram.kind is DatagramKind.COPY:
            self._snapshot_client.receive(sender, datagram.notes, now)
            self._handler.restore(datagram.notes, now)
        elif datagram.notes or datagram.loads:
            loads = datagram.loads if arrival is Arrival.NEWEST else ()
            self._handler.merge(sender, datagram.notes, loads, now)
        return None

    # --- Out -----------------------------------------------------------------------------------------------------

    def tick(self, now: float, wall: float) -> list[tuple[bytes, Address]]:
        """What to send at this moment."""
        for sender in self._membership.expire(now):
            self._snapshot_server.stop(sender)
            self._handler.drop_peer(sender)
        live = self._membership.live()
        self._metrics.peers.replace({(): len(live)})
        self._collect(now, wanted=bool(live))
        if self.key is None:
            return []
        return [*self._hellos(self.key, live, now, wall), *self._data(self.key, live, now, wall)]

    def _collect(self, now: float, *, wanted: bool) -> None:
        notes, loads = self._handler.export(now)
        if not wanted:
            self._notes.clear()
            self._loads.clear()
            return
        self._notes.extend(notes)
        while len(self._notes) > WAITING_NOTES:
            self._notes.popleft()
            self._metrics.peer_notes_dropped.add()
        for load in loads:
            self._loads[load.member] = load  # keeps its place in the queue, with the newest figures

    def _hellos(self, key: bytes, live: Sequence[Peer], now: float, wall: float) -> Iterator[tuple[bytes, Address]]:
        targets = dict.fromkeys([*self._candidates, *(peer.address for peer in live)])
        if not targets or now < self._hello_at:
            return
        self._hello_at = now + HELLO_SECONDS
        data = self._encoded(key, DatagramKind.HELLO, wall)
        for address in targets:
            yield data, address

    def _data(self, key: bytes, live: Sequence[Peer], now: float, wall: float) -> Iterator[tuple[bytes, Address]]:
        half = DATAGRAMS_A_TICK // 2 * RECORDS
        members = list(islice(self._loads, half))
        loads = [self._loads.pop(member) for member in members]
        notes = [self._notes.popleft() for _ in range(min(half, len(self._notes)))]
        while loads or notes:
            some_loads = loads[:RECORDS]
            some_notes = notes[: RECORDS - len(some_loads)]
            del loads[: len(some_loads)], notes[: len(some_notes)]
            data = self._encoded(key, DatagramKind.TICK, wall, some_notes, some_loads)
            self._metrics.peer_notes.add("sent", amount=len(some_notes) * len(live))
            for peer in live:
                yield data, peer.address
        addresses = {peer.sender: peer.address for peer in live}
        for sender, part in self._snapshot_server.next_parts():
            self._metrics.peer_notes.add("sent", amount=len(part))
            yield self._encoded(key, DatagramKind.COPY, wall, part), addresses[sender]
        asked = self._snapshot_client.next_peer(live, now)
        if asked is not None:
            yield self._encoded(key, DatagramKind.ASK, wall), asked.address

    def _encoded(
        self,
        key: bytes,
        kind: DatagramKind,
        wall: float,
        notes: Sequence[PlacementReport] = (),
        loads: Sequence[LoadReport] = (),
    ) -> bytes:
        self._sequence += 1
        return encode(Datagram(kind, self._sender, self._sequence, wall, notes, loads), key)
