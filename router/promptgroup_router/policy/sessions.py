"""Counts the sessions that come back and the tokens of cache that they need, for the operator.

Its sizing needs them by prefix, its choice of the slots that leave by replica.

A session counts from its second request on, because one that came back is likely to come again, for as long as it was
served lately. It belongs to the router that served it last: another router's placement removes it here, so that routers
that know each other count no session twice. Does no I/O and reads no clock.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.rings.ids import MemberId, PrefixKey

LIMIT = 100_000
"""Most sessions counted, as many as `session_locations` remembers; the longest silent are dropped first."""
SESSION_SECONDS = 180.0
"""Seconds of silence after which a session is not expected back: people take about a minute to read a long answer and
reply."""


Process = tuple[MemberId, str]
"""A member's id and its incarnation. A process that takes a slot over has nothing cached of the one before."""


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
    """When it was served last."""


class Sessions:
    """The sessions of this router. Times must not decrease."""

    __slots__ = ("_by_prefix", "_by_process", "_sessions")

    def __init__(self) -> None:
        self._sessions: OrderedDict[SessionKey, SessionRecord] = OrderedDict()
        """The longest silent first."""
        self._by_prefix: dict[PrefixKey, list[float]] = {}
        """Tier-1 prefix → [sessions, their tokens]."""
        self._by_process: dict[Process, list[float]] = {}
        """Process → the same."""

    def __contains__(self, session: SessionKey) -> bool:
        return session in self._sessions

    def served(self, session: SessionKey, record: SessionRecord) -> None:
        """Count a session that has come back."""
        known = self._sessions.pop(session, None)
        self._sessions[session] = record
        if known is not None:
            if known.process == record.process and known.prefix == record.prefix:
                more = record.tokens - known.tokens
                self._by_prefix[record.prefix][1] += more
                self._by_process[record.process][1] += more
                return
            self._subtract(known)
        _add(self._by_prefix, record.prefix, record.tokens)
        _add(self._by_process, record.process, record.tokens)
        if len(self._sessions) > LIMIT:
            self.drop(next(iter(self._sessions)))

    def drop(self, session: SessionKey) -> None:
        """Stop counting a session, which another router serves or which has ended."""
        known = self._sessions.pop(session, None)
        if known is not None:
            self._subtract(known)

    def _subtract(self, known: SessionRecord) -> None:
        _subtract(self._by_prefix, known.prefix, known.tokens)
        _subtract(self._by_process, known.process, known.tokens)

    def totals(self, now: float) -> dict[PrefixKey, tuple[int, int]]:
        """Return Tier-1 prefix → the sessions that are expected back, and their tokens beyond the prefix."""
        while self._sessions:
            session, record = next(iter(self._sessions.items()))
            if now - record.seen <= SESSION_SECONDS:
                break
            self.drop(session)
        return {prefix: (int(count), round(tokens)) for prefix, (count, tokens) in self._by_prefix.items()}

    def of_process(self, process: Process) -> tuple[int, int]:
        """Return the sessions that a process served last, and their tokens beyond their prefixes, as of `totals`."""
        count, tokens = self._by_process.get(process, (0, 0))
        return int(count), max(0, round(tokens))


_Key = TypeVar("_Key", PrefixKey, Process)


def _add(totals: dict[_Key, list[float]], key: _Key, tokens: float) -> None:
    total = totals.get(key)
    if total is None:
        totals[key] = [1, tokens]
    else:
        total[0] += 1
        total[1] += tokens


def _subtract(totals: dict[_Key, list[float]], key: _Key, tokens: float) -> None:
    total = totals[key]
    total[0] -= 1
    total[1] -= tokens
    if not total[0]:
        del totals[key]
