"""The hit rate of a group over the last minutes, from its engines' counters: what clients' requests found in cache.

Counters begin anew with each engine process, so a series belongs to one container, and its first reading is its
baseline: what ran before it, its warm-up above all, is not counted. What the operator itself sends later is subtracted.
Unknown is not zero: without two readings and without lookups between them there is no rate.
"""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from promptgroup_operator.observed import Reading, Spent

WINDOW = timedelta(minutes=5)
"""How far back the rate looks."""
PERIOD = timedelta(seconds=30)
"""Time between readings of one engine."""


@dataclass(frozen=True, slots=True)
class _Clients:
    """An engine's counters without the operator's own part."""

    at: datetime
    queries: float
    hits: float


@dataclass(slots=True)
class _Series:
    readings: deque[_Clients]
    active: datetime
    """When the engine was last seen to have computed a client's prompt since the reading before."""
    queries: float
    """The latest reading, as the engine gave it."""
    own_queries: int = 0
    own_hits: int = 0
    """The operator's own tokens since the first reading."""
    anew: bool = False
    """Whether the next reading is a baseline, since a part of the growth before it is not known to be whose."""


class HitRates:
    """Readings of all engines, by container. Losing them costs a window of knowledge, nothing else."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._lock = threading.Lock()

    def due(self, container: str, now: datetime) -> bool:
        """Whether the engine should be read again."""
        with self._lock:
            series = self._series.get(container)
            return series is None or now - series.readings[-1].at >= PERIOD

    def spend(self, container: str, spent: Spent) -> None:
        """The operator's own requests added so much to the engine's counters; no reading was taken meanwhile."""
        with self._lock:
            series = self._series.get(container)
            if series is not None:
                series.own_queries += spent.queries
                series.own_hits += spent.hits or 0
                series.anew |= spent.hits is None

    def add(self, container: str, reading: Reading, now: datetime) -> None:
        """Keep a reading."""
        with self._lock:
            series = self._series.get(container)
            if series is None or reading.queries < series.queries:
                self._series[container] = _Series(
                    deque([_Clients(now, reading.queries, reading.hits)]), now, reading.queries
                )
                return
            clients = _Clients(now, reading.queries - series.own_queries, reading.hits - series.own_hits)
            if clients.queries > series.readings[-1].queries:
                series.active = now
            if series.anew:
                series.readings.clear()
                series.anew = False
            series.queries = reading.queries
            series.readings.append(clients)
            while len(series.readings) > 2 and now - series.readings[1].at >= WINDOW:
                series.readings.popleft()

    def rate(self, containers: Iterable[str]) -> float | None:
        """Share of prompt tokens found in cache, all containers together; None when nothing is known."""
        hits = queries = 0.0
        with self._lock:
            for container in containers:
                series = self._series.get(container)
                if series is not None:
                    first, last = series.readings[0], series.readings[-1]
                    hits += last.hits - first.hits
                    queries += last.queries - first.queries
        return hits / queries if queries > 0 else None

    def quiet_since(self, containers: Iterable[str]) -> datetime | None:
        """Since when none of the containers was seen to work for a client; None when none is known."""
        with self._lock:
            return max((self._series[each].active for each in containers if each in self._series), default=None)

    def forget(self, now: datetime) -> None:
        """Drop the series of engines that are gone."""
        with self._lock:
            gone = [key for key, series in self._series.items() if now - series.readings[-1].at > 2 * WINDOW]
            for key in gone:
                del self._series[key]
