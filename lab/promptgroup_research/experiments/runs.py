"""Runs: one world per job, in the requested number of processes, results in the order of the jobs."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from promptgroup_research.experiments.catalogue import POLICIES, Recorded, workload
from promptgroup_research.simulator.measure import Figures, figures, mean
from promptgroup_research.simulator.world import World

T = TypeVar("T")
R = TypeVar("R")

DRAIN = 60.0
"""Seconds after the last measured arrival in which first tokens may still arrive."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    workload: str
    policy: str
    load: float
    """Share of the workload's capacity."""
    seed: int
    quick: bool = False
    recorded: Recorded | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """The figures of a policy on a workload at a load: the mean over seeds."""

    workload: str
    policy: str
    load: float
    figures: Figures


def run(job: Job) -> Figures:
    """Simulate."""
    kind = workload(job.workload, job.recorded)
    return at_rate(job, job.load * kind.capacity)


def at_rate(job: Job, rate: float, settle: float = 0.0) -> Figures:
    """The same at a rate of requests a second, and with so many seconds more of warm-up."""
    kind = workload(job.workload, job.recorded)
    length = kind.length(rate, quick=job.quick) + settle
    world = World(POLICIES[job.policy](job.seed), kind.write(rate, length, job.seed), kind.replicas, kind.model)
    world.run(length + DRAIN)
    measured = [turn for turn in world.turns if kind.warm_up + settle <= turn.arrived < length]
    return figures(measured, kind.replicas, kind.model, length + DRAIN)


def spread(work: Callable[[T], R], jobs: Sequence[T], processes: int, tell: Callable[[int], None]) -> list[R]:
    """Do all jobs; `tell` is called with the number of finished ones."""
    value: list[R] = []
    if processes == 1:
        for job in jobs:
            value.append(work(job))
            tell(len(value))
        return value
    with ProcessPoolExecutor(processes) as pool:
        for result in pool.map(work, jobs):
            value.append(result)
            tell(len(value))
    return value


def cells(jobs: Iterable[Job], results: Iterable[Figures]) -> list[Cell]:
    """Means over seeds, in the order of the first job of each."""
    groups: dict[tuple[str, str, float], list[Figures]] = {}
    for job, result in zip(jobs, results, strict=True):
        groups.setdefault((job.workload, job.policy, job.load), []).append(result)
    return [Cell(*key, mean(group)) for key, group in groups.items()]
