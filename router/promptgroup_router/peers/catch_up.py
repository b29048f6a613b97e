"""A router that starts copies the records of one that runs: whom it asks, and what the other sends at a time. Pure."""

from collections.abc import Iterator, Sequence
from itertools import islice

from promptgroup_router.peers.datagram import RECORDS
from promptgroup_router.peers.members import Peer
from promptgroup_router.policy.gossip import PlacementReport

PATIENCE_SECONDS = 2.0
"""After this long without a part of the copy another peer is asked."""
ATTEMPTS = 5
"""Then it goes without: sessions are placed by their hash, and what is missed comes with their next turns."""
COPY_DATAGRAMS = 8
"""Sent in one tick, to all that ask: 6,000 records a second, the newest first, and no receiver's buffer overflows."""


class SnapshotClient:
    """The side that starts."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        """Peer → how often."""
        self._from: int | None = None
        self._patient_until = 0.0
        self._done = False

    def next_peer(self, live: Sequence[Peer], now: float) -> Peer | None:
        """The peer to ask at this moment; None when there is nothing to do but wait."""
        if self._done or not live or (self._from is not None and now < self._patient_until):
            return None
        if sum(self._asked.values()) >= ATTEMPTS:
            self._done = True
            return None
        # of those asked least the one that has sent most: it has been there longest
        peer = min(live, key=lambda each: (self._asked.get(each.sender, 0), -each.sequence))
        self._asked[peer.sender] = self._asked.get(peer.sender, 0) + 1
        self._from, self._patient_until = peer.sender, now + PATIENCE_SECONDS
        return peer

    def receive(self, sender: int, notes: Sequence[PlacementReport], now: float) -> None:
        """A part of the copy is here."""
        if sender != self._from:
            return  # of one that was given up; what it sent is as good, but the other will end the copy
        self._patient_until = now + PATIENCE_SECONDS
        self._done = self._done or not notes


class SnapshotServer:
    """The side that runs."""

    def __init__(self) -> None:
        self._copies: dict[int, Iterator[PlacementReport]] = {}

    def start(self, sender: int, records: Iterator[PlacementReport]) -> None:
        """A peer asks; one that is being served goes on being so."""
        if sender not in self._copies:
            self._copies[sender] = records

    def stop(self, sender: int) -> None:
        """The peer is gone."""
        self._copies.pop(sender, None)

    def next_parts(self) -> Iterator[tuple[int, list[PlacementReport]]]:
        """(peer, notes) to send in this tick, each asking peer in its turn; a part without notes ends a copy."""
        budget = COPY_DATAGRAMS
        while budget and self._copies:
            for sender, records in list(self._copies.items())[:budget]:
                notes = list(islice(records, RECORDS))
                if not notes:
                    del self._copies[sender]
                budget -= 1
                yield sender, notes
