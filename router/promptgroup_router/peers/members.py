"""Tracks the other routers that have sent datagrams. Does no I/O and reads no clock; `now` is in monotonic seconds."""

import enum
from dataclasses import dataclass

SILENT_SECONDS = 5.0
"""Seconds of silence after which a peer counts as dead: several heartbeats were lost, and its load must not count for
longer."""
REMEMBERED_SECONDS = 60.0
"""Seconds for which a silent peer's sequence number is stored: until none of its datagrams can pass the clock check."""
MAX_PEERS = 256
"""Most routers tracked at a time: more than any namespace runs, including restarts within a minute."""
WINDOW = 1024
"""Sequence numbers behind the newest that may still arrive, each once (like RFC 4303, section 3.4.3): a second's worth
at the highest rate."""

Address = tuple[str, int] | tuple[str, int, int, int]
"""A socket address, IPv4 or IPv6."""


class Arrival(enum.Enum):
    """The meaning of a datagram's sequence number."""

    NEWEST = enum.auto()
    LATE = enum.auto()
    """A newer datagram arrived before it, so the state that it reports is out of date."""
    REPLAYED = enum.auto()
    """It arrived before, or may have."""
    CROWD = enum.auto()
    """It is from a new router while `MAX_PEERS` are tracked."""


@dataclass(slots=True)
class Peer:
    """Another router process."""

    sender: int
    address: Address
    """Source address of its newest datagram."""
    sequence: int
    """The highest sequence number that it sent."""
    heard: float
    seen: int = 1
    """Bit i is set if the datagram `sequence - i` has arrived."""
    alive: bool = True


class Membership:
    """The tracked routers. Only authentic datagrams must be passed to it."""

    def __init__(self) -> None:
        self._peers: dict[int, Peer] = {}

    def receive(self, sender: int, sequence: int, address: Address, now: float) -> Arrival:
        """Record a datagram; the peer's address is taken from its newest one."""
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
        """Return the live peers, which data is sent to."""
        return [peer for peer in self._peers.values() if peer.alive]

    def expire(self, now: float) -> list[int]:
        """Return the senders that have become silent since the last call."""
        gone = [peer for peer in self._peers.values() if now - peer.heard > SILENT_SECONDS]
        fallen = [peer.sender for peer in gone if peer.alive]
        for peer in gone:
            peer.alive = False
            if now - peer.heard > REMEMBERED_SECONDS:
                del self._peers[peer.sender]
        return fallen
