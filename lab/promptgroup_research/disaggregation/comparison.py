"""Runs of a workload on engines that do both, and on as many that are split, and their table."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from promptgroup_research.disaggregation.pair_policy import PairOracle
from promptgroup_research.disaggregation.pair_world import Link, PairWorld
from promptgroup_research.disaggregation.separate_pools import SeparatePools
from promptgroup_research.disaggregation.token_gaps import WatchedEngine, gap_percentile, gaps_of
from promptgroup_research.experiments import catalogue
from promptgroup_research.experiments.report import Sheet, milliseconds
from promptgroup_research.experiments.runs import DRAIN
from promptgroup_research.experiments.tiers import REACHED, TOKEN_BYTES
from promptgroup_research.simulator.measure import percentile, ttfts
from promptgroup_research.simulator.turns import Turn
from promptgroup_research.simulator.world import Router, World

RDMA = Link("400 Gbit/s RDMA", 0.005, TOKEN_BYTES / (REACHED * 50e9))
TCP = Link("25 Gbit/s TCP", 0.010, TOKEN_BYTES / (REACHED * 3.125e9))
"""Links of the same rates as those of KV tiers."""
WORKLOADS = ("chat", "agents", "prompts", "documents", "helpers", "long")
LOADS = (0.5, 0.75)
THRESHOLD = 512
"""Tokens that a decode engine computes itself at most."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to use the same number of engines."""

    title: str
    prefillers: int = 0
    """Engines that compute prompts alone; 0 where all do both."""
    step_tokens: int = 8192
    policy: str = "promptgroup"
    """Where all do both; pairs have an oracle."""
    link: Link = RDMA
    threshold: int = THRESHOLD
    unshared: int = 0
    """Of engines that do both, those that only serve requests which share nothing."""


def _split(prefillers: int, link: Link = RDMA, threshold: int = THRESHOLD) -> Arm:
    share = f"{prefillers} + {{}} apart"
    detail = "" if link is RDMA else f", {link.name}"
    return Arm(share + detail + ("" if threshold == THRESHOLD else f", above {threshold:,}"), prefillers,
               link=link, threshold=threshold)  # fmt: skip


ARMS = (
    Arm("both, 8,192 tokens a step"),
    Arm("both, 2,048", step_tokens=2048),
    Arm("both, 512", step_tokens=512),
    Arm("both, 512, oracle", step_tokens=512, policy="oracle"),
    *(_split(count) for count in range(1, 7)),
    _split(2, TCP),
    _split(2, threshold=4096),
)
APART_BY_GROUP = tuple(Arm(f"both, 2,048, {count} for documents alone", step_tokens=2048, unshared=count)
                       for count in (3, 4, 5, 6))  # fmt: skip
"""Further arms for the workload in which a few requests disturb many."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    workload: str
    load: float
    """Share of the capacity of engines that do both."""
    arm: Arm
    seed: int
    quick: bool = False
    caches: float = 1.0
    """Times the tokens of a KV cache, of pairs alone."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a run, or their means. Shares are 0 to 1, times are seconds."""

    hit: float
    """Prompt tokens that no engine computed."""
    mean: float
    """TTFT."""
    p99: float
    gap: float
    """p99 of the time between two tokens."""
    slowest: float
    """p99 over requests of the mean time between the tokens of an answer."""
    shared_p99: float
    """TTFT p99 of the requests of groups."""
    shared_slowest: float
    """`slowest` of the requests of groups."""
    apart: float
    """Requests whose prompt another engine computed."""
    copied: float
    """Tokens copied between engines, as a share of all prompt tokens."""
    refused: float
    """Requests that the router refused, or that had no first token in the end."""


def arms_of(workload: str) -> tuple[Arm, ...]:
    """Return the arms of a workload."""
    return (*ARMS, *APART_BY_GROUP) if workload == "long" else ARMS


def jobs(
    workloads: Sequence[str], loads: Sequence[float], seeds: Sequence[int], *, quick: bool, caches: float = 1.0
) -> list[Job]:
    """Return every run."""
    return [
        Job(workload, load, arm, seed, quick, caches)
        for workload in workloads
        for load in loads
        for arm in arms_of(workload)
        for seed in seeds
    ]


def run(job: Job) -> Outcome:
    """Simulate."""
    kind, arm = catalogue.workload(job.workload), job.arm
    rate = job.load * kind.capacity
    length = kind.warm_up + (catalogue.QUICK_LENGTH if job.quick else 2 * catalogue.QUICK_LENGTH)
    sessions = kind.write(rate, length, job.seed)
    model = replace(kind.model, step_tokens=arm.step_tokens)
    if arm.prefillers:
        model = replace(model, kv_tokens=int(model.kv_tokens * job.caches))
        pairs = PairOracle(arm.threshold)
        world: World = PairWorld(pairs, sessions, kind.replicas, arm.prefillers, model=model, link=arm.link)
    else:
        world = World(_router(arm, job.seed), sessions, kind.replicas, model, engine=WatchedEngine)
    world.run(length + DRAIN)
    return outcome(world, kind.warm_up, length)


def _router(arm: Arm, seed: int) -> Router:
    return SeparatePools(arm.unshared, seed=seed) if arm.unshared else catalogue.POLICIES[arm.policy](seed)


def outcome(world: World, begin: float, end: float) -> Outcome:
    """Return the figures of the requests that arrived within a time, of a world that ran `DRAIN` longer."""
    measured = [turn for turn in world.turns if begin <= turn.arrived < end]
    admitted = [turn for turn in measured if turn.cached >= 0]
    elsewhere = world.computed if isinstance(world, PairWorld) else {}
    copied = world.copied if isinstance(world, PairWorld) else {}
    tokens = max(1, sum(turn.prompt for turn in admitted))
    computed = sum(turn.prompt - turn.cached + elsewhere.get(turn, 0) for turn in admitted)
    times = ttfts(measured, end + DRAIN)
    of_groups = [turn for turn in measured if turn.session.group >= 0]
    return Outcome(
        hit=1 - computed / tokens,
        mean=statistics.fmean(times) if times else 0.0,
        p99=percentile(times, 0.99),
        gap=gap_percentile(gaps_of(world.engines, begin, end), 0.99),
        slowest=_slowest(measured),
        shared_p99=percentile(ttfts(of_groups, end + DRAIN), 0.99),
        shared_slowest=_slowest(of_groups),
        apart=sum(turn in elsewhere for turn in admitted) / max(1, len(admitted)),
        copied=sum(copied.get(turn, 0) for turn in admitted) / tokens,
        refused=sum(turn.refused or turn.first < 0 for turn in measured) / max(1, len(measured)),
    )


def _slowest(turns: Sequence[Turn]) -> float:
    paces = ((turn.ended - turn.first) / (turn.output - 1) for turn in turns if turn.ended >= 0 and turn.output > 1)
    return percentile(sorted(paces), 0.99)


def sheets(done: Sequence[Job], outcomes: Sequence[Outcome]) -> list[Sheet]:
    """Return a table for each workload and load, one row an arm: means over seeds."""
    groups: dict[tuple[str, float], dict[Arm, list[Outcome]]] = {}
    for job, item in zip(done, outcomes, strict=True):
        groups.setdefault((job.workload, job.load), {}).setdefault(job.arm, []).append(item)
    return [
        Sheet(
            f"{catalogue.workload(name).title}, {load:.0%} load of {catalogue.workload(name).replicas} engines",
            COLUMNS,
            tuple(_row(arm, mean(some), catalogue.workload(name).replicas) for arm, some in arms.items()),
        )
        for (name, load), arms in groups.items()
    ]


COLUMNS = (
    "engines", "hit", "TTFT mean, ms", "p99", "p99 of groups", "between tokens p99, ms", "slowest answers, ms",
    "of groups", "two steps", "copied", "refused",
)  # fmt: skip


def mean(some: Sequence[Outcome]) -> Outcome:
    """Return the means, figure by figure."""
    return Outcome(
        **{field.name: statistics.fmean(getattr(item, field.name) for item in some) for field in fields(Outcome)}
    )


def _or_none(seconds: float) -> str:
    return milliseconds(seconds) if seconds else "-"


def _row(arm: Arm, item: Outcome, replicas: int) -> tuple[str, ...]:
    return (
        arm.title.format(replicas - arm.prefillers), f"{item.hit:.1%}", milliseconds(item.mean), milliseconds(item.p99),
        _or_none(item.shared_p99), milliseconds(item.gap), milliseconds(item.slowest),
        _or_none(item.shared_slowest), f"{item.apart:.0%}", f"{item.copied:.0%}",
        f"{item.refused:.1%}",
    )  # fmt: skip
