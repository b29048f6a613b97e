"""The prompts that deserve a group: the most frequent prefixes that no group declares. Pure, bounded.

Space-saving (Metwally, Agrawal, El Abbadi, ICDT 2005): a full sketch gives the place of its rarest entry to the new
one, which inherits the count as its possible error. What is more frequent than 1/CAPACITY is always in it.
"""

import heapq
from dataclasses import dataclass

CAPACITY = 256
"""Prefixes counted; the heaviest 20 are then right unless the traffic is spread over hundreds."""
LISTED = 20


@dataclass(slots=True)
class UnmatchedPrefix:
    """A prefix that requests without a group begin with."""

    model: str
    hash: int
    length: int
    """Bytes of the system text when it was seen last."""
    count: int
    error: int
    """The count may be too high by this."""


class UnmatchedPrefixes:
    """The sketch."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._prefixes: dict[tuple[str, int], UnmatchedPrefix] = {}

    def add(self, model: str, prefix: int, length: int) -> None:
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
        """The most frequent prefixes, heaviest first."""
        return heapq.nlargest(limit, self._prefixes.values(), key=lambda each: each.count)
