"""The routers' counters of a group, read again and again → what its revisions got lately, and since a step began.

Counters begin anew with each router process, so a series belongs to one container, and its first reading is its
baseline. Unknown is not zero: without a window of readings nothing is said. Losing them costs time, nothing else.
"""

import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from promptgroup_operator.observed import Key
from promptgroup_operator.samples import Flow, Histogram, Sample, Stratum, Traffic
from promptgroup_router.contract import names

WINDOW = timedelta(seconds=30)
"""How far back the shares look: long enough to average over turns, short against the warm-up of a replica."""
SETTLED = timedelta(seconds=10)
"""Readings that span less say nothing of shares yet."""
PERIOD = timedelta(seconds=2)
"""Time between readings of one group."""
FORGOTTEN = timedelta(minutes=10)
"""A group that was not read for so long has no release under way."""

_LINE = re.compile(r"^(?P<name>\w+)\{(?P<labels>[^}]*)\} (?P<value>[0-9.e+-]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Counts:
    """One router's counters of one group. Revisions by their short fingerprint."""

    flows: Mapping[str, Flow] = field(default_factory=dict)
    samples: Mapping[str, Sample] = field(default_factory=dict)


def parse(text: str, key: Key) -> Counts:
    """The counters of a group in a router's Prometheus text; lines that cannot be read are left out."""
    flows: dict[str, Flow] = {}
    strata: dict[tuple[str, str], Stratum] = {}
    buckets: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for name, labels, value in _samples(text, key):
        revision, turn = labels.get("revision", ""), labels.get("turn", "")
        if name == names.METRIC_REVISION_REQUESTS:
            known = flows.get(revision, Flow())
            named = value if labels.get("how") == names.HOW_NAME else 0
            flows[revision] = Flow(known.requests + value, known.named + named)
            failed = value if labels.get("outcome") == names.OUTCOME_FAILED else 0
            strata[revision, turn] = strata.get((revision, turn), Stratum()) + Stratum(value, failed)
        elif "le" in labels:
            buckets.setdefault((name, revision, turn), []).append((_bound(labels["le"]), value))
    samples: dict[str, dict[str, Stratum]] = {}
    for (revision, turn), counted in strata.items():
        first = _histogram(buckets.get((f"{names.METRIC_REVISION_FIRST_TOKEN}_bucket", revision, turn), []))
        cached = _histogram(buckets.get((f"{names.METRIC_REVISION_CACHED}_bucket", revision, turn), []))
        samples.setdefault(revision, {})[turn] = Stratum(counted.requests, counted.errors, first, cached)
    return Counts(flows, samples)


def _samples(text: str, key: Key) -> Iterator[tuple[str, dict[str, str], float]]:
    group = f'group="{key.namespace}/{key.name}"'
    for match in _LINE.finditer(text):
        if group in match["labels"] and match["name"].startswith(names.METRIC_REVISION):
            yield match["name"], dict(_LABEL.findall(match["labels"])), float(match["value"])


def _bound(text: str) -> float:
    return float("inf") if text == "+Inf" else float(text)


def _histogram(cumulative: list[tuple[float, float]]) -> Histogram:
    ordered = sorted(cumulative)
    counts = tuple(count - before for (_, count), before in zip(ordered, [0.0, *(c for _, c in ordered)], strict=False))
    return Histogram(tuple(bound for bound, _ in ordered[:-1]), counts)


@dataclass(slots=True)
class _Series:
    """Readings of one router."""

    readings: deque[tuple[datetime, Counts]]
    """Within the window."""
    baseline: Counts
    """Where the step began, or the first reading in it."""


@dataclass(slots=True)
class _Group:
    step: object
    read: datetime
    routers: dict[str, _Series] = field(default_factory=dict)


class Readings:
    """What was read of every group that is being released. Safe to use from many threads."""

    def __init__(self) -> None:
        self._groups: dict[Key, _Group] = {}
        self._lock = threading.Lock()

    def due(self, key: Key, now: datetime) -> bool:
        """Whether the group's routers should be read again."""
        with self._lock:
            group = self._groups.get(key)
            return group is None or now - group.read >= PERIOD

    def add(self, key: Key, step: object, found: Mapping[str, Counts], now: datetime) -> None:
        """Keep a reading of each router.

        Args:
            key: the group.
            step: what is judged: samples begin anew when it changes.
            found: container of a router → its counters.
            now: the time of the reading.
        """
        with self._lock:
            group = self._groups.setdefault(key, _Group(step, now))
            group.read = now
            for router, counts in found.items():
                series = group.routers.get(router)
                if series is None:
                    group.routers[router] = _Series(deque([(now, counts)]), counts)
                    continue
                series.readings.append((now, counts))
                while len(series.readings) > 2 and now - series.readings[1][0] >= WINDOW:
                    series.readings.popleft()
            if group.step != step:
                group.step = step
                for series in group.routers.values():
                    series.baseline = series.readings[-1][1]

    def traffic(self, key: Key, now: datetime) -> Traffic | None:
        """What the group's revisions got; None when no router was ever read."""
        with self._lock:
            group = self._groups.get(key)
            if group is None or not group.routers:
                return None
            flows: dict[str, Flow] = {}
            samples: dict[str, dict[str, Stratum]] = {}
            known = False
            for series in group.routers.values():
                (began, first), (read, last) = series.readings[0], series.readings[-1]
                known |= now - began >= SETTLED
                for revision, flow in last.flows.items() if now - read < WINDOW else ():
                    before, total = first.flows.get(revision, Flow()), flows.get(revision, Flow())
                    flows[revision] = Flow(
                        total.requests + max(0.0, flow.requests - before.requests),
                        total.named + max(0.0, flow.named - before.named),
                    )
                for revision, sample in last.samples.items():
                    base, sums = series.baseline.samples.get(revision, {}), samples.setdefault(revision, {})
                    for turn, stratum in sample.items():
                        sums[turn] = sums.get(turn, Stratum()) + (stratum - base.get(turn, Stratum()))
            return Traffic(known, flows, samples)

    def forget(self, now: datetime) -> None:
        """Drop groups that are not read any more."""
        with self._lock:
            for key in [key for key, group in self._groups.items() if now - group.read > FORGOTTEN]:
                del self._groups[key]
