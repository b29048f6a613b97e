"""Policies with KV tiers behind the engines: whether a pool makes affinity unnecessary.

The claim is that any replica is as good as another once a pool has every prefix. A copy takes time, though, for every
request that lands elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_research.experiments import catalogue
from promptgroup_research.experiments.report import Sheet, milliseconds
from promptgroup_research.experiments.runs import DRAIN
from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator.measure import Figures, figures, mean
from promptgroup_research.simulator.tier import TierModel
from promptgroup_research.simulator.world import Router, World

LOAD = 0.75
TOKEN_BYTES = 131_072
"""Of KV: an 8B model in 16 bits."""
REACHED = 0.8
"""Share of a link's raw rate that copies reach."""
UNTOLD = "promptgroup, not told of the pool"
POLICIES = ("round-robin", "least-request", "session-ring", UNTOLD, "promptgroup", "oracle")
PREFIX = {"chat": 3000, "agents": 8000, "trace": 2000}
"""Tokens of the prompt by whose copy the operator measures a pool, by workload."""


def _tier(name: str, size: float, latency: float, bandwidth: float, *, shared: bool) -> TierModel:
    return TierModel(name, int(size / TOKEN_BYTES), latency, TOKEN_BYTES / (REACHED * bandwidth), shared)


TIERS: dict[str, TierModel | None] = {
    tier.name if tier else "GPU memory alone": tier
    for tier in (
        None,
        _tier("+ 64 GiB in each host, PCIe 4", 64 * 2**30, 0.010, 32e9, shared=False),
        _tier("+ pool of 2 TiB, 400 Gbit/s RDMA", 2**41, 0.025, 50e9, shared=True),
        _tier("+ pool of 2 TiB, 25 Gbit/s TCP", 2**41, 0.040, 3.125e9, shared=True),
    )
}
"""The same figures as `promptgroup size --tier` assumes."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    workload: str
    tier: str
    policy: str
    seed: int
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    figures: Figures
    copied: float
    """Share of requests for which a tier copied tokens."""


def jobs(workloads: Sequence[str], seeds: Sequence[int], *, quick: bool) -> list[Job]:
    """Every run."""
    return [
        Job(workload, tier, policy, seed, quick)
        for workload in workloads
        for tier in TIERS
        for policy in POLICIES
        for seed in seeds
    ]


def run(job: Job) -> Outcome:
    """Simulate."""
    kind = catalogue.workload(job.workload)
    rate = LOAD * kind.capacity
    length = kind.length(rate, quick=job.quick)
    router = _router(job)
    world = World(router, kind.write(rate, length, job.seed), kind.replicas, kind.model, TIERS[job.tier])
    world.run(length + DRAIN)
    measured = [turn for turn in world.turns if kind.warm_up <= turn.arrived < length]
    copied = sum(turn.copied > 0 for turn in measured) / max(1, len(measured))
    return Outcome(figures(measured, kind.replicas, kind.model, length + DRAIN), copied)


def _router(job: Job) -> Router:
    if job.policy in (UNTOLD, "promptgroup"):
        return Ours(seed=job.seed, measured_copy=PREFIX[job.workload] if job.policy != UNTOLD else 0)
    return catalogue.POLICIES[job.policy](job.seed)


def sheets(done: Sequence[Job], outcomes: Sequence[Outcome], titles: dict[str, str]) -> list[Sheet]:
    """One table a workload, one row a tier and policy, the mean over seeds."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for job, item in zip(done, outcomes, strict=True):
        groups.setdefault((job.workload, job.tier, job.policy), []).append(item)
    rows: dict[str, list[tuple[str, ...]]] = {}
    for (workload, tier, policy), some in groups.items():
        means = mean([entry.figures for entry in some])
        copied = sum(entry.copied for entry in some) / len(some)
        rows.setdefault(workload, []).append((
            tier, policy, f"{means.hit:.1%}", f"{copied:.0%}", milliseconds(means.mean), milliseconds(means.p50),
            milliseconds(means.p99), f"{means.unfinished:.0f}",
        ))  # fmt: skip
    heads = ("", "policy", "hit", "copied", "mean", "p50", "p99", "unfinished")
    return [
        Sheet(f"{titles[workload]}, {LOAD:.0%} load: KV tiers behind the engines", heads, tuple(some))
        for workload, some in rows.items()
    ]
