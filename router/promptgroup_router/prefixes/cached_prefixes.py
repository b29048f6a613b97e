"""Follows what a replica's cache holds: the prefixes that were computed there, and how far it has evicted them.

Engines evict what was used longest ago, and of one prompt the end first. This does the same with the prefixes that
requests were sent there with. So it holds as many as their cache does, and what it still has is believed to be cached.
"""

from collections import OrderedDict
from collections.abc import Sequence

from promptgroup_router.rings.ids import PrefixKey

LIMIT = 32_768
"""Most entries per replica, about 190 bytes each. A cache of 400,000 tokens takes some two thousand."""


class CachedPrefixes:
    """The prefixes of one replica, the least recently used first."""

    __slots__ = ("_entries", "_others", "_tokens")

    def __init__(self) -> None:
        self._entries: OrderedDict[PrefixKey, int] = OrderedDict()
        """Prefix → its tokens beyond the next shorter one. Tokens that no other request can share have a name below 0,
        which no hash is."""
        self._tokens = 0
        """Tokens of all entries."""
        self._others = 0
        """Entries so far that nobody can share."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, prefix: PrefixKey) -> bool:
        return prefix in self._entries

    def longest(self, marks: Sequence[PrefixKey]) -> int:
        """Return how many of these prefixes of one prompt, the shortest first, are cached."""
        entries = self._entries
        low, high = 0, len(marks)
        middle = 0  # most replicas know not even the shortest
        while low < high:
            if marks[middle] in entries:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def use(self, prefix: PrefixKey, tokens: int) -> None:
        """Record the use of a prefix that has so many tokens beyond the next shorter one."""
        entries = self._entries
        if prefix in entries:
            entries.move_to_end(prefix)
        else:
            entries[prefix] = tokens
            self._tokens += tokens

    def use_all(self, marks: Sequence[PrefixKey], lengths: Sequence[int], begin: int) -> None:
        """Record the use of all these prefixes of one prompt, which have `lengths` tokens; `begin` are before them."""
        for place in range(len(marks) - 1, 0, -1):
            self.use(marks[place], lengths[place] - lengths[place - 1])
        self.use(marks[0], lengths[0] - begin)

    def drop(self, marks: Sequence[PrefixKey], known: int) -> None:
        """Forget the prefixes of a prompt that was never computed, but for those that were `known` before."""
        for place in range(len(marks) - 1, known - 1, -1):
            tokens = self._entries.pop(marks[place], 0)
            self._tokens -= tokens

    def write(self, tokens: int) -> None:
        """Record tokens that no other request can share: the end of a prompt, an answer, the requests of peers."""
        if tokens > 0:
            self._others += 1
            self._entries[PrefixKey(-self._others)] = tokens
            self._tokens += tokens

    def evict(self, capacity: float) -> None:
        """Forget what a cache of so many tokens has evicted."""
        entries = self._entries
        while entries and (self._tokens > capacity or len(entries) > LIMIT):
            _, tokens = entries.popitem(last=False)
            self._tokens -= tokens
