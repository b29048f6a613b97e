"""Routers that tell each other, on a network of virtual time that loses and reorders; a policy that only listens."""

import random
from collections.abc import Iterator, Sequence
from itertools import count

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.peers.datagram import seal_key
from promptgroup_router.peers.members import Address
from promptgroup_router.peers.protocol import Peers
from promptgroup_router.policy.gossip import Load, Note

TICK = 0.05
KEY = seal_key(b"0123456789abcdef")


def note(session: int, turn: int = 1, **fields: int) -> Note:
    return Note(session, fields.get("member", 1), fields.get("prefix", 2), turn, fields.get("tokens", 3000))


def load(member: int, written: int = 0) -> Load:
    return Load(member, in_flight=2, context=6000, pending=0.25, age=0.5, written=written)


class Listener:
    """A policy that keeps what it hears."""

    def __init__(self, *records: Note) -> None:
        self.notes: list[Note] = []
        """To be told."""
        self.loads: list[Load] = []
        """To be told, every time."""
        self.places = {each.session: each for each in reversed(records)}
        """Session → its newest turn, the oldest record first."""
        self.peers: dict[int, dict[int, Load]] = {}
        """Peer → member → load, without the peers that were forgotten."""
        self.loads_in_order: list[Load] = []
        self.forgotten: list[int] = []

    def place(self, *notes: Note) -> None:
        for each in notes:
            self.places[each.session] = each
        self.notes += notes

    def tell(self, now: float) -> tuple[list[Note], list[Load]]:
        notes, self.notes = self.notes, []
        return notes, list(self.loads)

    def hear(self, sender: int, notes: Sequence[Note], loads: Sequence[Load], now: float) -> None:
        for each in notes:
            known = self.places.get(each.session)
            if known is None or known.turn <= each.turn:
                self.places[each.session] = each
        for each in loads:
            self.peers.setdefault(sender, {})[each.member] = each
            self.loads_in_order.append(each)

    def copied(self, notes: Sequence[Note], now: float) -> None:
        for each in notes:
            self.places.setdefault(each.session, each)

    def forget(self, sender: int) -> None:
        self.peers.pop(sender, None)
        self.forgotten.append(sender)

    def records(self) -> Iterator[Note]:
        return iter(list(reversed(self.places.values())))


class Node:
    """One router on the network."""

    def __init__(self, sender: int, *records: Note) -> None:
        self.address: Address = (f"10.0.0.{sender}", 9094)
        self.listener = Listener(*records)
        self.metrics = Metrics()
        self.peers = Peers(self.listener, self.metrics, sender)
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
