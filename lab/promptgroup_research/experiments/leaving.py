"""Replicas leave under load: the highest slots, or those whose loss costs least by the routers' figures.

The choice is the operator's own code on the router's own figures. The load is 75 % of the capacity of the replicas that
stay, so that the results show the sessions that move and not a lack of replicas.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import PromptRef, SlotState
from promptgroup_operator.rollout import retained_slots
from promptgroup_operator.world.samples import SlotUse
from promptgroup_operator.world.snapshot import RevisionState
from promptgroup_research.experiments import catalogue
from promptgroup_research.experiments.report import Sheet, milliseconds
from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator.measure import percentile, ttfts
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.world import World

LOAD = 0.75
BEFORE, AFTER, DRAIN = 60.0, 120.0, 60.0
"""Seconds before the event, after it, and until the run ends, as of the other scenarios."""
BIN = {"chat": 10.0, "agents": 5.0, "trace": 20.0}
"""Seconds of a bin: requests of the trace are few."""
REPLACED = 40.0
"""Seconds before the event at which a replica is replaced; its successor starts 10 s later, with an empty cache."""

HIGHEST, COLDEST, KNOWING, NOBODY = "highest", "coldest", "knowing", "nobody"
"""`KNOWING` knows which sessions will return: an upper bound of the gain from a better forecast."""


@dataclass(frozen=True, slots=True)
class Case:
    """The number of replicas that leave, and the event before."""

    title: str
    leave: int = 1
    replaced: int | None = None
    """Slot whose process was replaced shortly before."""


REPLICAS = 9
CASES = {
    "one": Case("9 → 8"),
    "three": Case("9 → 6", leave=3),
    "replaced": Case("9 → 8, 30 s after slot 2 was replaced", replaced=2),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    workload: str
    case: str
    choice: str
    seed: int
    recorded: catalogue.Recorded | None


@dataclass(frozen=True, slots=True)
class Loss:
    """The cost of the event in one run."""

    sessions: int
    """Sessions that lived on a slot that left and returned within AFTER seconds."""
    tokens: int
    """Tokens of their histories that were computed again."""
    bins: Mapping[int, tuple[float, ...]]
    """Number of the bin since the event → seconds to first tokens in it."""


def jobs(names: Sequence[str], seeds: Sequence[int], recorded: catalogue.Recorded | None) -> list[Job]:
    """Every run."""
    return [
        Job(name, case, choice, seed, recorded)
        for name in names
        for case in CASES
        for choice in (NOBODY, HIGHEST, COLDEST, KNOWING)
        for seed in seeds[: catalogue.workload(name, recorded).seeds]
    ]


def use(router: Ours, slots: Sequence[int], now: float) -> dict[int, SlotUse]:
    """Return the router's figures of its slots."""
    slot_uses: dict[int, SlotUse] = {}
    for balancer in router.balancers:
        balancer.sessions.totals(now)
        for id_, replica in balancer.members.replicas.items():
            slot = int(id_.rpartition("/")[2])
            sessions, tokens = balancer.sessions.of_process((id_, replica.incarnation))
            slot_uses[slot] = slot_uses.get(slot, SlotUse()) + SlotUse(sessions, tokens, replica.in_flight)
    return {slot: slot_uses[slot] for slot in slots}


def foreseen(turns: Sequence[Turn], sessions: Sequence[Session]) -> dict[int, SlotUse]:
    """Return the KV that the slots hold for sessions that will return, from all requests so far."""
    coming = {session.key for session in sessions for turn in session.turns if turn.arrived < 0}
    last = {turn.session.key: turn for turn in turns if turn.replica >= 0}
    slot_uses: dict[int, SlotUse] = {}
    for key in last.keys() & coming:
        turn = last[key]
        tokens = turn.prompt + turn.output - turn.session.tier1
        slot_uses[turn.replica] = slot_uses.get(turn.replica, SlotUse()) + SlotUse(1, tokens)
    return slot_uses


def stay(slots: Sequence[int], slot_uses: Mapping[int, SlotUse], size: int) -> frozenset[int]:
    """Return the slots that stay, by the operator's choice; without figures the highest leave."""
    revision = RevisionState(
        fingerprint=Fingerprint(""), deployment="", created="", replicas=len(slots), superseded_at=None,
        prompt_from=PromptRef("ConfigMap", ""), prompt=None, pods=(),
        slots=dict.fromkeys(slots, SlotState.READY), use=slot_uses,
    )  # fmt: skip
    return retained_slots.ring(retained_slots.keep_order(revision), size)


def run(job: Job) -> Loss:
    """Simulate."""
    kind, case = catalogue.workload(job.workload, job.recorded), CASES[job.case]
    event = kind.warm_up + BEFORE
    until, left = event + AFTER, REPLICAS - case.leave
    router, gone = Ours(), set[int]()
    sessions = kind.write(LOAD * kind.capacity * left / kind.replicas, until, job.seed)
    world = World(router, sessions, REPLICAS, kind.model)

    def leave() -> None:
        slot_uses: dict[int, SlotUse] = {}
        if job.choice == COLDEST:
            slot_uses = use(router, world.up, world.now)
        elif job.choice == KNOWING:
            slot_uses = foreseen(world.turns, sessions)
        kept = stay(world.up, slot_uses, left)
        gone.update(set(world.up) - kept)
        world.set_up(sorted(kept))

    if case.replaced is not None:
        world.at(event - REPLACED, lambda: world.kill(case.replaced or 0))
        world.at(event - REPLACED + 10, lambda: world.revive(case.replaced or 0))
    if job.choice != NOBODY:
        world.at(event, leave)
    world.run(until + DRAIN)
    return loss(world.turns, event, gone, BIN[job.workload])


def loss(turns: Sequence[Turn], event: float, gone: set[int], width: float) -> Loss:
    """Return the cost of the event, from all requests of a run in the order of their arrivals."""
    last: dict[int, int] = {}
    arrived: set[int] = set()
    tokens = 0
    bins: dict[int, list[float]] = defaultdict(list)
    for turn in turns:
        key, since = turn.session.key, turn.arrived - event
        if since < 0:
            last[key] = turn.replica
        elif since < AFTER:
            bins[int(since // width)] += ttfts((turn,), event + AFTER + DRAIN) or [DRAIN]
            if last.get(key) in gone and key not in arrived and turn.cached >= 0:
                arrived.add(key)
                tokens += max(0, turn.history - turn.cached)
    return Loss(len(arrived), tokens, {number: tuple(item) for number, item in bins.items()})


def sheet(title: str, done: Sequence[Job], losses: Sequence[Loss]) -> Sheet:
    """Return a table of one workload: a row for each case and choice, all seeds pooled."""
    groups: dict[tuple[str, str], list[Loss]] = {}
    for job, item in zip(done, losses, strict=True):
        groups.setdefault((job.case, job.choice), []).append(item)
    rows = []
    for (case, choice), some in groups.items():
        before = groups.get((case, HIGHEST), some)
        rows.append((
            CASES[case].title, choice,
            _mean(some, lambda entry: entry.sessions), _mean(some, lambda entry: entry.tokens),
            f"{sum(entry.tokens for entry in some) / max(1, sum(entry.tokens for entry in before)):.2f}",
            milliseconds(_worst(some)),
        ))  # fmt: skip
    columns = ("event", "leaves", "sessions", "tokens computed again", "x highest", "worst p99, ms")
    return Sheet(title, columns, tuple(rows))


def _mean(some: Sequence[Loss], figure: Callable[[Loss], int]) -> str:
    return f"{sum(map(figure, some)) / len(some):,.0f}"


def _worst(some: Sequence[Loss]) -> float:
    """Return the p99 of the worst bin."""
    pooled: dict[int, list[float]] = defaultdict(list)
    for item in some:
        for number, seconds in item.bins.items():
            pooled[number] += seconds
    return max(percentile(sorted(seconds), 0.99) for seconds in pooled.values())
