"""Engines whose speed varies, and first tokens that arrive late: whether noise makes the policy give up cache hits.

Each engine is up to `VARIES` times faster at one time than at another, of which the router has no information, and
first tokens reach it `LATE` seconds late on average. A policy's hit rate there is compared with its hit rate on engines
of constant speed. Beside the workloads of the catalogue there are engines without a GPU, which take seconds for a
prompt and about whose rate the router is wrong by a factor of twelve.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from promptgroup_research.experiments import catalogue
from promptgroup_research.experiments.gates import Gate
from promptgroup_research.experiments.report import Sheet, milliseconds
from promptgroup_research.experiments.runs import DRAIN
from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator import workloads
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.measure import Figures, figures, mean
from promptgroup_research.simulator.world import Router, World

LOAD = 0.6
"""Of the capacity: engines that are slow for a while have more than their share."""
VARIES, LATE = 2.0, 0.25
POLICIES = ("promptgroup", "promptgroup-4-routers", "sglang")
JUDGED = POLICIES[:2]
LESS_HIT = 0.01
"""Share of prompt tokens that noise may cost."""

SLOW = Model(
    prefill_rate=400, overhead=0.06, sequence=0.004, context=2e-6, step_tokens=2048, sequences=64, kv_tokens=40_000
)
"""An engine on CPUs."""
SLOW_LATE = 1.0
SLOW_SECONDS = 48.0
SLOW_REPLICAS = 3
WRONG = 12.5
"""Rate that routers are given for these engines, in multiples of the true one."""
SLOW_WORKLOADS = {"slow, declared": True, "slow, undeclared": False}
"""Whether the tasks' prompts are declared."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    workload: str
    policy: str
    noisy: bool
    seed: int


def jobs(workloads: Sequence[str], seeds: Sequence[int], slow_seeds: Sequence[int]) -> list[Job]:
    """Every run. Those of slow engines are short, and one cold prompt more or less is two points of one of them."""
    return [
        Job(workload, policy, noisy, seed)
        for workload in (*workloads, *SLOW_WORKLOADS)
        for policy in POLICIES
        for noisy in (False, True)
        for seed in (slow_seeds if workload in SLOW_WORKLOADS else seeds)
    ]


def run(job: Job) -> Figures:
    """Simulate a minute."""
    if job.workload in SLOW_WORKLOADS:
        return _slow(job)
    kind = catalogue.workload(job.workload)
    model = replace(kind.model, varies=VARIES, late=LATE) if job.noisy else kind.model
    rate = LOAD * kind.capacity
    length = kind.length(rate, quick=True)
    world = World(catalogue.POLICIES[job.policy](job.seed), kind.write(rate, length, job.seed), kind.replicas, model)
    world.run(length + DRAIN)
    measured = [turn for turn in world.turns if kind.warm_up <= turn.arrived < length]
    return figures(measured, kind.replicas, model, length + DRAIN)


def _slow(job: Job) -> Figures:
    model = replace(SLOW, varies=VARIES, late=SLOW_LATE) if job.noisy else SLOW
    router: Router = catalogue.POLICIES[job.policy](job.seed)
    if isinstance(router, Ours):
        router = Ours(routers=len(router.balancers), seed=job.seed, known_rate=WRONG)
    sessions = workloads.tasks(SLOW_SECONDS, job.seed, declared=SLOW_WORKLOADS[job.workload])
    world = World(router, sessions, SLOW_REPLICAS, model)
    world.run(10 * SLOW_SECONDS)
    return figures(world.turns, SLOW_REPLICAS, model, 10 * SLOW_SECONDS)


Means = dict[tuple[str, str, bool], Figures]
"""(workload, policy, noisy) → the mean over seeds."""


def means(done: Sequence[Job], figureses: Sequence[Figures]) -> Means:
    """Return the means over seeds."""
    groups: dict[tuple[str, str, bool], list[Figures]] = {}
    for job, item in zip(done, figureses, strict=True):
        groups.setdefault((job.workload, job.policy, job.noisy), []).append(item)
    return {key: mean(some) for key, some in groups.items()}


def gates(figures: Means) -> list[Gate]:
    """The limits of the hits that this policy loses to noise."""
    judged = []
    for (workload, policy, noisy), shaken in figures.items():
        if noisy and policy in JUDGED:
            less = figures[workload, policy, False].hit - shaken.hit
            judged.append(Gate(f"{workload}, {policy}", "token hit lost to noise", less, LESS_HIT))
    return judged


def sheet(figures: Means) -> Sheet:
    """One row a workload and policy."""
    rows = []
    for (workload, policy, noisy), shaken in figures.items():
        if noisy:
            steady = figures[workload, policy, False]
            rows.append((
                f"{workload}: {policy}", f"{steady.hit:.1%}", f"{shaken.hit:.1%}", milliseconds(steady.mean),
                milliseconds(shaken.mean), milliseconds(steady.p99), milliseconds(shaken.p99), f"{shaken.refused:.0f}",
            ))  # fmt: skip
    title = (
        f"{LOAD:.0%} load: engines that keep their pace, and ones whose pace varies {VARIES:g} times and that tell late"
    )
    columns = ("", "hit", "with noise", "mean, ms", "with noise", "p99, ms", "with noise", "refused")
    return Sheet(title, columns, tuple(rows))
