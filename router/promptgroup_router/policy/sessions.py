"""Counts the sessions that return and the cache tokens that they need, for the operator.

The operator sizes groups by the counts per prefix, and chooses the slots to remove by the counts per replica.

A session counts from its second request on, because a session that has returned once is likely to return again, and
stops counting after SESSION_SECONDS of silence. It belongs to the router that served it last: a placement reported by
another router removes it here, so that routers which exchange reports count no session twice.
"""

from collections import OrderedDict
from dataclasses import dataclass

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.rings.ids import MemberId, PrefixKey

LIMIT = 100_000
"""Most sessions counted, as many as `session_locations` stores; the longest silent are dropped first."""
SESSION_SECONDS = 180.0
"""Seconds of silence after which a session is not expected to return: people take about a minute to read a long answer
and reply."""


Process = tuple[MemberId, str]
"""A member's id and its incarnation. A process that takes over a slot has an empty cache."""


@dataclass(slots=True)
class SessionRecord:
    """One session, as it was served last."""

    prefix: PrefixKey
    """The Tier-1 prefix."""
    process: Process
    """The process that served it last."""
    tokens: float
    """Tokens beyond the prefix."""
    seen: float
    """Time at which it was served last."""


class _Totals:
    """The sessions of a prefix or a process, and their tokens."""

    __slots__ = ("sessions", "tokens")

    def __init__(self) -> None:
        self.sessions = 0
        self.tokens = 0.0

    def add(self, tokens: float) -> None:
        """Add a session."""
        self.sessions += 1
        self.tokens += tokens

    def subtract(self, tokens: float) -> None:
        """Subtract a session."""
        self.sessions -= 1
        self.tokens -= tokens


class _Counted:
    """A counted session, with the totals that include it."""

    __slots__ = ("of_prefix", "of_process", "record")

    def __init__(self, record: SessionRecord, of_prefix: _Totals, of_process: _Totals) -> None:
        self.record = record
        self.of_prefix = of_prefix
        self.of_process = of_process


class Sessions:
    """The sessions of this router. Times must not decrease."""

    __slots__ = ("_by_prefix", "_by_process", "_sessions")

    def __init__(self) -> None:
        self._sessions: OrderedDict[SessionKey, _Counted] = OrderedDict()
        """The longest silent first."""
        self._by_prefix: dict[PrefixKey, _Totals] = {}
        """By Tier-1 prefix."""
        self._by_process: dict[Process, _Totals] = {}

    def __contains__(self, session: SessionKey) -> bool:
        return session in self._sessions

    def served(self, session: SessionKey, record: SessionRecord) -> None:
        """Count a session that has returned."""
        known = self._sessions.get(session)
        if known is not None:
            before = known.record
            if before.prefix == record.prefix and before.process == record.process:
                more = record.tokens - before.tokens
                known.of_prefix.tokens += more
                known.of_process.tokens += more
                known.record = record
                self._sessions.move_to_end(session)
                return
            self.drop(session)
        of_prefix = self._by_prefix.setdefault(record.prefix, _Totals())
        of_process = self._by_process.setdefault(record.process, _Totals())
        of_prefix.add(record.tokens)
        of_process.add(record.tokens)
        self._sessions[session] = _Counted(record, of_prefix, of_process)
        if len(self._sessions) > LIMIT:
            self.drop(next(iter(self._sessions)))

    def drop(self, session: SessionKey) -> None:
        """Stop counting a session, which another router serves or which has ended."""
        known = self._sessions.pop(session, None)
        if known is None:
            return
        record, of_prefix, of_process = known.record, known.of_prefix, known.of_process
        of_prefix.subtract(record.tokens)
        of_process.subtract(record.tokens)
        if not of_prefix.sessions:
            del self._by_prefix[record.prefix]
        if not of_process.sessions:
            del self._by_process[record.process]

    def totals(self, now: float) -> dict[PrefixKey, tuple[int, int]]:
        """Return Tier-1 prefix → the sessions that are expected to return, and their tokens beyond the prefix."""
        while self._sessions:
            session, known = next(iter(self._sessions.items()))
            if now - known.record.seen <= SESSION_SECONDS:
                break
            self.drop(session)
        return {prefix: (total.sessions, round(total.tokens)) for prefix, total in self._by_prefix.items()}

    def of_process(self, process: Process) -> tuple[int, int]:
        """Return the sessions that a process served last, and their tokens beyond the prefixes, as of `totals`."""
        total = self._by_process.get(process)
        return (total.sessions, max(0, round(total.tokens))) if total is not None else (0, 0)
