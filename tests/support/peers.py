"""Routers that tell each other, on a network of virtual time that loses and reorders; a policy that only listens."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.peers.datagram import seal_key
from promptgroup_router.peers.members import Address
from promptgroup_router.peers.protocol import GossipProtocol
from promptgroup_router.policy.gossip import LoadReport, PlacementReport, PrefixReport

TICK = 0.05
KEY = seal_key(b"0123456789abcdef")


def placement(session: int, turn: int = 1, **fields: int) -> PlacementReport:
    member, prefix, tokens = fields.get("member", 1), fields.get("prefix", 2), fields.get("tokens", 3000)
    return PlacementReport(session, member, prefix, turn, tokens, fields.get("shared", 2000))


def load(member: int, written: int = 0) -> LoadReport:
    return LoadReport(
        member, in_flight=2, context=6000, pending=0.25, age=0.5, written=written, unplaced=1000, waiting=1
    )


class Listener:
    """A policy that keeps what it hears."""

    def __init__(self, *records: PlacementReport) -> None:
        self.placements: list[PlacementReport] = []
        """To be told."""
        self.loads: list[LoadReport] = []
        """To be told, every time."""
        self.locations = {each.session: each for each in reversed(records)}
        """Session → its newest turn, the oldest record first."""
        self.prefixes: list[PrefixReport] = []
        """To be told."""
        self.heard: list[PrefixReport] = []
        self.peers: dict[int, dict[int, LoadReport]] = {}
        """Peer → member → load, without the peers that were forgotten."""
        self.urgent: Callable[[], None] | None = None
        """What calls for an exchange at once."""
        self.loads_in_order: list[LoadReport] = []
        self.forgotten: list[int] = []
        self.expired = 0.0
        """Time at which loads were last to expire."""

    def on_urgent(self, listener: Callable[[], None]) -> None:
        self.urgent = listener

    def place(self, *placements: PlacementReport) -> None:
        for each in placements:
            self.locations[each.session] = each
        self.placements += placements

    def export(self, now: float) -> tuple[list[PlacementReport], list[LoadReport]]:
        placements, self.placements = self.placements, []
        return placements, list(self.loads)

    def merge(
        self, sender: int, placements: Sequence[PlacementReport], loads: Sequence[LoadReport], now: float
    ) -> None:
        for each in placements:
            known = self.locations.get(each.session)
            if known is None or known.turn <= each.turn:
                self.locations[each.session] = each
        for each in loads:
            self.peers.setdefault(sender, {})[each.member] = each
            self.loads_in_order.append(each)

    def restore(self, placements: Sequence[PlacementReport], now: float) -> None:
        for each in placements:
            self.locations.setdefault(each.session, each)

    def export_prefixes(self) -> list[PrefixReport]:
        prefixes, self.prefixes = self.prefixes, []
        return prefixes

    def merge_prefixes(self, prefixes: Sequence[PrefixReport]) -> None:
        self.heard += prefixes

    def expire_loads(self, now: float) -> None:
        self.expired = now

    def drop_peer(self, sender: int) -> None:
        self.peers.pop(sender, None)
        self.forgotten.append(sender)

    def snapshot(self) -> Iterator[PlacementReport]:
        return iter(list(reversed(self.locations.values())))


class Node:
    """One router on the network."""

    def __init__(self, sender: int, *records: PlacementReport, limiter: Limiter | None = None) -> None:
        self.address: Address = (f"10.0.0.{sender}", 9094)
        self.listener = Listener(*records)
        self.metrics = Metrics()
        self.peers = GossipProtocol(self.listener, self.metrics, sender, limiter)
        self.peers.key = KEY

    def live(self) -> float:
        return self.metrics.peers.values[()]

    def dropped(self, reason: str) -> float:
        return self.metrics.peer_dropped.values.get((reason,), 0)


class Net:
    """All routers find each other; a datagram takes up to `delay` ticks, so that later ones overtake it."""

    def __init__(self, *nodes: Node, loss: float = 0.0, delay: int = 0, seed: int = 1) -> None:
        self.now = 100.0
        self.nodes = {node.address: node for node in nodes}
        self.sent: list[tuple[bytes, Address, Address]] = []
        """(bytes, from, to) of the last step."""
        self._loss = loss
        self._delay = delay
        self._draw = random.Random(seed)
        self._order = count()
        self._under_way: list[tuple[float, int, bytes, Address, Address]] = []
        self._aim()

    def add(self, node: Node) -> Node:
        self.nodes[node.address] = node
        self._aim()
        return node

    def remove(self, node: Node) -> None:
        del self.nodes[node.address]

    def step(self, seconds: float = TICK) -> None:
        """Tick by tick: everybody speaks, then what has arrived is heard."""
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            self.sent = []
            for node in list(self.nodes.values()):
                for data, to in node.peers.tick(self.now, self.now):
                    self.sent.append((data, node.address, to))
                    self._put(data, node.address, to)
            self._deliver()

    def _put(self, data: bytes, source: Address, to: Address) -> None:
        if self._draw.random() >= self._loss:
            at = self.now + TICK * self._draw.randint(0, self._delay)
            self._under_way.append((at, next(self._order), data, source, to))

    def _deliver(self) -> None:
        arrived = sorted(each for each in self._under_way if each[0] <= self.now)
        self._under_way = [each for each in self._under_way if each[0] > self.now]
        for _, _, data, source, to in arrived:
            if to in self.nodes:
                self.nodes[to].peers.receive(data, source, self.now, self.now)

    def _aim(self) -> None:
        for node in self.nodes.values():
            node.peers.aim(list(self.nodes))
