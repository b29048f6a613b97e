"""Workloads of shared prefixes on caches of other sizes, and on more replicas, with one router and with four.

A load is the same share of the capacity everywhere: twice as many replicas get twice as many requests a second. With
caches of half the size that is an overload for some workloads; the oracle shows what was possible.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from promptgroup_research.experiments import catalogue
from promptgroup_research.experiments.gates import SHARED_HIT, Gate
from promptgroup_research.experiments.report import Sheet, milliseconds
from promptgroup_research.experiments.runs import DRAIN
from promptgroup_research.simulator.measure import Figures, figures, mean
from promptgroup_research.simulator.world import World

LOAD = 0.75
POLICIES = ("promptgroup", "promptgroup-4-routers", "oracle")
JUDGED = POLICIES[:2]
SECONDS = 20.0
"""Measured with more than 8 replicas, after as many more to warm up: there are as many more requests."""


@dataclass(frozen=True, slots=True)
class Size:
    """Differences from the catalogue."""

    replicas: int = 8
    caches: float = 1.0
    """Times the tokens of a cache."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.replicas} replicas" + (f", caches x {self.caches:g}" if self.caches != 1 else "")


SIZES = (Size(caches=0.5), Size(caches=2.0), Size(32), Size(100))


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    workload: str
    size: Size
    policy: str
    seed: int


def jobs(workloads: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    """Every run."""
    return [
        Job(workload, size, policy, seed)
        for workload in workloads
        for size in SIZES
        for policy in POLICIES
        for seed in seeds
    ]


def run(job: Job) -> Figures:
    """Simulate a minute, or less where there are many replicas."""
    kind, size = catalogue.workload(job.workload), job.size
    model = replace(kind.model, kv_tokens=int(kind.model.kv_tokens * size.caches))
    rate = LOAD * kind.capacity * size.replicas / kind.replicas
    warm_up = kind.warm_up if size.replicas <= kind.replicas else 2 * SECONDS
    length = warm_up + (catalogue.QUICK_LENGTH if size.replicas <= kind.replicas else SECONDS)
    world = World(catalogue.POLICIES[job.policy](job.seed), kind.write(rate, length, job.seed), size.replicas, model)
    world.run(length + DRAIN)
    measured = [turn for turn in world.turns if warm_up <= turn.arrived < length]
    return figures(measured, size.replicas, model, length + DRAIN)


Means = dict[tuple[str, Size, str], Figures]
"""(workload, size, policy) → the mean over seeds."""


def means(done: Sequence[Job], figureses: Sequence[Figures]) -> Means:
    """Return the means over seeds."""
    groups: dict[tuple[str, Size, str], list[Figures]] = {}
    for job, item in zip(done, figureses, strict=True):
        groups.setdefault((job.workload, job.size, job.policy), []).append(item)
    return {key: mean(some) for key, some in groups.items()}


def gates(result: Means) -> list[Gate]:
    """The limits of the oracle's lead, and that no request is refused that it serves."""
    judged = []
    for (workload, size, policy), ours in result.items():
        best = result.get((workload, size, "oracle"))
        if policy in JUDGED and best is not None:
            where = f"{workload}, {size.name}, {policy}"
            judged.append(Gate(where, "token hit, below oracle", best.hit - ours.hit, SHARED_HIT))
            judged.append(Gate(where, "requests refused", ours.refused, 0.0))
    return judged


def sheet(result: Means) -> Sheet:
    """One row a workload, size and policy."""
    rows = tuple(
        (
            f"{workload}, {size.name}: {policy}", f"{some.hit:.1%}", milliseconds(some.mean), milliseconds(some.p99),
            f"{some.imbalance:.2f}", f"{some.refused:.0f}", f"{some.unfinished:.0f}",
        )
        for (workload, size, policy), some in result.items()
    )  # fmt: skip
    return Sheet(f"{LOAD:.0%} load", ("", "hit", "mean, ms", "p99, ms", "max/mean", "refused", "unfinished"), rows)
