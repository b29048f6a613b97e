"""Counts the sessions that come back and the tokens of cache that they need, for the operator's sizing.

A session counts from its second request on, because one that came back is likely to come again, for as long as it was
served lately. It belongs to the router that served it last: another router's placement removes it here, so that routers
that know each other count no session twice. Does no I/O and reads no clock.
"""

from collections import OrderedDict

LIMIT = 100_000
"""Most sessions counted, as many as `session_locations` remembers; the longest silent are dropped first."""
SESSION_SECONDS = 180.0
"""Seconds of silence after which a session is not expected back: people take about a minute to read a long answer and
reply."""


class Sessions:
    """The sessions of this router. Times must not decrease."""

    __slots__ = ("_sessions", "_totals")

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, tuple[int, float, float]] = OrderedDict()
        """Session → its Tier-1 prefix, its tokens beyond that, and when it was served last; the longest silent
        first."""
        self._totals: dict[int, list[float]] = {}
        """Tier-1 prefix → [sessions, their tokens]."""

    def __contains__(self, session: int) -> bool:
        return session in self._sessions

    def served(self, session: int, prefix: int, tokens: float, now: float) -> None:
        """Count a session that has come back, with its tokens beyond the prefix."""
        self.drop(session)
        self._sessions[session] = prefix, tokens, now
        total = self._totals.get(prefix)
        if total is None:
            self._totals[prefix] = [1, tokens]
        else:
            total[0] += 1
            total[1] += tokens
        if len(self._sessions) > LIMIT:
            self.drop(next(iter(self._sessions)))

    def drop(self, session: int) -> None:
        """Stop counting a session, which another router serves or which has ended."""
        known = self._sessions.pop(session, None)
        if known is None:
            return
        prefix, tokens, _ = known
        total = self._totals[prefix]
        total[0] -= 1
        total[1] -= tokens
        if not total[0]:
            del self._totals[prefix]

    def totals(self, now: float) -> dict[int, tuple[int, int]]:
        """Return Tier-1 prefix → the sessions that are expected back, and their tokens beyond the prefix."""
        while self._sessions:
            session, (_, _, seen) = next(iter(self._sessions.items()))
            if now - seen <= SESSION_SECONDS:
                break
            self.drop(session)
        return {prefix: (int(count), round(tokens)) for prefix, (count, tokens) in self._totals.items()}
