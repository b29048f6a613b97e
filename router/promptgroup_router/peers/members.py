"""Which other routers there are, by what was heard of them. Pure; `now` in monotonic seconds."""

import enum
from dataclasses import dataclass

SILENT_SECONDS = 5.0
"""A peer that was not heard for this long is gone: several heartbeats were lost, and its load must not count longer."""
REMEMBERED_SECONDS = 60.0
"""A silent peer's sequence is kept until none of its datagrams can pass the check of the clock any more."""
MAX_PEERS = 256
"""Routers known at a time: more than any namespace runs, restarts within a minute included."""
WINDOW = 1024
"""Sequence numbers behind the newest that may still arrive, each once (as RFC 4303, section 3.4.3): a second's worth
at the highest rate."""

Address = tuple[str, int] | tuple[str, int, int, int]
"""As sockets have it, IPv4 or IPv6."""


class Arrival(enum.Enum):
    """What a datagram's sequence number says."""

    NEWEST = enum.auto()
    LATE = enum.auto()
    """Overtaken by another one: what it says of a state is out of date."""
    REPLAYED = enum.auto()
    """It was here before, or may have been."""
    CROWD = enum.auto()
    """From one router too many."""


@dataclass(slots=True)
class Peer:
    """Another router process."""

    sender: int
    address: Address
    """Where it was last heard from."""
    sequence: int
    """The highest one that it sent."""
    heard: float
    seen: int = 1
    """Bit i: sequence - i has arrived."""
    alive: bool = True


class Membership:
    """Routers that were heard of. Only authentic datagrams may be told to it."""

    def __init__(self) -> None:
        self._peers: dict[int, Peer] = {}

    def receive(self, sender: int, sequence: int, address: Address, now: float) -> Arrival:
        """A datagram is here; the address counts when it is the newest."""
        peer = self._peers.get(sender)
        if peer is None:
            if len(self._peers) >= MAX_PEERS:
                return Arrival.CROWD
            self._peers[sender] = Peer(sender, address, sequence, now)
            return Arrival.NEWEST
        ahead = sequence - peer.sequence
        if ahead <= 0:
            bit = 1 << -ahead if ahead > -WINDOW else 0
            if not bit or peer.seen & bit:
                return Arrival.REPLAYED
            peer.seen |= bit
            return Arrival.LATE
        peer.seen = (peer.seen << ahead | 1) & ((1 << WINDOW) - 1) if ahead < WINDOW else 1
        peer.sequence, peer.address, peer.heard, peer.alive = sequence, address, now, True
        return Arrival.NEWEST

    def live(self) -> list[Peer]:
        """Peers that data goes to."""
        return [peer for peer in self._peers.values() if peer.alive]

    def expire(self, now: float) -> list[int]:
        """Senders that have fallen silent since the last call."""
        gone = [peer for peer in self._peers.values() if now - peer.heard > SILENT_SECONDS]
        fallen = [peer.sender for peer in gone if peer.alive]
        for peer in gone:
            peer.alive = False
            if now - peer.heard > REMEMBERED_SECONDS:
                del self._peers[peer.sender]
        return fallen
