"""Decides the cost of a prefix that is cold on a replica: its whole prefill, or a share of it, as an investment.

A replica that computes a prompt can serve all sessions with that prompt that begin from then on. That pays off if such
sessions follow, and if the prompts in use fit every cache. If they do not fit, copies evict each other, and each
replica recomputes everything again and again.
"""

from collections import OrderedDict

from promptgroup_router.rings.ids import PrefixKey

WORTH = 2
"""Future sessions that each past session with a declared prompt predicts."""
UNDECLARED_WORTH = 1 / 3
"""The same for a prompt that no group declares: nothing says that sessions with it will go on."""
LEAST_SHARE = 0.1
"""Least share of the cost of a cold Tier-1 prefix that the request which computes it is charged."""
LEAST_UNDECLARED_SHARE = 1 / 3
"""The same if no group declares the prefix. Each further copy costs tokens, but without any investment a burst of
sessions waits for the one replica that has it."""
FITTING = 0.5
"""Share of a cache up to which the prefixes in use count as fitting: sessions need the rest."""
LIMIT = 4096
"""Most prefixes that are counted; no cache holds so many."""


class PrefixSessions:
    """The number of sessions that have begun with each Tier-1 prefix, on replicas of any kind."""

    __slots__ = ("_sessions",)

    def __init__(self) -> None:
        self._sessions: OrderedDict[PrefixKey, int] = OrderedDict()
        """The least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __getitem__(self, prefix: PrefixKey) -> int:
        return self._sessions.get(prefix, 0)

    def use(self, prefix: PrefixKey, *, begins: bool) -> None:
        """Record a request, and count its session if it `begins` with it."""
        sessions = self._sessions
        sessions[prefix] = sessions.get(prefix, 0) + begins
        sessions.move_to_end(prefix)
        if len(sessions) > LIMIT:
            sessions.popitem(last=False)


class PrefixesInUse:
    """The Tier-1 prefixes used within the last tokens written, as many as all caches together hold."""

    __slots__ = ("_tokens", "_used", "_written", "capacity", "replicas", "sessions")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        """Tokens that a replica's cache holds."""
        self.replicas = 1
        self.sessions = PrefixSessions()
        """The sessions on all kinds of replicas, if there are several."""
        self._used: OrderedDict[PrefixKey, tuple[float, int]] = OrderedDict()
        """Prefix → tokens that had been written when it was last used, and its own; the least recently used first."""
        self._tokens = 0
        """Tokens of all prefixes in `_used`."""
        self._written = 0.0

    def mean(self) -> int:
        """Return the mean tokens of a prefix in use."""
        return self._tokens // len(self._used) if self._used else 0

    def cold_share(self, prefix: PrefixKey, *, declared: bool = True) -> float:
        """Return the share of a cold prefix that a request is charged, at most 1.

        Sessions that begin later share the cost with this one, and their number is predicted from that of past ones.
        Later turns do not count, because they go where their session is. A prefix with few sessions is worth no second
        copy yet: the higher cost of its own replica may be noise. Of a prefix that no group declares, fewer sessions
        are expected than there have been, and a copy gets its replica's part of them.
        """
        if self._tokens > FITTING * self.capacity:
            return 1.0
        sessions = self.sessions[prefix]
        if declared:
            return max(LEAST_SHARE, 1 / (1 + WORTH * sessions))
        return max(LEAST_UNDECLARED_SHARE, 1 / (1 + UNDECLARED_WORTH * sessions / self.replicas))

    def write(self, tokens: float) -> None:
        """Record tokens that peers have written into the caches."""
        self._written += tokens

    def use(self, prefix: PrefixKey, tokens: int, written: float, *, begins: bool) -> None:
        """Record a request with a prefix.

        Args:
            prefix: the prefix.
            tokens: its length.
            written: tokens that the request is expected to write into a cache.
            begins: True if its session begins with it, as far as is known.
        """
        self.sessions.use(prefix, begins=begins)
        self._written += written
        used = self._used
        known = used.get(prefix)
        used[prefix] = self._written, tokens
        if known is not None:
            self._tokens -= known[1]
            used.move_to_end(prefix)
        self._tokens += tokens
        oldest = self._written - self.replicas * self.capacity
        while True:
            first = next(iter(used))
            at, size = used[first]
            if at >= oldest and len(used) <= LIMIT:
                break
            del used[first]
            self._tokens -= size
