"""A burst of three times the capacity for half a minute: does the cluster recover, and how soon?

An overload may persist after its cause has ended: caches that are too small for all admitted sessions are of use to
none of them, every turn is computed anew, sessions last longer and more of them run at once.
Bronson et al. (HotOS 2021) call that a metastable failure. Each seed is played with the burst and without it, with
admission by working set and without.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_research.experiments import catalogue
from promptgroup_research.experiments.gates import Gate
from promptgroup_research.experiments.report import Sheet
from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator import workloads
from promptgroup_research.simulator.measure import percentile, ttfts
from promptgroup_research.simulator.turns import Turn
from promptgroup_research.simulator.world import World

SEEDS = range(101, 201)
LOADS = (0.85, 0.95)
BEFORE = 300.0
"""Seconds that the burst is compared with: several waves of arrivals, or the level before is luck."""
BEGIN = catalogue.WARM_UP + BEFORE
LENGTH, FACTOR = 30.0, 3.0
"""Seconds, and times the capacity."""
LIMIT, BACK = 120.0, 1.5
"""Seconds in which p99 must be back under so many times its level before."""
WATCHED = 240.0
"""Seconds after the burst that are evaluated."""
BIN = 20.0
"""Seconds over which a p99 is taken: some hundreds of requests."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    load: float
    seed: int
    admission: bool
    burst: bool


@dataclass(frozen=True, slots=True)
class Course:
    """The course of a run; seconds, and shares of requests."""

    before: float
    """p99 before the burst."""
    worst: float
    """Of the bins from its begin."""
    recovery: float
    """From the burst's end to the end of the last bin that is above; WATCHED where it does not stay back."""
    after: float
    """p99 of all requests that arrived from LIMIT after the burst on."""
    hit: float
    """Share of prompt tokens that were cached, from LIMIT after the burst on."""
    refused: float
    refused_after: float
    """From LIMIT after the burst on."""


def run(job: Job) -> Course:
    """Simulate."""
    kind = catalogue.workload("agents")
    end = BEGIN + LENGTH
    until = end + WATCHED
    burst = (BEGIN, end, FACTOR / job.load) if job.burst else None
    sessions = workloads.agents(job.load * kind.capacity, until, job.seed, burst=burst)
    world = World(Ours(admission=job.admission), sessions, kind.replicas, kind.model)
    world.run(until + BIN)
    return course(world.turns, until + BIN)


def course(turns: Sequence[Turn], ended: float) -> Course:
    """Read a run."""

    def between(begin: float, until: float) -> list[Turn]:
        return [turn for turn in turns if begin <= turn.arrived < until]

    def p99(some: Sequence[Turn]) -> float:
        return percentile(ttfts(some, ended), 0.99)

    end = BEGIN + LENGTH
    before = p99(between(catalogue.WARM_UP, BEGIN))
    bins = [p99(between(BEGIN + at * BIN, BEGIN + (at + 1) * BIN)) for at in range(int((LENGTH + WATCHED) / BIN))]
    since = [p99(between(end + at * BIN, end + (at + 1) * BIN)) for at in range(int(LIMIT / BIN))]
    above = [at for at, level in enumerate(since) if level >= BACK * before]
    late = between(end + LIMIT, end + WATCHED)
    after = p99(late)
    served = [turn for turn in late if turn.first >= 0]
    everything = between(BEGIN, end + WATCHED)
    return Course(
        before=before,
        worst=max(bins),
        recovery=WATCHED if after >= BACK * before else (above[-1] + 1) * BIN if above else 0.0,
        after=after,
        hit=sum(turn.cached for turn in served) / max(1, sum(turn.prompt for turn in served)),
        refused=sum(turn.refused for turn in everything) / max(1, len(everything)),
        refused_after=sum(turn.refused for turn in late) / max(1, len(late)),
    )


def jobs(seeds: Sequence[int]) -> list[Job]:
    """Every run."""
    return [
        Job(load, seed, admission, burst)
        for load in LOADS
        for admission in (True, False)
        for burst in (False, True)
        for seed in seeds
    ]


def sheet(done: Sequence[Job], courses: Sequence[Course]) -> Sheet:
    """One row per load and way, over its seeds: medians, and the worst in brackets."""
    groups: dict[tuple[float, bool, bool], list[Course]] = {}
    for job, item in zip(done, courses, strict=True):
        groups.setdefault((job.load, job.admission, job.burst), []).append(item)
    rows = []
    for (load, admission, burst), result in groups.items():
        name = f"{load:.0%}, {'burst' if burst else 'no burst'}, {'admission' if admission else 'no admission'}"
        back = sum(entry.recovery <= LIMIT for entry in result)
        rows.append((
            name, f"{back} of {len(result)}", _seconds(result, "recovery"), _seconds(result, "before"),
            _seconds(result, "worst"), _seconds(result, "after"), f"{statistics.median(c.hit for c in result):.1%}",
            f"{statistics.mean(c.refused for c in result):.1%}",
            f"{statistics.mean(c.refused_after for c in result):.1%}",
        ))  # fmt: skip
    columns = (
        "load", f"back in {LIMIT:.0f} s", "back after s", "p99 before s", "worst s", "p99 later s", "hit later",
        "refused", "refused later",
    )  # fmt: skip
    title = f"agents: a burst of {FACTOR:.0f} x capacity for {LENGTH:.0f} s; median over seeds (worst)"
    return Sheet(title, columns, tuple(rows))


def gates(done: Sequence[Job], courses: Sequence[Course]) -> list[Gate]:
    """Every seed must be back."""
    result = []
    for load in LOADS:
        of_load = [
            item for job, item in zip(done, courses, strict=True) if job.load == load and job.admission and job.burst
        ]
        worst = max(item.recovery for item in of_load)
        result.append(Gate(f"agents {load:.0%}, burst", f"s until back, worst of {len(of_load)} seeds", worst, LIMIT))
    return result


def _seconds(courses: Sequence[Course], name: str) -> str:
    values = [getattr(item, name) for item in courses]
    digits = 0 if name == "recovery" else 2
    return f"{statistics.median(values):.{digits}f} ({max(values):.{digits}f})"
