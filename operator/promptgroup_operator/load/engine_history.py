"""Readings of all engines over the last minutes, used for hit rates, sizing and the detection of quiet revisions.

Counters start at zero with each engine process, so a series belongs to one container, and its first reading is its
baseline: requests before it, above all its warm-up, are not counted. The operator's own later requests are subtracted.
Unknown is not zero: without two readings, and without lookups between them, there is no rate.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.load import load_window
from promptgroup_operator.load.load_window import Entry, FoundTokens, OwnRequests, client_hits
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import HIT_RATE_WINDOW, LOAD_WINDOW, PERIOD, GroupLoad
from promptgroup_operator.world.snapshot import ContainerId, Key, Reading, Spent

STALE = 2 * PERIOD
"""Age after which a reading does not describe the present any more."""
EARLY = 3 * PERIOD
"""Age below which an operator or an engine may not have been read twice."""

RevisionKey = tuple[Key, Fingerprint]
"""A group and one of its revisions."""


@dataclass(slots=True)
class _Series:
    of: RevisionKey | None
    entries: deque[Entry] = field(default_factory=deque)
    own: OwnRequests = field(default_factory=OwnRequests)
    """The operator's own requests since the first reading."""
    active: datetime | None = None
    """Time of the last reading that showed a prompt of a client."""
    anew: bool = False
    """True if the growth before the next reading includes requests of the operator whose size is unknown."""


class EngineHistory:
    """Readings by container, bounded in time. If they are lost, figures are missing for the length of a window.

    Safe to use from many threads.
    """

    def __init__(self) -> None:
        self._series: dict[ContainerId, _Series] = {}
        self._of: dict[RevisionKey, set[ContainerId]] = {}
        self._spent: dict[ContainerId, deque[tuple[datetime, Spent]]] = {}
        """Container → the operator's own requests within HIT_RATE_WINDOW."""
        self._began: datetime | None = None
        """Time at which the first pass began."""
        self._lock = threading.Lock()

    def begin(self, now: datetime) -> None:
        """Record that a pass begins; only the first call has an effect."""
        with self._lock:
            self._began = self._began or now

    def due(self, container: ContainerId, now: datetime) -> bool:
        """Return True if the engine should be read; a group at rest is read in each pass."""
        with self._lock:
            series = self._series.get(container)
            return series is None or now - series.entries[-1].at >= PERIOD

    def latest(self, container: ContainerId) -> Reading | None:
        """Return the last reading of an engine; None if it was not read."""
        with self._lock:
            series = self._series.get(container)
            return series.entries[-1].reading if series is not None else None

    def own_queries(self, container: ContainerId) -> float:
        """Return the tokens that the operator's own requests added to an engine's queries since its first reading."""
        with self._lock:
            series = self._series.get(container)
            return series.own.queries if series is not None else 0.0

    def spend(self, container: ContainerId, spent: Spent, now: datetime) -> None:
        """Record what the operator's own requests added to an engine's counters; no reading was taken meanwhile."""
        with self._lock:
            self._spent.setdefault(container, deque()).append((now, spent))
            series = self._series.get(container)
            if series is not None:
                own = series.own
                series.own = OwnRequests(
                    own.queries + spent.queries,
                    own.hits + (spent.hits or 0),
                    own.requests + spent.requests,
                    own.tiered + spent.tiered,
                )
                series.anew |= spent.hits is None

    def add(self, container: ContainerId, reading: Reading, now: datetime, of: RevisionKey | None = None) -> None:
        """Store a reading of an engine of that revision."""
        with self._lock:
            series = self._series.get(container)
            if series is None:
                series = self._series[container] = _Series(of, active=now)
                series.entries.append(Entry(now, reading, series.own, begins=True))
                if of is not None:
                    self._of.setdefault(of, set()).add(container)
                return
            last = series.entries[-1]
            begins = series.anew or load_window.counters_reset(last.reading, reading)
            if begins or _clients(reading, series.own) > _clients(last.reading, last.own):
                series.active = now
            series.anew = False
            series.entries.append(Entry(now, reading, series.own, begins=begins))
            self._bound(series.entries, now)

    @staticmethod
    def _bound(entries: deque[Entry], now: datetime) -> None:
        """Drop the readings that no window needs.

        What stays is a baseline as old as the longer window, and one reading per period.
        """
        if len(entries) > 2 and entries[-2].at - entries[-3].at < PERIOD and not entries[-1].begins:
            last, passed = entries.pop(), entries.pop()
            entries.append(Entry(last.at, last.reading, last.own, begins=passed.begins))
        while len(entries) > 2 and now - entries[1].at >= HIT_RATE_WINDOW:
            entries.popleft()

    def found_tokens(self, containers: Iterable[ContainerId]) -> FoundTokens:
        """Return the clients' prompt tokens over all containers, and how many of them were cached."""
        with self._lock:
            series = (self._series.get(container) for container in containers)
            return sum((client_hits(item.entries) for item in series if item is not None), FoundTokens())

    def rates(self, containers: Iterable[ContainerId]) -> tuple[float | None, float | None]:
        """Return the share of prompt tokens served from cache, and the part of it that KV tiers loaded.

        Both are over all containers, and None without readings.
        """
        return self.found_tokens(containers).rates

    def own(self, containers: Iterable[ContainerId], since: datetime) -> list[Spent]:
        """Return the operator's own requests to these containers since then, as far back as HIT_RATE_WINDOW."""
        with self._lock:
            return [spent for container in containers for at, spent in self._spent.get(container, ()) if at > since]

    def quiet_since(self, containers: Iterable[ContainerId]) -> datetime | None:
        """Return the time since which no container served a client; None without readings."""
        with self._lock:
            active = (self._series[container].active for container in containers if container in self._series)
            return max(filter(None, active), default=None)

    def load(
        self, of: RevisionKey, serving: Mapping[ContainerId, datetime], measured: Measured, now: datetime
    ) -> GroupLoad:
        """Return the load of a revision's engines over LOAD_WINDOW.

        Args:
            of: the revision.
            serving: container → time since which it serves, for all that do.
            measured: measurements of the engines.
            now: the time.
        """
        with self._lock:
            began = self._began or now
            histories: dict[ContainerId, Sequence[Entry]] = {
                container: tuple(self._series[container].entries) for container in self._of.get(of, ())
            }
        newest = max((entries[-1].at for entries in histories.values()), default=None)
        result = load_window.engines(histories, serving, now - LOAD_WINDOW, measured)
        seconds, engines = result if result is not None else (LOAD_WINDOW.total_seconds(), None)
        stale = ""
        if serving and newest is None:
            stale = "no engine could be read yet"
        elif serving and newest is not None and now - newest > STALE:
            stale = f"no engine could be read since {newest:%H:%M} UTC"
        since = max(began, min(serving.values(), default=began))
        return GroupLoad(seconds, engines if not stale else None, stale=stale, early=now - since < EARLY)

    def forget(self, now: datetime) -> None:
        """Delete the series of engines that no longer exist."""
        with self._lock:
            for container, spent in list(self._spent.items()):
                while spent and now - spent[0][0] > HIT_RATE_WINDOW:
                    spent.popleft()
                if not spent:
                    del self._spent[container]
            gone = [key for key, series in self._series.items() if now - series.entries[-1].at > 2 * HIT_RATE_WINDOW]
            for key in gone:
                of = self._series.pop(key).of
                if of is not None:
                    self._of[of].discard(key)
                    if not self._of[of]:
                        del self._of[of]


def _clients(reading: Reading, own: OwnRequests) -> float:
    return reading.queries - own.queries
