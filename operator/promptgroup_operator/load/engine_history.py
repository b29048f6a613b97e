"""Readings of all engines over the last minutes: one scrape feeds hit rates, sizing and the look at quiet revisions.

Counters begin anew with each engine process, so a series belongs to one container, and its first reading is its
baseline: what ran before it, its warm-up above all, is not counted. What the operator itself sends later is subtracted.
Unknown is not zero: without two readings and without lookups between them there is no rate.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from promptgroup_operator.load import load_window
from promptgroup_operator.load.load_window import Entry, OwnRequests
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import LOAD_WINDOW, PERIOD, GroupLoad
from promptgroup_operator.world.snapshot import Key, Reading, Spent

WINDOW = timedelta(minutes=5)
"""How far back the hit rate of a status looks."""
STALE = 2 * PERIOD
"""What is older is not of now."""
EARLY = 3 * PERIOD
"""An operator or an engine that began less than this ago need not have been read twice."""

RevisionKey = tuple[Key, str]
"""A group and the fingerprint of one of its revisions."""


@dataclass(slots=True)
class _Series:
    of: RevisionKey | None
    entries: deque[Entry] = field(default_factory=deque)
    own: OwnRequests = field(default_factory=OwnRequests)
    """The operator's own since the first reading."""
    active: datetime | None = None
    """When the engine was last seen to have computed a client's prompt since the reading before."""
    anew: bool = False
    """Whether a part of the growth before the next reading is not known to be whose."""


class EngineHistory:
    """Readings by container, bounded in time. Losing them costs a window of knowledge, nothing else.

    Safe to use from many threads.
    """

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._of: dict[RevisionKey, set[str]] = {}
        self._spent: dict[str, deque[tuple[datetime, Spent]]] = {}
        """Container → the operator's own requests of the longer window."""
        self._began: datetime | None = None
        """When the first pass began."""
        self._lock = threading.Lock()

    def begin(self, now: datetime) -> None:
        """Note that a pass begins; the first one counts."""
        with self._lock:
            self._began = self._began or now

    def due(self, container: str, now: datetime) -> bool:
        """Whether the engine should be read again. A group at rest is read as often as it is looked at."""
        with self._lock:
            series = self._series.get(container)
            return series is None or now - series.entries[-1].at >= PERIOD

    def spend(self, container: str, spent: Spent, now: datetime) -> None:
        """The operator's own requests added so much to the engine's counters; no reading was taken meanwhile."""
        with self._lock:
            self._spent.setdefault(container, deque()).append((now, spent))
            series = self._series.get(container)
            if series is not None:
                own = series.own
                series.own = OwnRequests(
                    own.queries + spent.queries, own.hits + (spent.hits or 0), own.requests + spent.requests
                )
                series.anew |= spent.hits is None

    def add(self, container: str, reading: Reading, now: datetime, of: RevisionKey | None = None) -> None:
        """Keep a reading of an engine of that revision."""
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
        """Keep what the windows need: a baseline as old as the longer one, and no two readings of one period."""
        if len(entries) > 2 and entries[-2].at - entries[-3].at < PERIOD and not entries[-1].begins:
            last, passed = entries.pop(), entries.pop()
            entries.append(Entry(last.at, last.reading, last.own, begins=passed.begins))
        while len(entries) > 2 and now - entries[1].at >= WINDOW:
            entries.popleft()

    def rate(self, containers: Iterable[str]) -> float | None:
        """Share of prompt tokens found in cache, all containers together; None when nothing is known."""
        hits = queries = 0.0
        with self._lock:
            for container in containers:
                series = self._series.get(container)
                if series is not None:
                    more_hits, more_queries = load_window.client_hits(series.entries)
                    hits += more_hits
                    queries += more_queries
        return hits / queries if queries > 0 else None

    def own(self, containers: Iterable[str], since: datetime) -> list[Spent]:
        """The operator's own requests to these containers since then, as far back as the longer window."""
        with self._lock:
            return [spent for each in containers for at, spent in self._spent.get(each, ()) if at > since]

    def quiet_since(self, containers: Iterable[str]) -> datetime | None:
        """Since when none of the containers was seen to work for a client; None when none is known."""
        with self._lock:
            active = (self._series[each].active for each in containers if each in self._series)
            return max(filter(None, active), default=None)

    def load(self, of: RevisionKey, serving: Mapping[str, datetime], known: Measured, now: datetime) -> GroupLoad:
        """What the engines of a revision did lately.

        Args:
            of: the revision.
            serving: container → since when it serves, of all that do.
            known: what was measured of the engines beside.
            now: the time.
        """
        with self._lock:
            began = self._began or now
            histories: dict[str, Sequence[Entry]] = {
                container: tuple(self._series[container].entries) for container in self._of.get(of, ())
            }
        newest = max((entries[-1].at for entries in histories.values()), default=None)
        found = load_window.engines(histories, serving, now - LOAD_WINDOW, known)
        seconds, engines = found if found is not None else (LOAD_WINDOW.total_seconds(), None)
        stale = ""
        if serving and newest is None:
            stale = "no engine could be read yet"
        elif serving and newest is not None and now - newest > STALE:
            stale = f"no engine could be read since {newest:%H:%M} UTC"
        since = max(began, min(serving.values(), default=began))
        return GroupLoad(seconds, engines if not stale else None, stale=stale, early=now - since < EARLY)

    def forget(self, now: datetime) -> None:
        """Drop the series of engines that are gone."""
        with self._lock:
            for container, spent in list(self._spent.items()):
                while spent and now - spent[0][0] > WINDOW:
                    spent.popleft()
                if not spent:
                    del self._spent[container]
            gone = [key for key, series in self._series.items() if now - series.entries[-1].at > 2 * WINDOW]
            for key in gone:
                of = self._series.pop(key).of
                if of is not None:
                    self._of[of].discard(key)
                    if not self._of[of]:
                        del self._of[of]


def _clients(reading: Reading, own: OwnRequests) -> float:
    return reading.queries - own.queries
