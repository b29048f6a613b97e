"""The hit rate of a group over the last minutes, from its engines' counters.

Counters begin anew with each engine process, so a series belongs to one container, and its first reading is its
baseline: what ran before it, warm-ups above all, is not counted. Unknown is not zero: without two readings and
without lookups between them there is no rate.
"""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from promptgroup_operator.engine import Reading

WINDOW = timedelta(minutes=5)
"""How far back the rate looks."""
PERIOD = timedelta(seconds=30)
"""Time between readings of one engine."""


@dataclass(slots=True)
class _Series:
    readings: deque[tuple[datetime, Reading]]
    active: datetime
    """When the engine was last seen to have computed a prompt since the reading before."""


class HitRates:
    """Readings of all engines, by container. Losing them costs a window of knowledge, nothing else."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._lock = threading.Lock()

    def due(self, container: str, now: datetime) -> bool:
        """Whether the engine should be read again."""
        with self._lock:
            series = self._series.get(container)
            return series is None or now - series.readings[-1][0] >= PERIOD

    def add(self, container: str, reading: Reading, now: datetime) -> None:
        """Keep a reading."""
        with self._lock:
            series = self._series.get(container)
            if series is None:
                self._series[container] = _Series(deque([(now, reading)]), now)
                return
            if reading.queries > series.readings[-1][1].queries:
                series.active = now
            series.readings.append((now, reading))
            while len(series.readings) > 2 and now - series.readings[1][0] >= WINDOW:
                series.readings.popleft()

    def rate(self, containers: Iterable[str]) -> float | None:
        """Share of prompt tokens found in cache, all containers together; None when nothing is known."""
        hits = queries = 0.0
        with self._lock:
            for container in containers:
                series = self._series.get(container)
                if series is not None:
                    first, last = series.readings[0][1], series.readings[-1][1]
                    hits += last.hits - first.hits
                    queries += last.queries - first.queries
        return hits / queries if queries > 0 else None

    def quiet_since(self, containers: Iterable[str]) -> datetime | None:
        """Since when none of the containers was seen to work; None when none is known."""
        with self._lock:
            return max((self._series[each].active for each in containers if each in self._series), default=None)

    def forget(self, now: datetime) -> None:
        """Drop the series of engines that are gone."""
        with self._lock:
            gone = [key for key, series in self._series.items() if now - series.readings[-1][0] > 2 * WINDOW]
            for key in gone:
                del self._series[key]
