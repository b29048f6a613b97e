"""Stores the page's figures over time: those of each group, and the requests of revisions since a release step began.

Everything is bounded: points by their age, groups by their number.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from promptgroup_cli.dashboard.reading import DashboardReading
from promptgroup_cli.dashboard.release_view import ReleaseStep, step_of
from promptgroup_cli.reach import top_rates
from promptgroup_cli.reach.top_rates import RouterPage, TopRates
from promptgroup_contract.fingerprint import ShortFingerprint
from promptgroup_operator.load.router_metrics import RouterCounts
from promptgroup_operator.world.samples import Stratum
from promptgroup_operator.world.snapshot import Key

WINDOW_SECONDS = 10.0
"""Time that a figure covers: over two seconds, the figures of a group with little traffic fluctuate."""
LONGEST_SECONDS = 900.0
"""Retention of the figures."""
MOST_POINTS = 900
"""Most points of a group, whatever the interval."""
MOST_GROUPS = 500
"""Groups whose figures are stored over time; of more, the first ones by name."""


@dataclass(frozen=True, slots=True)
class TimePoint:
    """The traffic of a group at one moment, over the window before it."""

    at: datetime
    clock: float
    rates: TopRates
    moved: int
    """Sessions that moved since the point before."""


RevisionTotals = Mapping[ShortFingerprint, Stratum]


@dataclass(frozen=True, slots=True)
class StepWatch:
    """The counters of routers at the time when a step of a release was first observed."""

    step: ReleaseStep
    since: datetime
    before: Mapping[str, RevisionTotals]
    """Router → revision → its requests of all kinds until then."""


@dataclass(slots=True)
class DashboardHistory:
    """The points of all groups, and the counters that figures are made of."""

    _pages: deque[tuple[float, Mapping[str, RouterPage]]] = field(default_factory=deque)
    """The readings of the window, the oldest first."""
    _points: dict[str, deque[TimePoint]] = field(default_factory=dict)
    _watches: dict[Key, StepWatch] = field(default_factory=dict)

    def add(self, reading: DashboardReading) -> None:
        """Add a reading, which is later than those before."""
        pages = {name: router_reading.page for name, router_reading in reading.routers.items()}
        before = self._pages[-1][0] if self._pages else reading.clock
        while len(self._pages) > 1 and reading.clock - self._pages[0][0] > WINDOW_SECONDS:
            self._pages.popleft()
        if self._pages and reading.clock > self._pages[0][0]:
            then, old = self._pages[0]
            moved = _moves(reading, reading.clock - before)
            rates = top_rates.rates(old, pages, reading.clock - then)
            for group in sorted(rates)[:MOST_GROUPS]:
                point = TimePoint(reading.at, reading.clock, rates[group], moved.get(group, 0))
                self._points.setdefault(group, deque(maxlen=MOST_POINTS)).append(point)
        self._pages.append((reading.clock, pages))
        self._watch_steps(reading)
        for group, points in list(self._points.items()):
            while points and reading.clock - points[0].clock > LONGEST_SECONDS:
                points.popleft()
            if not points:
                del self._points[group]

    def points(self, group: str) -> list[TimePoint]:
        """Return the points of a group (`namespace/name`), the oldest first."""
        return list(self._points.get(group, ()))

    def latest(self, group: str, clock: float) -> TopRates | None:
        """Return the figures of a group as of this moment; None if it has none."""
        points = self._points.get(group)
        return points[-1].rates if points and points[-1].clock >= clock else None

    def since_step(self, key: Key, reading: DashboardReading) -> tuple[datetime, RevisionTotals] | None:
        """Return each revision's requests since the current step was first observed, and the time of that.

        None where the group releases nothing. The reading is the latest one, which was added.
        """
        watch = self._watches.get(key)
        if watch is None:
            return None
        stratums: dict[ShortFingerprint, Stratum] = {}
        for name, revisions in _totals(key, reading).items():
            for revision, total in revisions.items():
                since = total - watch.before[name].get(revision, Stratum())
                stratums[revision] = stratums.get(revision, Stratum()) + since
        return watch.since, stratums

    def _watch_steps(self, reading: DashboardReading) -> None:
        """Record the counters of all groups when a step begins: the page may show any group later."""
        if reading.cluster is None:
            return
        watched: dict[Key, StepWatch] = {}
        for group in reading.cluster.groups[:MOST_GROUPS]:
            step = step_of(group, reading.cluster.deployments)
            if step is None:
                continue
            key = Key(group["metadata"]["namespace"], group["metadata"]["name"])
            now, watch = _totals(key, reading), self._watches.get(key)
            if watch is None or not step.continues(watch.step):
                watch = StepWatch(step, reading.at, now)
            # counts from before a router's first reading are of unknown age
            watched[key] = StepWatch(watch.step, watch.since, {**now, **watch.before})
        self._watches = watched


def _moves(reading: DashboardReading, seconds: float) -> dict[str, int]:
    """Return the moves of the last seconds by group."""
    result: dict[str, int] = {}
    for router in reading.routers.values():
        for move in router.moves:
            if move.seconds_ago < seconds:
                group = move.target.rsplit("/", 2)[0]
                result[group] = result.get(group, 0) + 1
    return result


def _totals(key: Key, reading: DashboardReading) -> dict[str, RevisionTotals]:
    """Return the counts of a group by router and revision, over requests of all kinds."""
    return {
        name: {
            revision: sum(sample.values(), Stratum())
            for revision, sample in router.counts.get(key, RouterCounts()).samples.items()
        }
        for name, router in reading.routers.items()
    }
