"""Runs the exchange between routers: datagrams in, datagrams out.

In every tick a router sends each live peer the placements of sessions and its load on each replica. Any datagram may
be lost: the next turn replaces a placement, the next tick replaces a load, and a load that no tick replaces expires.
Nothing is acknowledged.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Protocol

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.callers.account import SpendReport
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.peers.catch_up import SnapshotClient, SnapshotServer
from promptgroup_router.peers.datagram import PREFIXES, RECORDS, SPENDS, Datagram, DatagramKind, Refusal, decode, encode
from promptgroup_router.peers.members import Address, Arrival, Membership, Peer
from promptgroup_router.policy.gossip import LoadReport, PlacementReport, PrefixReport
from promptgroup_router.rings.ids import MemberHash

HELLO_SECONDS = 1.0
"""Seconds between heartbeats to every address at which a router may listen. A peer counts as dead after five are
missed."""
DATAGRAMS_A_TICK = 16
"""Most datagrams that a peer is sent in one tick in addition to a copy, half of them for loads, half for placements. At
20 ticks a second that is 4,400 placements a second, more than a router serves. With more than 220 busy replicas each
load is sent every few ticks."""
WAITING_PLACEMENTS = 20_000
"""Most placements queued for later ticks when a tick has too many; beyond that the oldest are dropped."""
PREFIX_DATAGRAMS_A_TICK = 8
"""Most further datagrams, of prefixes, that a peer is sent in one tick: some 10,000 reports a second, 190 KB."""
WAITING_PREFIXES = 20_000
"""Most reports of prefixes queued for later ticks; beyond that the oldest are dropped."""
MAX_CANDIDATES = 512
"""Most addresses that heartbeats are sent to: all ports of a range at every address of every name."""


class GossipHandler(Protocol):
    """The policy, which exports the state of this router and merges that of its peers."""

    def on_urgent(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever there is something that should be exported before the next tick."""

    def export(self, now: float) -> tuple[list[PlacementReport], list[LoadReport]]:
        """Return the placements since the last call, and the loads of replicas that have, or recently had, requests."""

    def merge(
        self, sender: int, placements: Sequence[PlacementReport], loads: Sequence[LoadReport], now: float
    ) -> None:
        """Merge the placements and loads of a peer; placements may arrive twice and out of order."""

    def export_prefixes(self) -> list[PrefixReport]:
        """Return the prefixes of the requests that were sent to replicas since the last call."""

    def merge_prefixes(self, prefixes: Sequence[PrefixReport]) -> None:
        """Merge the prefixes of a peer, which may arrive twice and out of order."""

    def restore(self, placements: Sequence[PlacementReport], now: float) -> None:
        """Restore a part of a peer's placements, the newest first."""

    def expire_loads(self, now: float) -> None:
        """Drop the loads that peers have not reported for too long."""

    def drop_peer(self, sender: int) -> None:
        """Drop the load of a peer that has left."""

    def snapshot(self) -> Iterator[PlacementReport]:
        """Return all placements that a starting router should copy, the newest first; consumed over several ticks."""


class GossipProtocol:
    """This router's end of the exchange."""

    def __init__(self, handler: GossipHandler, metrics: Metrics, sender: int, limiter: Limiter | None = None) -> None:
        self.key: bytes | None = None
        """Key that authenticates datagrams. Without it nothing is sent and nothing is accepted."""
        self._handler = handler
        self._metrics = metrics
        metrics.peers.replace({(): 0})  # the exchange has begun, without a peer so far
        self._limiter = limiter
        self._sender = sender
        self._sequence = 0
        self._candidates: list[Address] = []
        self._membership = Membership()
        self._snapshot_client = SnapshotClient()
        self._snapshot_server = SnapshotServer()
        self._placements: deque[PlacementReport] = deque()
        self._prefixes: deque[PrefixReport] = deque(maxlen=WAITING_PREFIXES)
        self._loads: dict[MemberHash, LoadReport] = {}
        self._hello_at = 0.0

    @property
    def own(self) -> int:
        """This router's number among its peers."""
        return self._sender

    def live(self) -> list[Peer]:
        """Return the live peers."""
        return self._membership.live() if self.key is not None else []

    def aim(self, candidates: Collection[Address]) -> None:
        """Set the addresses at which routers may listen, including this one's."""
        self._candidates = list(islice(dict.fromkeys(candidates), MAX_CANDIDATES))

    # --- In ------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, address: Address, now: float, wall: float) -> Refusal | None:
        """Process a received datagram. Return the reason if it was dropped."""
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
            return None  # this router's own heartbeat, sent to one of its own addresses
        arrival = self._membership.receive(sender, datagram.sequence, address, now)
        if arrival is Arrival.REPLAYED:
            return Refusal.REPLAYED
        if arrival is Arrival.CROWD:
            return Refusal.CROWD
        if datagram.kind is DatagramKind.ASK and arrival is Arrival.NEWEST:
            self._snapshot_server.start(sender, self._handler.snapshot())
            if self._limiter is not None:
                self._limiter.announce()
        if datagram.placements:
            self._metrics.peer_notes.add("received", amount=len(datagram.placements))
        if datagram.kind is DatagramKind.COPY:
            self._snapshot_client.receive(sender, datagram.placements, now)
            self._handler.restore(datagram.placements, now)
        else:
            self._merge(datagram, now, newest=arrival is Arrival.NEWEST)
        return None

    def _merge(self, datagram: Datagram, now: float, *, newest: bool) -> None:
        """Merge the reports of a peer; late loads and reports of use are ignored, since newer ones arrived before."""
        if datagram.spends:
            if newest and self._limiter is not None:
                self._limiter.merge(datagram.sender, datagram.spends, now)
        elif datagram.prefixes:
            self._handler.merge_prefixes(datagram.prefixes)
        elif datagram.placements or datagram.loads:
            self._handler.merge(datagram.sender, datagram.placements, datagram.loads if newest else (), now)

    # --- Out -----------------------------------------------------------------------------------------------------

    def tick(self, now: float, wall: float) -> list[tuple[bytes, Address]]:
        """Return the datagrams to send at this moment."""
        for sender in self._membership.expire(now):
            self._snapshot_server.stop(sender)
            self._handler.drop_peer(sender)
            if self._limiter is not None:
                self._limiter.drop_peer(sender, now)
        self._handler.expire_loads(now)
        live = self._membership.live()
        self._metrics.peers.replace({(): len(live)})
        self._collect(now, wanted=bool(live))
        if self.key is None:
            return []
        return [
            *self._hellos(self.key, live, now, wall),
            *self._data(self.key, live, now, wall),
            *self._prefix_data(self.key, live, wall),
            *self._spends(self.key, live, now, wall),
        ]

    def _collect(self, now: float, *, wanted: bool) -> None:
        placements, loads = self._handler.export(now)
        prefixes = self._handler.export_prefixes()
        if not wanted:
            self._placements.clear()
            self._prefixes.clear()
            self._loads.clear()
            return
        self._prefixes.extend(prefixes)
        self._placements.extend(placements)
        while len(self._placements) > WAITING_PLACEMENTS:
            self._placements.popleft()
            self._metrics.peer_notes_dropped.add()
        for load in loads:
            self._loads[load.member] = load  # the newest load gets the position of the older one in the queue

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
        placements = [self._placements.popleft() for _ in range(min(half, len(self._placements)))]
        while loads or placements:
            some_loads = loads[:RECORDS]
            some_placements = placements[: RECORDS - len(some_loads)]
            del loads[: len(some_loads)], placements[: len(some_placements)]
            data = self._encoded(key, DatagramKind.TICK, wall, some_placements, some_loads)
            self._metrics.peer_notes.add("sent", amount=len(some_placements) * len(live))
            for peer in live:
                yield data, peer.address
        addresses = {peer.sender: peer.address for peer in live}
        for sender, part in self._snapshot_server.next_parts():
            self._metrics.peer_notes.add("sent", amount=len(part))
            yield self._encoded(key, DatagramKind.COPY, wall, part), addresses[sender]
        requested = self._snapshot_client.next_peer(live, now)
        if requested is not None:
            yield self._encoded(key, DatagramKind.ASK, wall), requested.address

    def _prefix_data(self, key: bytes, live: Sequence[Peer], wall: float) -> Iterator[tuple[bytes, Address]]:
        waiting = self._prefixes
        for _ in range(PREFIX_DATAGRAMS_A_TICK):
            if not waiting:
                return
            reports = [waiting.popleft() for _ in range(min(PREFIXES, len(waiting)))]
            data = self._encoded(key, DatagramKind.PREFIX, wall, prefixes=reports)
            for peer in live:
                yield data, peer.address

    def _spends(self, key: bytes, live: Sequence[Peer], now: float, wall: float) -> Iterator[tuple[bytes, Address]]:
        if self._limiter is None:
            return
        self._limiter.routers = len(live) + 1
        self._limiter.heard = min((peer.heard for peer in live), default=now)
        reports = self._limiter.export(now)
        for start in range(0, len(reports), SPENDS):
            data = self._encoded(key, DatagramKind.SPEND, wall, spends=reports[start : start + SPENDS])
            for peer in live:
                yield data, peer.address

    def _encoded(
        self,
        key: bytes,
        kind: DatagramKind,
        wall: float,
        placements: Sequence[PlacementReport] = (),
        loads: Sequence[LoadReport] = (),
        *,
        spends: Sequence[SpendReport] = (),
        prefixes: Sequence[PrefixReport] = (),
    ) -> bytes:
        self._sequence += 1
        return encode(Datagram(kind, self._sender, self._sequence, wall, placements, loads, spends, prefixes), key)
