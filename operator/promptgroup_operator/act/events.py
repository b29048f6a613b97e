"""Aggregate events, as client-go's EventCorrelator does: repetitions are counted, and a group that emits many waits.

Does no I/O and reads no clock. Losing its memory costs a repeated event.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from promptgroup_operator.world.effects import Event

REPEATED = timedelta(minutes=1)
"""An event that is repeated within so long is counted instead of created."""
BURST = 25
"""Events that a group may create at once, as in client-go's spam filter."""
REFILL = timedelta(minutes=5)
"""Time after which a group that used its burst may create one more, as in client-go."""
REMEMBERED = 4096
"""Groups and events that are remembered; the oldest are forgotten first, as in client-go's cache."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Counted:
    """Count of an event since it was first seen."""

    count: int
    first: datetime


class EventAggregator:
    """Decides which events are created. Not thread-safe."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, Event], tuple[Counted, datetime]] = OrderedDict()
        """uid and event → its count, and when it was created last."""
        self._budgets: OrderedDict[str, tuple[float, datetime]] = OrderedDict()
        """uid → events that may be created, as of a time."""

    def add(self, uid: str, event: Event, now: datetime) -> Counted | None:
        """Return how often the event happened, if it is to be created now; None if it is only counted.

        Args:
            uid: uid of the object that the event is about.
            event: the event.
            now: the time.
        """
        before, created = self._seen.get((uid, event), (Counted(0, now), now - REPEATED))
        counted = Counted(before.count + 1, before.first)
        due = now - created >= REPEATED and self._spend(uid, now)
        _remember(self._seen, (uid, event), (counted, now if due else created))
        return counted if due else None

    def _spend(self, uid: str, now: datetime) -> bool:
        tokens, at = self._budgets.get(uid, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - at) / REFILL)
        enough = tokens >= 1
        _remember(self._budgets, uid, (tokens - enough, now))
        return enough


def _remember(memory: OrderedDict[K, V], key: K, value: V) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)
