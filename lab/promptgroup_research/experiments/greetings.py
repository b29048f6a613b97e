"""Sessions that begin with the same short message: the cost of not distinguishing them at once.

A session without an identifier is identified by its first message. All sessions of a group that begin with "hi" are
then one session for the router: one home, one record. Once 256 bytes of a conversation have arrived, it distinguishes
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_contract.table import Policy
from promptgroup_research.experiments import catalogue
from promptgroup_research.experiments.report import Sheet, milliseconds
from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator.measure import Figures, figures, mean
from promptgroup_research.simulator.world import World

LOAD = 0.75
SHARES = (0.0, 0.1, 0.3, 0.6)
DRAIN = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    share: float
    """Of sessions that begin alike."""
    told_apart: bool
    policy: Policy
    seed: int


def jobs(seeds: Sequence[int]) -> list[Job]:
    """Every run."""
    return [
        Job(share, told_apart, policy, seed)
        for policy in (Policy.EXPECTED_TTFT, Policy.BOUNDED_LOAD)
        for share in SHARES
        for told_apart in ((True, False) if share else (True,))
        for seed in seeds
    ]


def run(job: Job) -> Figures:
    """Simulate."""
    kind = catalogue.workload("chat")
    rate = LOAD * kind.capacity
    length = kind.length(rate, quick=False)
    router = Ours(job.policy, greetings=job.share, told_apart=job.told_apart)
    world = World(router, kind.write(rate, length, job.seed), kind.replicas, kind.model)
    world.run(length + DRAIN)
    measured = [turn for turn in world.turns if kind.warm_up <= turn.arrived < length]
    return figures(measured, kind.replicas, kind.model, length + DRAIN)


def sheet(done: Sequence[Job], figureses: Sequence[Figures]) -> Sheet:
    """One row per policy, share and way of identification, the mean over seeds."""
    groups: dict[tuple[Policy, float, bool], list[Figures]] = {}
    for job, item in zip(done, figureses, strict=True):
        groups.setdefault((job.policy, job.share, job.told_apart), []).append(item)
    rows = []
    for (policy, share, told_apart), some in groups.items():
        means = mean(some)
        way = "one session for ever" if not told_apart else "told apart by what follows" if share else "all named"
        rows.append((
            f"{policy.value}, {share:.0%} begin alike, {way}", f"{means.hit:.1%}", milliseconds(means.mean),
            milliseconds(means.p99), f"{means.imbalance:.2f}",
        ))  # fmt: skip
    title = f"task groups + chat, {LOAD:.0%} load: sessions that begin with the same short message"
    return Sheet(title, ("", "hit", "mean", "p99", "max/mean"), tuple(rows))
