"""Changes of replicas or prompts under load: hits, first tokens and moved sessions, before and after.

Each scenario is a script on a world that runs at 75 % of its capacity (rolling restarts at 60 %: one replica is always
away). Bins of all seeds are pooled: 10 s, 5 s for agents, whose bursts are short.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from promptgroup_research.experiments import catalogue
from promptgroup_research.experiments.gates import OURS, Gate
from promptgroup_research.experiments.report import Sheet, milliseconds
from promptgroup_research.simulator.measure import percentile, ttfts
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.world import World

BEFORE = 60.0
"""Seconds before the event that it is compared with."""
EVENT = catalogue.WARM_UP + BEFORE
AFTER = 120.0
"""Seconds after the event that are evaluated: as long as a rolling restart takes."""
DRAIN = 60.0
BIN = {"chat": 10.0, "agents": 5.0, "prompts": 10.0, "prefixes": 10.0, "documents": 10.0, "helpers": 10.0}
AWAY = 30.0
"""Seconds until another process takes a lost replica's place."""
STOP, START, NEXT = 8.0, 10.0, 15.0
"""Of a rolling restart, for each replica: seconds to finish its requests, until its successor runs, until the next."""
STUCK, STUCK_SECONDS = 50.0, 15.0
"""Times its usual duration that a step of a stuck engine takes, and for how long."""
RECOVERED = 0.02
"""Share of tokens below the hit rate before that counts as recovered."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a scenario's cost."""

    p99: float
    """Worst bin over before."""
    dip: float | None = None
    """Share of tokens."""
    moved: float | None = None
    """Share of continuing turns, above the share before."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A script and the limits of its cost."""

    title: str
    play: Callable[[World, Sequence[Session]], None]
    limits: Limits | None = None
    load: float = 0.75
    replicas: int = 8


def warm(world: World, index: int, sessions: Iterable[Session], sign: int = 1) -> None:
    """Fill an engine's cache with every group's Tier 1."""
    for node, tokens in {(session.turns[0].nodes[0], session.tier1) for session in sessions if session.group >= 0}:
        world.engines[index].warm(sign * abs(node), tokens)


def join(*, warmed: bool) -> Callable[[World, Sequence[Session]], None]:
    """One replica more."""

    def play(world: World, sessions: Sequence[Session]) -> None:
        def come() -> None:
            world.add_engine()
            if warmed:
                warm(world, len(world.engines) - 1, sessions)
            world.set_up(range(len(world.engines)))

        world.at(EVENT, come)

    return play


def leave(world: World, _: Sequence[Session]) -> None:
    """One replica less: its running requests end."""
    world.at(EVENT, lambda: world.set_up(world.up[:-1]))


def lose(world: World, _: Sequence[Session]) -> None:
    """A replica dies and another process takes its place, cold."""
    world.at(EVENT, lambda: world.kill(3))
    world.at(EVENT + AWAY, lambda: world.revive(3))


def reset(world: World, _: Sequence[Session]) -> None:
    """Another process takes a replica's place at once, cold."""

    def replace() -> None:
        world.kill(3)
        world.revive(3)

    world.at(EVENT, replace)


def stick(world: World, _: Sequence[Session]) -> None:
    """An engine hardly answers for a while, and keeps its cache."""

    def slow(times: float) -> None:
        world.engines[3].slowed = times

    world.at(EVENT, lambda: slow(STUCK))
    world.at(EVENT + STUCK_SECONDS, lambda: slow(1.0))


def restart(*, warmed: bool) -> Callable[[World, Sequence[Session]], None]:
    """All replicas, one after another."""

    def play(world: World, sessions: Sequence[Session]) -> None:
        def back(index: int) -> None:
            if warmed:
                warm(world, index, sessions)
            world.revive(index)

        for index in range(len(world.engines)):
            begin = EVENT + NEXT * index
            world.at(begin, lambda index=index: world.set_up([item for item in world.up if item != index]))  # type: ignore[misc]
            world.at(begin + STOP, lambda index=index: world.kill(index))  # type: ignore[misc]
            world.at(begin + START, lambda index=index: back(index))  # type: ignore[misc]

    return play


def cut_over(*, running: bool, warmed: bool) -> Callable[[World, Sequence[Session]], None]:
    """Every group gets another prompt of the same length, for new sessions or for running ones too."""

    def play(world: World, sessions: Sequence[Session]) -> None:
        def cut() -> None:
            for index in world.up if warmed else ():
                warm(world, index, sessions, -1)
            for session in sessions:
                if session.group < 0 or (session.began <= world.now and not running):
                    continue
                session.prefix ^= 1
                for turn in session.turns:
                    if turn.arrived < 0:
                        # another prefix makes another path of everything that follows it
                        turn.nodes = tuple(-node for node in turn.nodes)

        world.at(EVENT, cut)

    return play


def nothing(_: World, __: Sequence[Session]) -> None:
    """For comparison: the worst of twelve bins is worse than their mean without any event."""


ORACLE = "oracle"
"""Plays every scenario too: costs that are inherent in an event are not the policy's."""
QUIET = "none"
SCENARIOS = {
    QUIET: Scenario("nothing happens", nothing),
    "join": Scenario("8 → 9 replicas, warmed", join(warmed=True), Limits(1.3, 0.01, 0.02)),
    "join-cold": Scenario("8 → 9 replicas, cold", join(warmed=False), Limits(1.3, 0.01, 0.02)),
    "leave": Scenario("9 → 8 replicas", leave, replicas=9),
    "lost": Scenario("one replica lost for 30 s, its cache gone", lose, Limits(1.8)),
    "reset": Scenario("one replica's process replaced, its cache gone", reset, Limits(1.8)),
    "stuck": Scenario("one replica hardly answers for 15 s", stick),
    "restart": Scenario("rolling restart, warmed, 60 % load", restart(warmed=True), Limits(2.2), load=0.6),
    "restart-cold": Scenario("rolling restart, cold, 60 % load", restart(warmed=False), load=0.6),
    "prompt-new": Scenario("new prompts, new sessions only, warmed", cut_over(running=False, warmed=True)),
    "prompt-new-cold": Scenario("new prompts, new sessions only, cold", cut_over(running=False, warmed=False)),
    "prompt-all": Scenario("new prompts, all sessions, warmed", cut_over(running=True, warmed=True)),
    "prompt-all-cold": Scenario("new prompts, all sessions, cold", cut_over(running=True, warmed=False)),
}
NAMES = tuple(SCENARIOS)


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a scenario."""

    scenario: str
    workload: str
    seed: int
    policy: str = OURS


@dataclass(frozen=True, slots=True)
class Seen:
    """The outcome of a request: seconds since the event, tokens, whether its session moved (None: new)."""

    when: float
    ttft: float
    cached: int
    prompt: int
    moved: bool | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A scenario on a workload, all seeds pooled. Seconds, and shares of 0 to 1."""

    scenario: str
    workload: str
    policy: str
    before: float
    """p99."""
    worst: float
    """p99 of the worst bin after the event."""
    dip: float
    moved: float
    recovery: float
    """End of the last bin whose hit rate was lower than before."""
    bins: tuple[tuple[float, float, float], ...]
    """Begin, p99, hit."""


def run(job: Job) -> list[Seen]:
    """Play a scenario."""
    scenario = SCENARIOS[job.scenario]
    kind = catalogue.workload(job.workload)
    until = EVENT + AFTER
    sessions = kind.write(scenario.load * kind.capacity * scenario.replicas / kind.replicas, until, job.seed)
    world = World(catalogue.POLICIES[job.policy](job.seed), sessions, scenario.replicas, kind.model)
    scenario.play(world, sessions)
    world.run(until + DRAIN)
    return seen(world.turns, until)


def seen(turns: Sequence[Turn], until: float) -> list[Seen]:
    """The requests that are evaluated, of a world that ran to its end."""
    result = []
    last: dict[int, int] = {}
    for turn in turns:
        key = turn.session.key
        moved = last[key] != turn.replica if key in last else None
        last[key] = turn.replica
        if EVENT - BEFORE <= turn.arrived < until:
            ttft = ttfts((turn,), until + DRAIN)
            result.append(
                Seen(turn.arrived - EVENT, ttft[0] if ttft else DRAIN, max(0, turn.cached), turn.prompt, moved)
            )
    return result


def outcome(scenario: str, workload: str, policy: str, runs: Iterable[Seen]) -> Outcome:
    """Pool runs of several seeds."""
    width = BIN[workload]
    pooled = list(runs)
    bins: dict[int, list[Seen]] = defaultdict(list)
    for item in pooled:
        bins[int(item.when // width)].append(item)
    before = [item for item in pooled if item.when < 0]
    first_minute = [item for item in pooled if 0 <= item.when < BEFORE]
    usual = _hit(before)
    lines = tuple((number * width, _p99(bins[number]), _hit(bins[number])) for number in sorted(bins))
    after = [line for line in lines if line[0] >= 0]
    # hits are compared in bins of ten seconds whatever the workload: shorter ones show only chance
    tens: dict[int, list[Seen]] = defaultdict(list)
    for item in pooled:
        tens[int(item.when // 10)].append(item)
    hits = [(number * 10.0, _hit(item)) for number, item in sorted(tens.items()) if number >= 0]
    return Outcome(
        scenario, workload, policy,
        before=_p99(before),
        worst=max(line[1] for line in after),
        dip=usual - min(share for _, share in hits),
        moved=max(0.0, _moved(first_minute) - _moved(before)),
        recovery=max((begin + 10 for begin, share in hits if share < usual - RECOVERED), default=0.0),
        bins=lines,
    )  # fmt: skip


def outcomes(jobs: Sequence[Job], results: Sequence[list[Seen]]) -> list[Outcome]:
    """Pool the requests of each scenario, workload and policy."""
    groups: dict[tuple[str, str, str], list[Seen]] = {}
    for job, result in zip(jobs, results, strict=True):
        groups.setdefault((job.scenario, job.workload, job.policy), []).extend(result)
    return [outcome(*key, pooled) for key, pooled in groups.items()]


def gates(result: Sequence[Outcome]) -> list[Gate]:
    """Those scenarios that have limits."""
    judged = []
    for item in result:
        limits = SCENARIOS[item.scenario].limits
        if limits is None or item.policy != OURS:
            continue
        where = f"{item.workload}, {item.scenario}"
        judged.append(Gate(where, "worst p99, x before", item.worst / item.before, limits.p99))
        if limits.dip is not None:
            judged.append(Gate(where, "dip of token hit", item.dip, limits.dip))
        if limits.moved is not None:
            judged.append(Gate(where, "moved turns", item.moved, limits.moved))
    return judged


def sheets(result: Sequence[Outcome], titles: dict[str, str]) -> list[Sheet]:
    """One table a workload."""
    columns = (
        "event",
        "p99 before, ms",
        "worst bin",
        "x before",
        "x without event",
        "hit dip",
        "moved",
        "recovery, s",
        "oracle: x before",
        "hit dip",
    )
    quiet = {item.workload: item.worst for item in result if item.scenario == QUIET and item.policy == OURS}
    best = {(item.scenario, item.workload): item for item in result if item.policy == ORACLE}
    return [
        Sheet(
            titles[workload],
            columns,
            tuple(
                _row(item, quiet.get(workload), best.get((item.scenario, workload)))
                for item in result
                if item.workload == workload and item.policy == OURS
            ),
        )
        for workload in dict.fromkeys(item.workload for item in result)
    ]


def _row(item: Outcome, quiet: float | None, best: Outcome | None) -> tuple[str, ...]:
    return (
        SCENARIOS[item.scenario].title, milliseconds(item.before), milliseconds(item.worst),
        f"{item.worst / item.before:.2f}", _against(item, quiet), f"{item.dip:.1%}", f"{item.moved:.1%}",
        f"{item.recovery:.0f}", f"{best.worst / best.before:.2f}" if best else "-", f"{best.dip:.1%}" if best else "-",
    )  # fmt: skip


def _against(outcome: Outcome, quiet: float | None) -> str:
    # rolling restarts run at another load: no event there is another world
    return (
        f"{outcome.worst / quiet:.2f}" if quiet and SCENARIOS[outcome.scenario].load == SCENARIOS[QUIET].load else "-"
    )


def _p99(some: Iterable[Seen]) -> float:
    return percentile(sorted(item.ttft for item in some), 0.99)


def _hit(some: Sequence[Seen]) -> float:
    return sum(item.cached for item in some) / max(1, sum(item.prompt for item in some))


def _moved(some: Iterable[Seen]) -> float:
    continuing = [item.moved for item in some if item.moved is not None]
    return sum(continuing) / max(1, len(continuing))
