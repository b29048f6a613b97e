"""Which sessions live on a replica, and whether one more fits: admission by working set. Pure.

A cache that is too small for the sessions that take turns on it is useless to all of them: each turn evicts what the
next one needs, computing it anew holds up everybody's decoding, requests stay longer and pin more of the cache. Once
there, an engine serves a quarter of what it could, and stays there after the burst that brought it there is over. It
is the thrashing of virtual memory, and so is the cure (Denning, 1968: a process runs only while its working set fits):
a session is let onto a replica only while the sessions that live there fit its cache. Others wait in the router, where
they pin nothing, or are refused.
"""

import heapq

LIVE_SECONDS = 5.0
"""After its last answer a session counts as live for so long: agents come back within seconds. One that comes back
later is let in anew."""
LEARNED = 0.02
"""How far one session that came back in time, or did not, moves the share that is expected to: a hundred are known
within a minute. People read for half a minute: counted in full, those who have left would keep out those who come."""
UNHEARD_SECONDS = 60.0
"""A peer's request whose end was never heard counts no longer than this."""

NEW_SHARE = 0.75
"""Share of a cache that a new session must find room in: it will grow, and so will those that are there."""
RETURNING_SHARE = 0.85
"""The same for a session whose history must be computed again."""
LIVE_SHARE = 0.95
"""The same for a session that lives there. Past it the sessions that come back are swapped out, one by one."""

LARGEST_SHARE = 0.25
"""No session is held to need more of a cache than this: a long prompt that waits for most of it to be idle would wait
for ever where there is traffic, and evicts once."""


class _Session:
    __slots__ = ("back", "discount", "in_flight", "prefix", "tokens", "until")

    def __init__(self, prefix: int, tokens: float) -> None:
        self.prefix = prefix
        self.tokens = tokens
        """Beyond the Tier-1 prefix."""
        self.discount = 0.0
        """Of these, what does not count between two turns, since the session may not come back in time."""
        self.back = True
        """Whether it has come back since its last answer."""
        self.in_flight = 0
        self.until = 0.0


class WorkingSet:
    """Sessions that live on one replica. Times must not run backwards."""

    __slots__ = ("_ends", "_prefixes", "_sessions", "returning", "tokens")

    def __init__(self) -> None:
        self.tokens = 0.0
        """Of all live sessions, a shared Tier-1 prefix once; of one between two turns, the share that comes back."""
        self.returning = 1.0
        """Share of the sessions that come back in time."""
        self._sessions: dict[int, _Session] = {}
        self._prefixes: dict[int, list[float]] = {}
        """Tier-1 prefix → [its tokens, live sessions that have it]."""
        self._ends: list[tuple[float, int]] = []
        """(when it may have ended, session), a heap; entries may be out of date."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: int) -> bool:
        return session in self._sessions

    def need(self, session: int, prefix: int, tier1: float, tokens: float) -> float:
        """Tokens that a session with so many beyond its Tier-1 prefix would add."""
        known = self._sessions.get(session)
        if known is not None:
            return tokens - known.tokens + known.discount
        return tokens if prefix in self._prefixes else tokens + tier1

    def enter(self, session: int, prefix: int, tier1: float, tokens: float) -> None:
        """A request of the session is sent there."""
        known = self._add(session, prefix, tier1, tokens)
        self._resume(known)
        known.in_flight += 1

    def leave(self, session: int, now: float) -> None:
        """The request is over; the session stays live for a while."""
        known = self._sessions.get(session)
        if known is None or not known.in_flight:
            return  # it has moved meanwhile
        known.in_flight -= 1
        if not known.in_flight:
            self._rest(known)
        self._keep(session, known, now + LIVE_SECONDS)

    def arrive(self, session: int) -> None:
        """A request of the session has come, whether or not there is room for it."""
        known = self._sessions.get(session)
        if known is not None:
            self._came_back(known)

    def heard(self, session: int, prefix: int, tier1: float, tokens: float, now: float, *, ended: bool) -> None:
        """A peer has sent a request of the session there, or it has ended."""
        known = self._add(session, prefix, tier1, tokens)
        self._resume(known)
        if ended and not known.in_flight:
            self._rest(known)
        known.until = 0.0
        self._keep(session, known, now + (LIVE_SECONDS if ended else UNHEARD_SECONDS))

    def expire(self, now: float) -> None:
        """Forget the sessions that did not come back."""
        ends = self._ends
        while ends and ends[0][0] <= now:
            _, session = heapq.heappop(ends)
            known = self._sessions.get(session)
            if known is not None and not known.in_flight and known.until <= now:
                if not known.back:
                    self.returning -= LEARNED * self.returning
                self.drop(session)

    def drop(self, session: int) -> None:
        """The session lives there no more."""
        known = self._sessions.pop(session, None)
        if known is None:
            return
        self.tokens -= known.tokens - known.discount
        prefix = self._prefixes[known.prefix]
        prefix[1] -= 1
        if not prefix[1]:
            self.tokens -= prefix[0]
            del self._prefixes[known.prefix]
        if not self._sessions:
            self.tokens = 0.0  # sums of floats drift

    def in_flight(self, session: int) -> bool:
        """Whether a request of the session runs there."""
        known = self._sessions.get(session)
        return known is not None and known.in_flight > 0

    def _add(self, session: int, prefix: int, tier1: float, tokens: float) -> _Session:
        known = self._sessions.get(session)
        if known is not None and known.prefix != prefix:
            running = known.in_flight
            self.drop(session)
            known = self._add(session, prefix, tier1, tokens)
            known.in_flight = running
            return known
        if known is None:
            known = self._sessions[session] = _Session(prefix, 0.0)
            shared = self._prefixes.get(prefix)
            if shared is None:
                self._prefixes[prefix] = [tier1, 1]
                self.tokens += tier1
            else:
                shared[1] += 1
        self._grow(known, tokens)
        return known

    def _grow(self, known: _Session, tokens: float) -> None:
        if tokens > known.tokens:
            self.tokens += tokens - known.tokens
            known.tokens = tokens

    def _rest(self, known: _Session) -> None:
        """Between two turns it counts as much as sessions are used to come back."""
        known.back = False
        known.discount = (1 - self.returning) * known.tokens
        self.tokens -= known.discount

    def _resume(self, known: _Session) -> None:
        self._came_back(known)
        self.tokens += known.discount
        known.discount = 0.0

    def _came_back(self, known: _Session) -> None:
        if not known.back:
            known.back = True
            self.returning += LEARNED * (1 - self.returning)

    def _keep(self, session: int, known: _Session, until: float) -> None:
        if until > known.until:
            known.until = until
            heapq.heappush(self._ends, (until, session))
