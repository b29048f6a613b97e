"""Compares scalers, and checks the limits that the project's own must meet. Does no I/O.

A rival is given its best: its target is swept. Ours stands against what it pays *at the misses that ours has*, read off
the line through the targets of its sweep; one that has more misses at every target is taken where it has fewest.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from promptgroup_operator.world.load import LOAD_WINDOW
from promptgroup_research.experiments.gates import Gate
from promptgroup_research.experiments.report import Sheet
from promptgroup_research.scaling import foresight
from promptgroup_research.scaling.hpa import SYNC_SECONDS
from promptgroup_research.scaling.loads import TURN, Scene
from promptgroup_research.scaling.play import Course

OURS, QUEUE, KV, FIXED = "promptgroup", "HPA, queue", "HPA, KV", "fixed"
OBJECTIVE = 0.05
"""Share of requests that may miss the target: `sizing.targets.ttft` is about 95 of 100."""
COST = 0.85
"""Most replica-seconds, x HorizontalPodAutoscaler's on the queue at equal misses."""
COMPARED = ("day", "trace")
OSCILLATION = 1.5
"""Most replicas added and removed, x the least that the load requires."""
RECOVERED = 0.95
"""Least hit rate at the end, x that of the fixed number which meets the objective."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A scaler on a scene: the mean over seeds."""

    scaler: str
    courses: tuple[Course, ...]

    def mean(self, name: str) -> float:
        """Of a figure of the courses."""
        return statistics.fmean(getattr(course, name) for course in self.courses)

    @property
    def missed(self) -> float:
        """Share of requests."""
        return self.mean("missed")

    @property
    def cost(self) -> float:
        """Replica-seconds."""
        return self.mean("replica_seconds")


def moves(course: Course) -> int:
    """Replicas added and removed."""
    counts = [change.wanted for change in course.changes]
    return sum(abs(b - a) for a, b in itertools.pairwise(counts))


def least_moves(course: Course) -> int:
    """The fewest that lead from the first number by the highest to the last; none at all counts as one."""
    counts = [change.wanted for change in course.changes]
    return max(1, 2 * max(counts) - counts[0] - counts[-1])


def standings(courses: Iterable[Course]) -> list[Standing]:
    """One per scaler, in the order of their first run."""
    groups: dict[str, list[Course]] = {}
    for course in courses:
        groups.setdefault(course.scaler, []).append(course)
    return [Standing(name, tuple(result)) for name, result in groups.items()]


def tuned(result: Sequence[Standing], family: str) -> Standing | None:
    """Of a family, the cheapest that meets the objective; where none does, the one with the fewest misses."""
    some = [item for item in result if item.scaler.startswith(family)]
    good = [item for item in some if item.missed <= OBJECTIVE]
    if good:
        return min(good, key=lambda item: item.cost)
    return min(some, key=lambda item: item.missed) if some else None


def cost_at(result: Sequence[Standing], family: str, missed: float) -> float:
    """Replica-seconds of the best of a family at so many misses."""
    some = [(item.missed, item.cost) for item in result if item.scaler.startswith(family)]
    # a point that another of the sweep beats in both is not the family's best
    front = sorted(point for point in some if not any(o[0] <= point[0] and o[1] < point[1] for o in some))
    if missed <= front[0][0]:
        return front[0][1]
    for (less, dear), (more, cheap) in itertools.pairwise(front):
        if missed <= more:
            return dear + (cheap - dear) * (missed - less) / (more - less)
    return front[-1][1]


def gates(scenes: Mapping[str, Scene], courses: Mapping[str, Sequence[Course]]) -> list[Gate]:
    """The limits for the scenes that were played."""
    judged = []
    for name, played in courses.items():
        result = standings(played)
        ours = next((item for item in result if item.scaler == OURS), None)
        if ours is None:
            continue
        if name in COMPARED and any(item.scaler.startswith(QUEUE) for item in result):
            ratio = ours.cost / cost_at(result, QUEUE, ours.missed)
            judged.append(Gate(name, "replica-seconds, x HPA on the queue at equal misses", ratio, COST))
        if name in COMPARED:
            judged.append(Gate(name, "share of requests that miss the target", ours.missed, OBJECTIVE))
        wobble = max(moves(course) / least_moves(course) for course in ours.courses)
        judged.append(Gate(name, "replicas added and removed, x the least; worst seed", wobble, OSCILLATION))
        if name == "thrash":
            judged += _thrash(scenes[name], ours, tuned(result, FIXED))
        if name == "drift":
            judged += _drift(scenes[name], ours)
    return judged


def _thrash(scene: Scene, ours: Standing, fixed: Standing | None) -> list[Gate]:
    added = min(course.changes[-1].wanted - scene.begin for course in ours.courses)
    result = [Gate("thrash", "replicas more at the end; least of the seeds", added, 1, at_least=True)]
    if fixed is not None:
        ratio = late_hit(ours) / late_hit(fixed)
        result.append(Gate("thrash", f"hit rate of the last third, x {fixed.scaler}", ratio, RECOVERED, at_least=True))
    return result


def _drift(scene: Scene, ours: Standing) -> list[Gate]:
    began = TURN * scene.length
    added = max(change.wanted - scene.begin for course in ours.courses for change in course.changes)
    assert scene.drift is not None  # noqa: S101 - that is the scene
    offset = f"byte {scene.drift.at}"
    named = sum(any(offset in words for when, words in course.said if when >= began) for course in ours.courses)
    return [
        Gate("drift", "replicas more at any time; most of the seeds", added, 0),
        Gate("drift", "seeds in which the offset is named", named, len(ours.courses), at_least=True),
    ]


def late_hit(standing: Standing) -> float:
    """Share of prompt tokens that were cached in the last third, weighted by requests."""
    shares = []
    for course in standing.courses:
        late = course.points[-(len(course.points) // 3) :]
        shares.append(sum(item.hit * item.requests for item in late) / max(1e-9, sum(item.requests for item in late)))
    return statistics.fmean(shares)


def sheets(scenes: Mapping[str, Scene], courses: Mapping[str, Sequence[Course]]) -> list[Sheet]:
    """A table a scene: ours, and the best of each family; then all that was swept."""
    columns = (
        "scaler", "missed", "refused", "p50 s", "p99 s", "hit", "hit, last third", "replica-seconds", "x ours",
        "changes", "moved", "least",
    )  # fmt: skip
    sheets_ = []
    for name, played in courses.items():
        result = standings(played)
        ours = next((item for item in result if item.scaler == OURS), None)
        best = [standing for family in (QUEUE, KV, FIXED) if (standing := tuned(result, family)) is not None]
        swept = [item for item in result if item is not ours and item not in best]
        of = scenes[name]
        title = f"{of.title}: target {of.target:g} s, {len(result[0].courses)} seeds"
        for heading, some in (
            (title, [*([ours] if ours else []), *best]),
            (f"{of.title}: the rest of the sweep", swept),
        ):
            rows = tuple(_row(item, ours) for item in some)
            if rows:
                sheets_.append(Sheet(heading, columns, rows))
    return sheets_


def floor(courses: Mapping[str, Sequence[Course]]) -> Sheet:
    """The least cost of each scene where its load is known in advance, beside ours: see `foresight`."""
    columns = ("scene", "moves", "replica-seconds", "x ours", "moved", "x HPA on the queue, at ours' misses")
    rows = []
    for name, played in courses.items():
        result = standings(played)
        ours = next((item for item in result if item.scaler == OURS), None)
        if ours is None or not all(course.needs for course in ours.courses):
            continue
        rival = any(item.scaler.startswith(QUEUE) for item in result)
        for words, ratio in (("any number", math.inf), (f"{OSCILLATION:g} x the least", OSCILLATION)):
            plans = [foreseen(course, ratio) for course in ours.courses]
            cost = statistics.fmean(plan.replica_seconds for plan in plans)
            share = f"{cost / cost_at(result, QUEUE, ours.missed):.3f}" if rival else "-"
            moved = statistics.fmean(plan.moves for plan in plans)
            rows.append((name, words, f"{cost:,.0f}", f"{cost / ours.cost:.3f}", f"{moved:.1f}", share))
    return Sheet("The least with perfect foresight", columns, tuple(rows))


def foreseen(course: Course, ratio: float) -> foresight.Schedule:
    """Return the cheapest schedule of a course's load with so many moves, x the least that lead through its peak."""
    late = round(LOAD_WINDOW.total_seconds() / 2 / SYNC_SECONDS)  # a window's mean is that of its middle
    needs = [*course.needs[late:], *course.needs[-1:] * late]
    begin = course.changes[0].wanted
    peak = max(begin, *needs)
    return foresight.least(needs, SYNC_SECONDS, begin, ratio * max(1, 2 * peak - begin - needs[-1]))


def _row(standing: Standing, ours: Standing | None) -> tuple[str, ...]:
    return (
        standing.scaler, f"{standing.missed:.2%}", f"{standing.mean('refused'):.2%}", f"{standing.mean('p50'):.2f}",
        f"{standing.mean('p99'):.2f}", f"{standing.mean('hit'):.1%}", f"{late_hit(standing):.1%}",
        f"{standing.cost:,.0f}",
        f"{standing.cost / ours.cost:.2f}" if ours else "-",
        f"{statistics.fmean(len(course.changes) - 1 for course in standing.courses):.1f}",
        f"{statistics.fmean(moves(course) for course in standing.courses):.1f}",
        f"{statistics.fmean(least_moves(course) for course in standing.courses):.1f}",
    )  # fmt: skip
