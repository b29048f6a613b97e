"""Models the content of a replica's KV cache: the prefixes that were computed there and are not evicted yet.

Engines evict the least recently used blocks, and of one prompt the end first. This model does the same with the
prefixes of the requests that were sent to the replica. It holds as many tokens as the cache, and the prefixes that it
still contains are assumed to be cached.
"""

from collections import OrderedDict
from collections.abc import Sequence

from promptgroup_router.rings.ids import PrefixKey

LIMIT = 32_768
"""Most entries per replica, about 190 bytes each. A cache of 400,000 tokens needs some two thousand."""


class CachedPrefixes:
    """The prefixes of one replica, the least recently used first."""

    __slots__ = ("_entries", "_others", "_tokens")

    def __init__(self) -> None:
        self._entries: OrderedDict[PrefixKey, int] = OrderedDict()
        """Prefix → its tokens beyond the next shorter one. Tokens that no other request can share have a negative key,
        which no hash is."""
        self._tokens = 0
        """Tokens of all entries."""
        self._others = 0
        """Number of entries added so far that no other request can share."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, prefix: PrefixKey) -> bool:
        return prefix in self._entries

    def longest(self, marks: Sequence[PrefixKey]) -> int:
        """Return the number of cached prefixes among those of one prompt, given with the shortest first."""
        entries = self._entries
        low, high = 0, len(marks)
        middle = 0  # most replicas have not even cached the shortest
        while low < high:
            if marks[middle] in entries:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def use(self, prefix: PrefixKey, tokens: int) -> None:
        """Record the use of a prefix that has `tokens` beyond the next shorter one."""
        entries = self._entries
        if prefix in entries:
            entries.move_to_end(prefix)
        else:
            entries[prefix] = tokens
            self._tokens += tokens

    def use_all(self, marks: Sequence[PrefixKey], lengths: Sequence[int], begin: int) -> None:
        """Record the use of all prefixes of one prompt; they have `lengths` tokens, of which `begin` do not count."""
        for place in range(len(marks) - 1, 0, -1):
            self.use(marks[place], lengths[place] - lengths[place - 1])
        self.use(marks[0], lengths[0] - begin)

    def drop(self, marks: Sequence[PrefixKey], known: int) -> None:
        """Remove the prefixes of a prompt that was never computed, except for the first `known`, cached before."""
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
        """Remove the entries that a cache of `capacity` tokens has evicted."""
        entries = self._entries
        while entries and (self._tokens > capacity or len(entries) > LIMIT):
            _, tokens = entries.popitem(last=False)
            self._tokens -= tokens
