"""Decides what a prefix that is cold on a replica costs: its whole price, or a share, as an investment.

A replica that computes a declared prompt can serve all requests with that prompt from then on. That pays as far as such
requests come, and where the prompts in use fit every cache. Where they do not, copies evict each other, and each
replica computes everything again and again. Does no I/O and reads no clock.
"""

from collections import OrderedDict

from promptgroup_router.rings.ids import PrefixKey

WORTH = 2
"""Requests to come that each request with a prefix stands for."""
LEAST_SHARE = 0.1
"""Least share of a cold Tier-1 prefix that the request that computes it is charged."""
FITTING = 0.5
"""Share of a cache up to which the prefixes in use count as fitting: sessions need the rest."""
LIMIT = 4096
"""Most prefixes that are counted; so many fit no cache."""


class _Used:
    """A prefix in use."""

    __slots__ = ("requests", "tokens", "written")

    def __init__(self) -> None:
        self.written = 0.0
        """Tokens that had been written when it was last used."""
        self.tokens = 0
        self.requests = 0


class PrefixesInUse:
    """The Tier-1 prefixes that requests have used since all caches together were last written anew."""

    __slots__ = ("_tokens", "_used", "_written", "capacity", "replicas")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        """Tokens that a replica's cache holds."""
        self.replicas = 1
        self._used: OrderedDict[PrefixKey, _Used] = OrderedDict()
        """The least recently used first."""
        self._tokens = 0
        """Tokens of all of them."""
        self._written = 0.0

    def mean(self) -> int:
        """Return the mean tokens of a prefix in use."""
        return self._tokens // len(self._used) if self._used else 0

    def cold_share(self, prefix: PrefixKey) -> float:
        """Return the share of a cold prefix that a request is charged, at most 1.

        The requests to come share the cost with this one, and how many come is judged by how many came. A prefix that
        few have used is worth no copy yet: that its own replica looks slower may be noise.
        """
        used = self._used.get(prefix)
        if used is None or self._tokens > FITTING * self.capacity:
            return 1.0
        return max(LEAST_SHARE, 1 / (1 + WORTH * used.requests))

    def write(self, tokens: float) -> None:
        """Record tokens that peers have written into the caches."""
        self._written += tokens

    def use(self, prefix: PrefixKey, tokens: int, written: float) -> None:
        """Record a request with a prefix of `tokens`, which is expected to write so many tokens into a cache."""
        self._written += written
        in_use = self._used
        used = in_use.pop(prefix, None)
        if used is None:
            used = _Used()
        self._tokens += tokens - used.tokens
        used.written, used.tokens = self._written, tokens
        used.requests += 1
        in_use[prefix] = used
        oldest = self._written - self.replicas * self.capacity
        while True:
            first = next(iter(in_use))
            longest_unused = in_use[first]
            if longest_unused.written >= oldest and len(in_use) <= LIMIT:
                break
            del in_use[first]
            self._tokens -= longest_unused.tokens
