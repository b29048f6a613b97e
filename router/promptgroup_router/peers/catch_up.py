"""Copies the placements of a running router to one that starts, with the choice of the peer and the size of parts.

Does no I/O and reads no clock; `now` is in monotonic seconds.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from promptgroup_router.peers.datagram import RECORDS
from promptgroup_router.peers.members import Peer
from promptgroup_router.policy.gossip import PlacementReport

PATIENCE_SECONDS = 2.0
"""Seconds without a part of the copy after which the copy is requested from another peer."""
ATTEMPTS = 5
"""Requests after which the router continues without a copy: sessions are placed by their hash, and their next turns
create the missing placements."""
COPY_DATAGRAMS = 8
"""Datagrams sent in one tick to all requesting peers: 5,000 placements a second, the newest first, without overflowing
a receive buffer."""


class SnapshotClient:
    """The side of the starting router."""

    def __init__(self) -> None:
        self._attempts: dict[int, int] = {}
        """Peer → number of requests to it."""
        self._from: int | None = None
        self._patient_until = 0.0
        self._done = False

    def next_peer(self, live: Sequence[Peer], now: float) -> Peer | None:
        """Return the peer to send a request to now, or None if the router waits for a part or needs no more."""
        if self._done or not live or (self._from is not None and now < self._patient_until):
            return None
        if sum(self._attempts.values()) >= ATTEMPTS:
            self._done = True
            return None
        # of the peers with the fewest requests, the one that has sent most has run longest
        peer = min(live, key=lambda item: (self._attempts.get(item.sender, 0), -item.sequence))
        self._attempts[peer.sender] = self._attempts.get(peer.sender, 0) + 1
        self._from, self._patient_until = peer.sender, now + PATIENCE_SECONDS
        return peer

    def receive(self, sender: int, placements: Sequence[PlacementReport], now: float) -> None:
        """Record a part of the copy; an empty one ends it."""
        if sender != self._from:
            return  # from an abandoned peer: its placements are used, but it cannot end the copy
        self._patient_until = now + PATIENCE_SECONDS
        self._done = self._done or not placements


class SnapshotServer:
    """The side of the running router."""

    def __init__(self) -> None:
        self._copies: dict[int, Iterator[PlacementReport]] = {}

    def start(self, sender: int, records: Iterator[PlacementReport]) -> None:
        """Begin a copy for a peer, unless one is in progress."""
        if sender not in self._copies:
            self._copies[sender] = records

    def stop(self, sender: int) -> None:
        """Stop the copy of a peer that has left."""
        self._copies.pop(sender, None)

    def next_parts(self) -> Iterator[tuple[int, list[PlacementReport]]]:
        """Yield (peer, placements) to send in this tick, one part for each requesting peer in turn.

        An empty part ends a copy.
        """
        budget = COPY_DATAGRAMS
        while budget and self._copies:
            for sender, records in list(self._copies.items())[:budget]:
                placements = list(islice(records, RECORDS))
                if not placements:
                    del self._copies[sender]
                budget -= 1
                yield sender, placements
