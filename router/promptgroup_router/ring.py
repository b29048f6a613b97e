"""The ring that gives every session its home: consistent hashing over slot numbers. Pure.

Each slot has POINTS places on a circle of 64-bit numbers; a key belongs to the first point at or after its hash, and
its further choices are the distinct slots met from there on (Karger et al., STOC 1997). Losing a slot moves only its
keys; a new slot takes about 1/(n+1) of the keys, all of them to itself.

A point is xxh3_64 of the slot number, four bytes little endian, seeded with the point's number: slot and point stay
apart, so that no two slots can share points ("pod-1" + "11" is "pod-11" + "1" where they are joined). The same inputs
give the same ring in every process and version: `tests/golden/rings.json`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache

import xxhash

POINTS = 128
"""Points a slot: with 8 slots the fullest holds 1.2 times its share; twice the points cost twice the memory for 1.1."""


class Ring:
    """The circle of a set of slots. The order in which the slots are given does not matter."""

    __slots__ = ("_hashes", "_owners", "_slots")

    def __init__(self, slots: Iterable[int]) -> None:
        self._slots = frozenset(slots)
        placed = sorted((point(slot, number), slot) for slot in self._slots for number in range(POINTS))
        self._hashes = [place for place, _ in placed]
        self._owners = [slot for _, slot in placed]

    def home(self, key: int) -> int | None:
        """The slot that a key (64 bits) belongs to; None on an empty ring."""
        return next(self.order(key), None)

    def order(self, key: int) -> Iterator[int]:
        """Every slot once, in the order in which a key (64 bits) prefers them."""
        owners, total = self._owners, len(self._slots)
        at = bisect_left(self._hashes, key)
        seen: set[int] = set()
        while len(seen) < total:
            if at == len(owners):
                at = 0
            slot = owners[at]
            if slot not in seen:
                seen.add(slot)
                yield slot
            at += 1


def point(slot: int, number: int) -> int:
    """Place of a slot's point on the circle."""
    return xxhash.xxh3_64_intdigest(slot.to_bytes(4, "little"), seed=number)


@lru_cache(maxsize=1024)
def ring_of(slots: frozenset[int]) -> Ring:
    """A ring, shared by all that have the same slots: tables change often, sets of slots seldom."""
    return Ring(slots)
