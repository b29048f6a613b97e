"""Decides which sessions are admitted to a replica, by the working set of its KV cache.

A KV cache that is too small for the sessions that alternate on it is useless to all of them. Each turn evicts the
blocks that the next turn needs. Recomputing them delays every decode, requests run longer and occupy more of the cache.
An engine in this state serves a quarter of the load that it could serve, and it stays in this state after the burst
that caused it is over. This is the thrashing of virtual memory, and the remedy is the same (Denning, 1968: a process
runs only while its working set fits): a session is admitted to a replica only while the live sessions of that replica
fit its cache. Other sessions wait in the router, where they occupy no cache, or are refused.
"""

import heapq
import math

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.rings.ids import PrefixKey

LIVE_SECONDS = 5.0
"""Seconds for which a session counts as live after its last answer. Agents send their next turn within seconds; a
session that returns later is admitted anew."""
LEARNED = 0.02
"""Step of the moving average of the share of sessions that return in time: the weight of one session's outcome. A
hundred outcomes are observed within a minute. People read for half a minute: if their idle sessions counted in full,
sessions that have ended would block the admission of new ones. Sessions after their first turn are measured separately:
single questions never return, agents nearly always do, and a replica may have both at once."""
FIRST = 3
"""Number of observations that the initial value counts as: the first observed sessions move it by more than
LEARNED."""
UNHEARD_SECONDS = 60.0
"""Seconds for which a peer's request counts if its end is never reported."""
NEW_SHARE = 0.75
"""Share of a cache that all sessions may fill for a new session to be admitted: it will grow, and so will the
others."""
RETURNING_SHARE = 0.85
"""The same share for a returning session whose history must be recomputed."""
LIVE_SHARE = 0.95
"""The same share for a session that is live on the replica. Beyond it, returning sessions are evicted one by one."""

UNLIKELY = 0.5
"""Share of sessions that return in time below which such sessions do not wait for capacity."""
KEPT_SHARE = 0.5
"""Share of a cache up to which UNLIKELY applies. Where returning sessions occupy more, capacity is reserved for
them."""

LARGEST_SHARE = 0.25
"""Largest share of a cache that a session is assumed to need. A long prompt that waited until most of the cache is idle
would wait for ever under traffic; when it is admitted, it evicts other sessions once."""


class _Session:
    __slots__ = (
        "back", "discount", "in_flight", "looked_at", "prefix", "returned", "running", "shared", "size", "tokens",
        "until",
    )  # fmt: skip

    def __init__(self, prefix: PrefixKey) -> None:
        self.prefix = prefix
        self.tokens = 0.0
        """Tokens beyond those that it shares with other sessions."""
        self.shared = 0
        """Tokens that it shares with others, Tier 1 included."""
        self.size = 0
        """Size of the longest request of the session that this router has sent."""
        self.discount = 0.0
        """Share of the session's tokens that does not count between two turns, because it may not return in time."""
        self.returned = 0
        """1 once the session has returned for a later turn, else 0."""
        self.back = True
        """True if the session has returned since its last answer."""
        self.running = 0
        """1 while a request of the session is in flight, be it a peer's, else 0."""
        self.in_flight = 0
        self.until = 0.0
        self.looked_at = math.inf
        """Time of the session's valid entry in the heap; infinity without one."""


class _Prefix:
    """A prefix that sessions share."""

    __slots__ = ("sessions", "tokens", "weight")

    def __init__(self, tokens: float) -> None:
        self.tokens = tokens
        self.sessions = 0
        self.weight = 0.0
        """Sum of the shares by which its sessions count; the prefix counts in full once this is 1 or more."""


class WorkingSet:
    """The live sessions of one replica. Times must not decrease."""

    __slots__ = ("_ends", "_prefixes", "_seen", "_sessions", "kept", "returning", "running", "tokens")

    def __init__(self) -> None:
        self.tokens = 0.0
        """Tokens of all live sessions: a shared prefix counts once, a session between two turns by the share of
        sessions that return."""
        self.kept = 0.0
        """Unshared tokens of the live sessions that have returned at least once."""
        self.running = 0.0
        """Unshared tokens of the sessions that have a request in flight."""
        self.returning = [0.0, 1.0]
        """Share of the sessions that return in time: after their first turn, and after a later one. A return is
        observed at once, but a session that does not return only after seconds, in which a flood of single questions
        would block its own admission. Therefore the first share begins at 0: caches are empty at first, or hold
        sessions that the router has no record of."""
        self._seen = [0, 0]
        """The number of observed sessions, for each of the two shares."""
        self._sessions: dict[SessionKey, _Session] = {}
        self._prefixes: dict[PrefixKey, _Prefix] = {}
        self._ends: list[tuple[float, SessionKey]] = []
        """Heap of (time when a session may have ended, session). A session that is still live is pushed again with its
        later time when its entry is due, so that a request needs no heap entry of its own."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: SessionKey) -> bool:
        return session in self._sessions

    def shared(self, session: SessionKey) -> int:
        """Return the tokens that a live session shares with other sessions; -1 if the session is not live here."""
        entry = self._sessions.get(session)
        return entry.shared if entry is not None else -1

    def running_beside(self, session: SessionKey) -> float:
        """Return the unshared tokens of the other sessions that have a request in flight."""
        entry = self._sessions.get(session)
        return self.running - entry.tokens * entry.running if entry is not None else self.running

    def need(self, session: SessionKey, prefix: PrefixKey, tier1: float, tokens: float) -> float:
        """Return the tokens by which a session with `tokens` unshared tokens would enlarge the working set."""
        entry = self._sessions.get(session)
        if entry is not None:
            return tokens - entry.tokens * (1 - entry.discount)
        held = self._prefixes.get(prefix)
        return tokens + (tier1 if held is None else tier1 * (1 - min(1.0, held.weight)))

    def enter(
        self, session: SessionKey, prefix: PrefixKey, tier1: float, tokens: float, *, shared: int = 0,
        returned: bool = False, size: int = 0,
    ) -> None:  # fmt: skip
        """Record a request of the session that is sent to the replica.

        Args:
            session: the session.
            prefix: its Tier-1 prefix.
            tier1: tokens of that prefix.
            tokens: unshared tokens of the session.
            shared: tokens that other sessions have computed, Tier 1 included.
            returned: True if the request says that this is a later turn than the first.
            size: size of the prompt, see `Demand.size`.
        """
        self.arrive(session, size, later=returned)
        entry = self._add(session, prefix, tier1, tokens)
        entry.shared = shared
        entry.size = max(entry.size, size)
        self._resume(entry)
        if returned:
            self._has_returned(entry)
        entry.in_flight += 1

    def leave(self, session: SessionKey, now: float) -> None:
        """Record the end of a request; the session stays live for a while."""
        entry = self._sessions.get(session)
        if entry is None or not entry.in_flight:
            return  # the session has moved to another replica meanwhile
        entry.in_flight -= 1
        if not entry.in_flight:
            self._rest(entry)
        self._keep(session, entry, now + LIVE_SECONDS)

    def arrive(self, session: SessionKey, size: int, *, later: bool) -> None:
        """Record that a request of the session has arrived at the router, whether or not it can be admitted.

        A chat says which turn it is; a text does not. A text is a later turn if it is longer than all before it. That
        distinguishes conversations from questions about one document: these are one session, since they begin alike,
        but none of them continues another.

        Args:
            session: the session.
            size: size of the prompt, see `Demand.size`.
            later: True if the request says that this is a later turn than the first.
        """
        entry = self._sessions.get(session)
        if entry is not None:
            self._came_back(entry, continues=later or size > entry.size)

    def hold(self, session: SessionKey) -> None:
        """Record that a request of the session waits in the router: until it is sent, the session takes no room."""
        entry = self._sessions.get(session)
        if entry is not None and not entry.running:
            self._weigh(entry, 1.0)

    def heard(
        self, session: SessionKey, prefix: PrefixKey, tier1: float, tokens: float, now: float, *, ended: bool,
        shared: int = 0, returned: bool = True,
    ) -> None:  # fmt: skip
        """Record that a peer has sent a request of the session to the replica, or that such a request has ended.

        Args:
            session: the session.
            prefix: its Tier-1 prefix.
            tier1: tokens of that prefix.
            tokens: unshared tokens of the session.
            now: monotonic seconds.
            ended: True if the request has ended.
            shared: tokens that other sessions have computed, Tier 1 included.
            returned: True if it is known to be a later turn than the last one. Otherwise it says nothing about returns.
        """
        entry = self._add(session, prefix, tier1, tokens)
        entry.shared = shared
        if not returned:
            entry.back = True
        self._resume(entry)
        if ended and not entry.in_flight:
            self._rest(entry)
        entry.until = 0.0
        self._keep(session, entry, now + (LIVE_SECONDS if ended else UNHEARD_SECONDS))

    def expire(self, now: float) -> None:
        """Drop the sessions that did not return in time."""
        ends = self._ends
        while ends and ends[0][0] <= now:
            at, session = heapq.heappop(ends)
            entry = self._sessions.get(session)
            if entry is None or entry.looked_at != at:
                continue
            entry.looked_at = math.inf
            if entry.in_flight:
                continue  # `leave` pushes it again
            if entry.until > now:
                self._look_at(session, entry)
                continue
            if not entry.back:
                self._learn(entry, 0.0)
            self.drop(session)

    def drop(self, session: SessionKey) -> None:
        """Drop a session from the working set, for example because it has moved to another replica."""
        entry = self._sessions.pop(session, None)
        if entry is None:
            return
        self._weigh(entry, 1.0)
        self.kept -= entry.tokens * entry.returned
        self.running -= entry.tokens * entry.running
        prefix = self._prefixes[entry.prefix]
        prefix.sessions -= 1
        if not prefix.sessions:
            del self._prefixes[entry.prefix]
        if not self._sessions:
            self.tokens = self.kept = self.running = 0.0  # resets the rounding errors of the sums

    def seldom_returns(self, *, later: bool) -> bool:
        """Return True if sessions are expected to end with their first turn, or with a later one."""
        return self.returning[later] < UNLIKELY

    def in_flight(self, session: SessionKey) -> bool:
        """Return True if a request of the session is in flight on the replica."""
        entry = self._sessions.get(session)
        return entry is not None and entry.in_flight > 0

    def _add(self, session: SessionKey, prefix: PrefixKey, tier1: float, tokens: float) -> _Session:
        entry = self._sessions.get(session)
        if entry is not None and entry.prefix != prefix:
            running, returned, back, until = entry.in_flight, entry.returned, entry.back, entry.until
            size = entry.size
            self.drop(session)
            entry = self._add(session, prefix, tier1, tokens)
            entry.in_flight, entry.back, entry.size = running, back, size
            if returned:
                self._has_returned(entry)
            self._keep(session, entry, until)
            return entry
        if entry is None:
            entry = self._sessions[session] = _Session(prefix)
            shared = self._prefixes.get(prefix)
            if shared is None:
                shared = self._prefixes[prefix] = _Prefix(tier1)
            shared.sessions += 1
            entry.discount = 1.0
            self._weigh(entry, 0.0)
        self._grow(entry, tokens)
        return entry

    def _grow(self, entry: _Session, tokens: float) -> None:
        if tokens > entry.tokens:
            self.tokens += (tokens - entry.tokens) * (1 - entry.discount)
            self.kept += (tokens - entry.tokens) * entry.returned
            self.running += (tokens - entry.tokens) * entry.running
            entry.tokens = tokens

    def _weigh(self, entry: _Session, discount: float) -> None:
        """Count a session, and its shared prefix, with another discount."""
        change = entry.discount - discount
        entry.discount = discount
        self.tokens += entry.tokens * change
        prefix = self._prefixes[entry.prefix]
        before = min(1.0, prefix.weight)
        prefix.weight += change
        self.tokens += prefix.tokens * (min(1.0, prefix.weight) - before)

    def _rest(self, entry: _Session) -> None:
        """Discount a session between two turns by the share of sessions that do not return."""
        entry.back = False
        self.running -= entry.tokens * entry.running
        entry.running = 0
        self._weigh(entry, 1 - self.returning[entry.returned])

    def _resume(self, entry: _Session) -> None:
        self._came_back(entry)
        self.running += entry.tokens * (1 - entry.running)
        entry.running = 1
        self._weigh(entry, 0.0)

    def _came_back(self, entry: _Session, *, continues: bool = True) -> None:
        """Count a request of a session, which continues an earlier one or begins anew."""
        if not entry.back:
            entry.back = True
            self._learn(entry, float(continues))
            if continues:
                self._has_returned(entry)
        if not continues:
            self.kept -= entry.tokens * entry.returned
            entry.returned = 0

    def _has_returned(self, entry: _Session) -> None:
        self.kept += entry.tokens * (1 - entry.returned)
        entry.returned = 1

    def _learn(self, entry: _Session, back: float) -> None:
        """Update the share of returning sessions with one that returned in time (1), or did not (0)."""
        of = entry.returned
        self._seen[of] += 1
        self.returning[of] += max(LEARNED, 1 / (FIRST + self._seen[of])) * (back - self.returning[of])

    def _keep(self, session: SessionKey, entry: _Session, until: float) -> None:
        if until > entry.until:
            entry.until = until
            if until < entry.looked_at:
                self._look_at(session, entry)

    def _look_at(self, session: SessionKey, entry: _Session) -> None:
        entry.looked_at = entry.until
        heapq.heappush(self._ends, (entry.until, session))
