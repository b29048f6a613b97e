"""Aggregate events, as client-go's EventCorrelator does: repetitions are counted, and a group that emits many waits.

Does no I/O and reads no clock. Losing its memory costs a repeated event.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

from promptgroup_operator.world.effects import Event

REPEATED = timedelta(minutes=1)
"""An event that is repeated within so long is counted instead of created."""
BURST = 25
"""Events that a group may create at once, as in client-go's spam filter."""
REFILL = timedelta(minutes=5)
"""Time after which a group that used its burst may create one more, as in client-go."""
REMEMBERED = 4096
"""Groups and events that are remembered; the oldest are forgotten first, as in client-go's cache."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Count of an event since it was first seen."""

    count: int
    first: datetime


@dataclass(slots=True)
class _Seen:
    count: int
    first: datetime
    created: datetime


@dataclass(slots=True)
class _Budget:
    tokens: float
    at: datetime


class EventAggregator:
    """Decides which events are created. Not thread-safe."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str, str, str], _Seen] = OrderedDict()
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()

    def add(self, uid: str, event: Event, now: datetime) -> Counted | None:
        """Return how often the event happened, if it is to be created now; None if it is only counted.

        Args:
            uid: uid of the object that the event is about.
            event: the event.
            now: the time.
        """
        key = uid, event.type, event.reason, event.message
        seen = self._seen.pop(key, None) or _Seen(0, now, now - REPEATED)
        self._seen[key] = seen
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        seen.count += 1
        if now - seen.created < REPEATED or not self._spend(uid, now):
            return None
        seen.created = now
        return Counted(seen.count, seen.first)

    def _spend(self, uid: str, now: datetime) -> bool:
        budget = self._budgets.pop(uid, None) or _Budget(BURST, now)
        self._budgets[uid] = budget
        while len(self._budgets) > REMEMBERED:
            self._budgets.popitem(last=False)
        budget.tokens = min(float(BURST), budget.tokens + (now - budget.at) / REFILL)
        budget.at = now
        if budget.tokens < 1:
            return False
        budget.tokens -= 1
        return True
