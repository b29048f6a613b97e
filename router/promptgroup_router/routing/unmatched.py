"""Counts the most frequent prefixes that no group declares: the prompts that deserve a group.

Space-saving (Metwally, Agrawal, El Abbadi, ICDT 2005): a full sketch gives the place of its rarest entry to the new
one, which inherits the count as its possible error. A prefix that is more frequent than 1/CAPACITY is always in it.
Does no I/O and reads no clock.
"""

import heapq
from dataclasses import dataclass

from promptgroup_router.rings.ids import PrefixKey

UNMATCHED = "-"
"""Group name for requests that match none."""
CAPACITY = 256
"""Most prefixes counted. The heaviest 20 are then right unless the traffic is spread over hundreds."""
LISTED = 20


@dataclass(slots=True)
class UnmatchedPrefix:
    """A prefix that requests without a group begin with."""

    model: str
    hash: int
    length: int
    """Bytes of the system text of the latest request."""
    count: int
    error: int
    """Largest amount by which the count may be too high."""


class UnmatchedPrefixes:
    """The sketch of the prefixes."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._prefixes: dict[tuple[str, PrefixKey], UnmatchedPrefix] = {}

    def add(self, model: str, prefix: PrefixKey, length: int) -> None:
        """Count a request."""
        known = self._prefixes.get((model, prefix))
        if known is not None:
            known.count += 1
            known.length = length
            return
        inherited = 0
        if len(self._prefixes) >= self._capacity:
            rarest = min(self._prefixes, key=lambda key: self._prefixes[key].count)
            inherited = self._prefixes.pop(rarest).count
        self._prefixes[model, prefix] = UnmatchedPrefix(model, prefix, length, inherited + 1, inherited)

    def heaviest(self, limit: int = LISTED) -> list[UnmatchedPrefix]:
        """Return the most frequent prefixes, the heaviest first."""
        return heapq.nlargest(limit, self._prefixes.values(), key=lambda each: each.count)
