"""What scalers did side by side, and what the project's own must reach. Pure.

A rival is given its best: its target is swept. Ours stands against what it pays *at the misses that ours has*, read off
the line through the targets of its sweep; one that has more misses at every target is taken where it has fewest.
"""

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from promptgroup_research.experiments.gates import Gate
from promptgroup_research.experiments.report import Sheet
from promptgroup_research.scaling.loads import TURN, Scene
from promptgroup_research.scaling.play import Course

OURS, QUEUE, KV, FIXED = "promptgroup", "HPA, queue", "HPA, KV", "fixed"
OBJECTIVE = 0.05
"""Share of requests that may miss the target: `sizing.targets.ttft` is about 95 of 100."""
COST = 0.85
"""Most replica-seconds, x HorizontalPodAutoscaler's on the queue at equal misses."""
COMPARED = ("day", "trace")
OSCILLATION = 1.5
"""Most replicas added and removed, x the least that the load asks for."""
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
    """One a scaler, in the order in which they first come."""
    groups: dict[str, list[Course]] = {}
    for course in courses:
        groups.setdefault(course.scaler, []).append(course)
    return [Standing(name, tuple(found)) for name, found in groups.items()]


def tuned(found: Sequence[Standing], family: str) -> Standing | None:
    """Of a family, the cheapest that meets the objective; where none does, the one with the fewest misses."""
    some = [each for each in found if each.scaler.startswith(family)]
    good = [each for each in some if each.missed <= OBJECTIVE]
    if good:
        return min(good, key=lambda each: each.cost)
    return min(some, key=lambda each: each.missed) if some else None


def cost_at(found: Sequence[Standing], family: str, missed: float) -> float:
    """Replica-seconds of the best of a family at so many misses."""
    some = [(each.missed, each.cost) for each in found if each.scaler.startswith(family)]
    # what another of the sweep beats in both is not the family's best
    front = sorted(point for point in some if not any(o[0] <= point[0] and o[1] < point[1] for o in some))
    if missed <= front[0][0]:
        return front[0][1]
    for (less, dear), (more, cheap) in itertools.pairwise(front):
        if missed <= more:
            return dear + (cheap - dear) * (missed - less) / (more - less)
    return front[-1][1]


def gates(scenes: Mapping[str, Scene], courses: Mapping[str, Sequence[Course]]) -> list[Gate]:
    """What must hold, of the scenes that were played."""
    judged = []
    for name, played in courses.items():
        found = standings(played)
        ours = next((each for each in found if each.scaler == OURS), None)
        if ours is None:
            continue
        if name in COMPARED and any(each.scaler.startswith(QUEUE) for each in found):
            ratio = ours.cost / cost_at(found, QUEUE, ours.missed)
            judged.append(Gate(name, "replica-seconds, x HPA on the queue at equal misses", ratio, COST))
        if name in COMPARED:
            judged.append(Gate(name, "share of requests that miss the target", ours.missed, OBJECTIVE))
        wobble = max(moves(course) / least_moves(course) for course in ours.courses)
        judged.append(Gate(name, "replicas added and removed, x the least; worst seed", wobble, OSCILLATION))
        if name == "thrash":
            judged += _thrash(scenes[name], ours, tuned(found, FIXED))
        if name == "drift":
            judged += _drift(scenes[name], ours)
    return judged


def _thrash(scene: Scene, ours: Standing, fixed: Standing | None) -> list[Gate]:
    added = min(course.changes[-1].wanted - scene.begin for course in ours.courses)
    found = [Gate("thrash", "replicas more at the end; least of the seeds", added, 1, at_least=True)]
    if fixed is not None:
        ratio = late_hit(ours) / late_hit(fixed)
        found.append(Gate("thrash", f"hit rate of the last third, x {fixed.scaler}", ratio, RECOVERED, at_least=True))
    return found


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
    """Share of prompt tokens found in the last third, by requests."""
    shares = []
    for course in standing.courses:
        late = course.points[-(len(course.points) // 3) :]
        shares.append(sum(each.hit * each.requests for each in late) / max(1e-9, sum(each.requests for each in late)))
    return statistics.fmean(shares)


def sheets(scenes: Mapping[str, Scene], courses: Mapping[str, Sequence[Course]]) -> list[Sheet]:
    """A table a scene: ours, and the best of each family; then all that was swept."""
    columns = (
        "scaler", "missed", "refused", "p50 s", "p99 s", "hit", "hit, last third", "replica-seconds", "x ours",
        "changes", "moved", "least",
    )  # fmt: skip
    sheets_ = []
    for name, played in courses.items():
        found = standings(played)
        ours = next((each for each in found if each.scaler == OURS), None)
        best = [each for family in (QUEUE, KV, FIXED) if (each := tuned(found, family)) is not None]
        swept = [each for each in found if each is not ours and each not in best]
        of = scenes[name]
        title = f"{of.title}: target {of.target:g} s, {len(found[0].courses)} seeds"
        for heading, some in (
            (title, [*([ours] if ours else []), *best]),
            (f"{of.title}: the rest of the sweep", swept),
        ):
            rows = tuple(_row(each, ours) for each in some)
            if rows:
                sheets_.append(Sheet(heading, columns, rows))
    return sheets_


def _row(each: Standing, ours: Standing | None) -> tuple[str, ...]:
    return (
        each.scaler, f"{each.missed:.2%}", f"{each.mean('refused'):.2%}", f"{each.mean('p50'):.2f}",
        f"{each.mean('p99'):.2f}", f"{each.mean('hit'):.1%}", f"{late_hit(each):.1%}", f"{each.cost:,.0f}",
        f"{each.cost / ours.cost:.2f}" if ours else "-",
        f"{statistics.fmean(len(course.changes) - 1 for course in each.courses):.1f}",
        f"{statistics.fmean(moves(course) for course in each.courses):.1f}",
        f"{statistics.fmean(least_moves(course) for course in each.courses):.1f}",
    )  # fmt: skip
