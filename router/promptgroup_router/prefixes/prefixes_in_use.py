"""Decides what a prefix that is cold on a replica costs: its whole price, or a share, as an investment.

A replica that computes a declared prompt can serve all requests with that prompt from then on. That pays as far as such
requests come, and where the prompts in use fit every cache. Where they do not, copies evict each other, and each
replica computes everything again and again.
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


class PrefixRequests:
    """The number of requests that each Tier-1 prefix had, on replicas of any kind."""

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: OrderedDict[PrefixKey, int] = OrderedDict()
        """The least recently used first."""

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, prefix: PrefixKey) -> int:
        return self._requests.get(prefix, 0)

    def add(self, prefix: PrefixKey) -> None:
        """Count a request."""
        requests = self._requests
        requests[prefix] = requests.pop(prefix, 0) + 1
        if len(requests) > LIMIT:
            requests.popitem(last=False)


class PrefixesInUse:
    """The Tier-1 prefixes that requests have used since all caches together were last written anew."""

    __slots__ = ("_tokens", "_used", "_written", "capacity", "replicas", "requests")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        """Tokens that a replica's cache holds."""
        self.replicas = 1
        self.requests = PrefixRequests()
        """Those of all kinds of replicas, where there are several."""
        self._used: OrderedDict[PrefixKey, tuple[float, int]] = OrderedDict()
        """Prefix → tokens that had been written when it was last used, and its own; the least recently used first."""
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
        if self._tokens > FITTING * self.capacity:
            return 1.0
        return max(LEAST_SHARE, 1 / (1 + WORTH * self.requests[prefix]))

    def write(self, tokens: float) -> None:
        """Record tokens that peers have written into the caches."""
        self._written += tokens

    def use(self, prefix: PrefixKey, tokens: int, written: float) -> None:
        """Record a request with a prefix of `tokens`, which is expected to write so many tokens into a cache."""
        self.requests.add(prefix)
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
