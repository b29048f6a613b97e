"""Which sessions come back, and how much of a cache they want: what sizing asks of routers. Pure, bounded.

A session counts from its second request on, since one that came back is likely to come again, and as long as it was
served lately. Its router is the one that served it last: another's news of it takes it off this router's books, so that
routers that know each other count no session twice.
"""

from collections import OrderedDict

LIMIT = 100_000
"""Sessions on the books, as many as locations are remembered; the longest silent go first."""
SESSION_SECONDS = 180.0
"""A session that was silent for longer is not expected back: people take a minute to read a long answer and reply."""


class Sessions:
    """The books. Times must not run backwards."""

    __slots__ = ("_sessions", "_totals")

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, tuple[int, float, float]] = OrderedDict()
        """Session → its Tier-1 prefix, its tokens beyond that, when it was served last; the longest silent first."""
        self._totals: dict[int, list[float]] = {}
        """Tier-1 prefix → [sessions, their tokens]."""

    def __contains__(self, session: int) -> bool:
        return session in self._sessions

    def served(self, session: int, prefix: int, tokens: float, now: float) -> None:
        """This router serves a request of a session that has come back, or has served it."""
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
        """The session is no business of this router any more."""
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
        """Tier-1 prefix → sessions that are expected back, and their tokens beyond the prefix."""
        while self._sessions:
            session, (_, _, seen) = next(iter(self._sessions.items()))
            if now - seen <= SESSION_SECONDS:
                break
            self.drop(session)
        return {prefix: (int(count), round(tokens)) for prefix, (count, tokens) in self._totals.items()}
