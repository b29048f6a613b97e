"""Decides which sessions may live on a replica: admission by working set.

A cache that is too small for the sessions that take turns on it is useless to all of them. Each turn evicts what the
next one needs. Computing that again delays every decode, requests stay longer and hold more of the cache. An engine in
this state serves a quarter of what it could and stays there after the burst that caused it is over. This is the
thrashing of virtual memory, and so is the cure (Denning, 1968: a process runs only while its working set fits): a
session is admitted to a replica only while the sessions that live there fit its cache. Others wait in the router, where
they hold no cache, or are refused.
"""

import heapq
import math

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.rings.ids import PrefixKey

LIVE_SECONDS = 5.0
"""Seconds for which a session counts as live after its last answer. Agents come back within seconds; a session that
comes back later is admitted anew."""
LEARNED = 0.02
"""Step by which one session that came back in time, or did not, moves the share that is expected to. A hundred sessions
are known within a minute. People read for half a minute: counted in full, those who have left would keep out those who
come. Sessions after their first turn are known apart from others: single questions never come back, agents nearly
always do, and both may be there at once."""
FIRST = 3
"""Sessions that the first value counts for: the first ones that are seen move it by more than LEARNED."""
UNHEARD_SECONDS = 60.0
"""Seconds for which a peer's request counts whose end was never reported."""

NEW_SHARE = 0.75
"""Share of a cache in which a new session must find room: it will grow, and so will the others."""
RETURNING_SHARE = 0.85
"""The same share for a session whose history must be computed again."""
LIVE_SHARE = 0.95
"""The same share for a session that lives there. Beyond it the sessions that come back are evicted one by one."""

UNLIKELY = 0.5
"""Share of sessions that come back in time below which none of them is kept waiting for room."""
KEPT_SHARE = 0.5
"""Share of a cache up to which that holds. Where sessions that do come back have more, room is kept for them."""

LARGEST_SHARE = 0.25
"""Largest share of a cache that a session is taken to need. A long prompt that waited for most of the cache to be idle
would wait for ever under traffic; admitted, it evicts once."""


class _Session:
    __slots__ = ("back", "discount", "in_flight", "looked_at", "prefix", "returned", "shared", "tokens", "until")

    def __init__(self, prefix: PrefixKey) -> None:
        self.prefix = prefix
        self.tokens = 0.0
        """Tokens beyond what it shares."""
        self.shared = 0
        """Tokens that it shares with others, Tier 1 included."""
        self.discount = 0.0
        """Share of the session that does not count between two turns, because it may not come back in time."""
        self.returned = 0
        """1 once the session has come back, else 0."""
        self.back = True
        """True if the session has come back since its last answer."""
        self.in_flight = 0
        self.until = 0.0
        self.looked_at = math.inf
        """Time at which the heap has the session next."""


class _Prefix:
    """A prefix that sessions share."""

    __slots__ = ("sessions", "tokens", "weight")

    def __init__(self, tokens: float) -> None:
        self.tokens = tokens
        self.sessions = 0
        self.weight = 0.0
        """Sum of the shares by which its sessions count; it counts whole from 1 on."""


class WorkingSet:
    """The sessions that live on one replica. Times must not decrease."""

    __slots__ = ("_ends", "_prefixes", "_seen", "_sessions", "kept", "returning", "tokens")

    def __init__(self) -> None:
        self.tokens = 0.0
        """Tokens of all live sessions: a shared prefix counts once, a session between two turns by the share that comes
        back."""
        self.kept = 0.0
        """Tokens of their own of the live sessions that have come back."""
        self.returning = [0.0, 1.0]
        """Share of the sessions that come back in time: after their first turn, and after a later one. Those that do
        are seen at once and those that do not after seconds, in which a flood of single questions would keep itself
        out; caches are empty at first, or hold sessions that nobody knows."""
        self._seen = [0, 0]
        """The number of sessions that each share was learned from."""
        self._sessions: dict[SessionKey, _Session] = {}
        self._prefixes: dict[PrefixKey, _Prefix] = {}
        self._ends: list[tuple[float, SessionKey]] = []
        """Heap of (time when a session may have ended, session). A session that lives on is put back with its later
        time once its entry is due, so that a request costs no entry of its own."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: SessionKey) -> bool:
        return session in self._sessions

    def shared(self, session: SessionKey) -> int:
        """Return the tokens of a live session that are counted as other sessions'; -1 if it does not live there."""
        known = self._sessions.get(session)
        return known.shared if known is not None else -1

    def need(self, session: SessionKey, prefix: PrefixKey, tier1: float, tokens: float) -> float:
        """Return the tokens that a session with `tokens` of its own would add."""
        known = self._sessions.get(session)
        if known is not None:
            return tokens - known.tokens * (1 - known.discount)
        held = self._prefixes.get(prefix)
        return tokens + (tier1 if held is None else tier1 * (1 - min(1.0, held.weight)))

    def enter(
        self, session: SessionKey, prefix: PrefixKey, tier1: float, tokens: float, *, shared: int = 0,
        returned: bool = False,
    ) -> None:  # fmt: skip
        """Record a request of the session that is sent there.

        Args:
            session: the session.
            prefix: its Tier-1 prefix.
            tier1: tokens of that.
            tokens: tokens of its own.
            shared: tokens that other sessions have computed, Tier 1 included.
            returned: whether this is a later turn.
        """
        known = self._add(session, prefix, tier1, tokens)
        known.shared = shared
        self._resume(known)
        if returned:
            self._has_returned(known)
        known.in_flight += 1

    def leave(self, session: SessionKey, now: float) -> None:
        """Record the end of a request; the session stays live for a while."""
        known = self._sessions.get(session)
        if known is None or not known.in_flight:
            return  # it has moved meanwhile
        known.in_flight -= 1
        if not known.in_flight:
            self._rest(known)
        self._keep(session, known, now + LIVE_SECONDS)

    def arrive(self, session: SessionKey) -> None:
        """Record that a request of the session has arrived at the router, with or without room for it."""
        known = self._sessions.get(session)
        if known is not None:
            self._came_back(known)

    def heard(
        self, session: SessionKey, prefix: PrefixKey, tier1: float, tokens: float, now: float, *, ended: bool,
        shared: int = 0,
    ) -> None:  # fmt: skip
        """Record that a peer has sent a request of the session there, or that it has ended."""
        known = self._add(session, prefix, tier1, tokens)
        known.shared = shared
        self._resume(known)
        if ended and not known.in_flight:
            self._rest(known)
        known.until = 0.0
        self._keep(session, known, now + (LIVE_SECONDS if ended else UNHEARD_SECONDS))

    def expire(self, now: float) -> None:
        """Drop the sessions that did not come back in time."""
        ends = self._ends
        while ends and ends[0][0] <= now:
            at, session = heapq.heappop(ends)
            known = self._sessions.get(session)
            if known is None or known.looked_at != at:
                continue
            known.looked_at = math.inf
            if known.in_flight:
                continue  # its end puts it back
            if known.until > now:
                self._look_at(session, known)
                continue
            if not known.back:
                self._learn(known, 0.0)
            self.drop(session)

    def drop(self, session: SessionKey) -> None:
        """Drop a session that has left."""
        known = self._sessions.pop(session, None)
        if known is None:
            return
        self._weigh(known, 1.0)
        self.kept -= known.tokens * known.returned
        prefix = self._prefixes[known.prefix]
        prefix.sessions -= 1
        if not prefix.sessions:
            del self._prefixes[known.prefix]
        if not self._sessions:
            self.tokens = self.kept = 0.0  # sums of floats drift

    def seldom_returns(self, *, later: bool) -> bool:
        """Return True if sessions are expected to end with their first turn, or with a later one."""
        return self.returning[later] < UNLIKELY

    def in_flight(self, session: SessionKey) -> bool:
        """Return True if a request of the session runs there."""
        known = self._sessions.get(session)
        return known is not None and known.in_flight > 0

    def _add(self, session: SessionKey, prefix: PrefixKey, tier1: float, tokens: float) -> _Session:
        known = self._sessions.get(session)
        if known is not None and known.prefix != prefix:
            running, returned, back, until = known.in_flight, known.returned, known.back, known.until
            self.drop(session)
            known = self._add(session, prefix, tier1, tokens)
            known.in_flight, known.back = running, back
            if returned:
                self._has_returned(known)
            self._keep(session, known, until)
            return known
        if known is None:
            known = self._sessions[session] = _Session(prefix)
            shared = self._prefixes.get(prefix)
            if shared is None:
                shared = self._prefixes[prefix] = _Prefix(tier1)
            shared.sessions += 1
            known.discount = 1.0
            self._weigh(known, 0.0)
        self._grow(known, tokens)
        return known

    def _grow(self, known: _Session, tokens: float) -> None:
        if tokens > known.tokens:
            self.tokens += (tokens - known.tokens) * (1 - known.discount)
            self.kept += (tokens - known.tokens) * known.returned
            known.tokens = tokens

    def _weigh(self, known: _Session, discount: float) -> None:
        """Count a session, and what it shares, with another discount."""
        change = known.discount - discount
        known.discount = discount
        self.tokens += known.tokens * change
        prefix = self._prefixes[known.prefix]
        before = min(1.0, prefix.weight)
        prefix.weight += change
        self.tokens += prefix.tokens * (min(1.0, prefix.weight) - before)

    def _rest(self, known: _Session) -> None:
        """Discount a session between two turns by the share of sessions that do not come back."""
        known.back = False
        self._weigh(known, 1 - self.returning[known.returned])

    def _resume(self, known: _Session) -> None:
        self._came_back(known)
        self._weigh(known, 0.0)

    def _came_back(self, known: _Session) -> None:
        if not known.back:
            known.back = True
            self._learn(known, 1.0)
            self._has_returned(known)

    def _has_returned(self, known: _Session) -> None:
        self.kept += known.tokens * (1 - known.returned)
        known.returned = 1

    def _learn(self, known: _Session, back: float) -> None:
        """Learn from a session that came back in time (1), or did not (0)."""
        of = known.returned
        self._seen[of] += 1
        self.returning[of] += max(LEARNED, 1 / (FIRST + self._seen[of])) * (back - self.returning[of])

    def _keep(self, session: SessionKey, known: _Session, until: float) -> None:
        if until > known.until:
            known.until = until
            if until < known.looked_at:
                self._look_at(session, known)

    def _look_at(self, session: SessionKey, known: _Session) -> None:
        known.looked_at = known.until
        heapq.heappush(self._ends, (known.until, session))
