"""Decides what a prefix that is cold on a replica costs: its whole price, or a share, as an investment.

A replica that computes a declared prompt can serve all requests with that prompt from then on. That pays where the
prompts in use fit every cache. Where they do not, copies evict each other, and each replica computes everything again
and again. Does no I/O and reads no clock.
"""

from collections import OrderedDict

from promptgroup_router.rings.ids import PrefixKey

COLD_SHARE = 0.1
"""Share of a cold Tier-1 prefix that the request that computes it is charged: the requests after it use it too."""
FITTING = 0.5
"""Share of a cache up to which the prefixes in use count as fitting: sessions need the rest."""
LIMIT = 4096
"""Most prefixes that are counted; so many fit no cache."""


class PrefixesInUse:
    """The Tier-1 prefixes that requests have used since all caches together were last written anew."""

    __slots__ = ("_tokens", "_used", "_written", "capacity", "cold_share", "replicas")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        """Tokens that a replica's cache holds."""
        self.replicas = 1
        self.cold_share = COLD_SHARE
        """Share of a cold prefix that a request is charged."""
        self._used: OrderedDict[PrefixKey, tuple[float, int]] = OrderedDict()
        """Prefix → tokens that had been written when it was last used, and its own; the least recently used first."""
        self._tokens = 0
        """Tokens of all of them."""
        self._written = 0.0

    def mean(self) -> int:
        """Return the mean tokens of a prefix in use."""
        return self._tokens // len(self._used) if self._used else 0

    def write(self, tokens: float) -> None:
        """Record tokens that peers have written into the caches."""
        self._written += tokens

    def use(self, prefix: PrefixKey, tokens: int, written: float) -> None:
        """Record a request with a prefix of `tokens`, which is expected to write so many tokens into a cache."""
        self._written += written
        used = self._used
        known = used.pop(prefix, None)
        if known is not None:
            self._tokens -= known[1]
        used[prefix] = self._written, tokens
        self._tokens += tokens
        oldest = self._written - self.replicas * self.capacity
        while True:
            first = next(iter(used))
            at, size = used[first]
            if at >= oldest and len(used) <= LIMIT:
                break
            del used[first]
            self._tokens -= size
        self.cold_share = COLD_SHARE if self._tokens <= FITTING * self.capacity else 1.0
