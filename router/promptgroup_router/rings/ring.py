"""Gives every session its home: orders the slots by a key's preference. Does no I/O and reads no clock.

Highest random weight (Thaler and Ravishankar, 1998): each slot weighs xxh3_64 of its number, four bytes little endian
(eight for a rank of its engine beyond the first), seeded with the key; the heaviest is home, the next ones follow.
What a ring of points promises holds exactly: the order of slots does not matter, losing one moves only its keys, a new
one takes 1/(n+1) of them, all to itself. With 128 points a slot the same step moves up to 1.2/(n+1), see
docs/development/decisions/0005. It costs 0.3 µs with 4 slots, 0.5 with 8, 3 with 64. The same inputs give the same
order in every process and version: `tests/golden/rings.json`.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import xxhash

_LONG, _FEW = 64, 4
_weigh = xxhash.xxh3_64_intdigest


def preference(names: Sequence[bytes], key: int) -> Iterator[int]:
    """Yield the indexes of `names` in the order in which a key (64 bits) prefers them.

    The first is yielded before the others are sorted, because it nearly always suffices.
    """
    if not names:
        return
    weights = [_weigh(name, key) for name in names]
    home = weights.index(max(weights))
    yield home
    if len(weights) > _LONG:
        # callers that ask for successors ask for a few: to order a thousand slots would take ten times as long
        few = heapq.nlargest(_FEW, range(len(weights)), key=weights.__getitem__)
        yield from few[1:]
        yield from sorted(set(range(len(weights))) - set(few), key=weights.__getitem__, reverse=True)
        return
    rest = sorted(range(len(names)), key=weights.__getitem__, reverse=True)
    yield from (index for index in rest if index != home)


class Ring:
    """The slots of a revision as a consistent-hash ring. The order in which the slots are given does not matter.

    Where engines have data-parallel ranks, each rank stands for itself, by its `ids.ring_place`.
    """

    __slots__ = ("_names", "_slots")

    def __init__(self, slots: Iterable[int]) -> None:
        self._slots = sorted(set(slots))
        self._names = [slot.to_bytes(4 if slot >> 32 == 0 else 8, "little") for slot in self._slots]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and self._slots == other._slots

    def __hash__(self) -> int:
        return hash(tuple(self._slots))

    def __repr__(self) -> str:
        return f"Ring({self._slots})"

    def __bool__(self) -> bool:
        return bool(self._slots)

    def home(self, key: int) -> int | None:
        """Return the slot that a key (64 bits) belongs to, or None on an empty ring."""
        return next(self.order(key), None)

    def order(self, key: int) -> Iterator[int]:
        """Yield every slot once, in the order in which a key (64 bits) prefers them."""
        for index in preference(self._names, key):
            yield self._slots[index]


@lru_cache(maxsize=1024)
def ring_of(slots: frozenset[int]) -> Ring:
    """Return the ring of a set of slots. Rings are shared: tables change often, sets of slots seldom."""
    return Ring(slots)


NO_SLOTS = Ring(())
"""The ring of members that have no slots in common: they are ordered by their ids."""
