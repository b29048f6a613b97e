"""The limits that the project's policy must meet in comparison with its peers, and their check. Does no I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from promptgroup_research.experiments.catalogue import SHARING
from promptgroup_research.experiments.runs import Cell
from promptgroup_research.simulator.measure import Figures

OURS = "promptgroup"
CACHE_AWARE = "sglang"
WITHOUT_EVENTS = ("kubeai-chwbl", "sglang", "sglang-0.5", "gie", "gie-nocap", "dynamo", "dynamo-w30")
"""Peers with the same information as the project's router: their own requests and metrics; no events of caches."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for one workload at one load; ratios of the project's figures to a peer's."""

    mean: float
    p99: float
    best_p99: float
    """Against the best of the peers without events, tuned ones included."""
    more_hits: float = 0.0
    """Share of tokens above cache_aware's; 0: no limit."""
    times_hits: float = 0.0
    """Times round robin's share of tokens; 0: no limit."""


LIMITS = {
    ("chat", 0.75): Limits(0.65, 0.60, 1.0, more_hits=0.01),
    ("chat", 0.85): Limits(0.58, 0.58, 0.9, more_hits=0.01),
    ("agents", 0.75): Limits(0.50, 0.40, 0.75, more_hits=0.01),
    ("trace", 0.75): Limits(0.52, 0.65, 1.1, times_hits=1.8),
    ("trace", 0.85): Limits(0.50, 0.65, 1.1, times_hits=1.8),
}
ORACLE_P99 = 1.3
SHARED_MEAN = 1.05
"""Mean TTFT on the same workloads, times the best peer's: the noise of a few seeds above it."""
SHARED_HIT = 0.01
"""Share of tokens by which hits may be below the oracle's, on workloads that share undeclared prefixes."""
ROUTERS = {"promptgroup-2-routers": 1.2, "promptgroup-4-routers": 1.3}
ROUTERS_HIT = 0.005


@dataclass(frozen=True, slots=True)
class Slack:
    """Allowance for chance: the limits are those of whole runs of all seeds."""

    mean: float = 1.0
    """Times a limit of mean TTFT."""
    p99: float = 1.0
    """Times a limit of p99 TTFT."""
    hit: float = 0.0
    """Share of tokens."""


WHOLE = Slack()
QUICK = Slack(mean=1.25, p99=2.0, hit=0.02)
"""For runs of one seed and a minute, whose p99 is that of seven to thirty requests."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One line of the verdict: a limit, and the figure that was measured."""

    where: str
    what: str
    figure: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure is within the limit."""
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit


def gates(cells: Sequence[Cell], slack: Slack = WHOLE) -> list[Gate]:
    """Every gate that the cells have figures for."""
    result: list[Gate] = []
    places = dict.fromkeys((cell.workload, cell.load) for cell in cells)
    for workload, load in places:
        here = {cell.policy: cell.figures for cell in cells if (cell.workload, cell.load) == (workload, load)}
        if OURS in here:
            result += _of(f"{workload} {load:.0%}", LIMITS.get((workload, load)), here, slack)
        if OURS in here and workload in SHARING:
            result += _shared(f"{workload} {load:.0%}", here, slack)
    return result


def _of(where: str, limits: Limits | None, here: Mapping[str, Figures], slack: Slack) -> Iterator[Gate]:
    ours = here[OURS]
    if limits is not None and CACHE_AWARE in here:
        theirs = here[CACHE_AWARE]
        yield Gate(where, "mean TTFT, x cache_aware", _ratio(ours.mean, theirs.mean), slack.mean * limits.mean)
        yield Gate(where, "p99 TTFT, x cache_aware", _ratio(ours.p99, theirs.p99), slack.p99 * limits.p99)
        if limits.more_hits:
            more = ours.hit - theirs.hit
            yield Gate(where, "token hit, above cache_aware", more, limits.more_hits - slack.hit, at_least=True)
    peers = {name: here[name].p99 for name in WITHOUT_EVENTS if name in here}
    if limits is not None and peers:
        best = min(peers, key=peers.__getitem__)
        yield Gate(where, f"p99 TTFT, x best peer ({best})", _ratio(ours.p99, peers[best]), slack.p99 * limits.best_p99)
    if limits is not None and limits.times_hits and "round-robin" in here:
        times = _ratio(ours.hit, here["round-robin"].hit)
        yield Gate(where, "token hit, x round robin", times, limits.times_hits, at_least=True)
    if "oracle" in here:
        yield Gate(where, "p99 TTFT, x oracle", _ratio(ours.p99, here["oracle"].p99), slack.p99 * ORACLE_P99)
    for name, limit in ROUTERS.items():
        if name in here:
            yield Gate(where, f"p99 TTFT, {name} x one", _ratio(here[name].p99, ours.p99), slack.p99 * limit)
            yield Gate(where, f"token hit, {name} below one", ours.hit - here[name].hit, ROUTERS_HIT + slack.hit)


def _shared(where: str, here: Mapping[str, Figures], slack: Slack) -> Iterator[Gate]:
    ours = here[OURS]
    yield Gate(where, "requests refused", ours.refused, 0.0)
    if "oracle" in here:
        yield Gate(where, "token hit, below oracle", here["oracle"].hit - ours.hit, SHARED_HIT + slack.hit)
    peers = {name: here[name].mean for name in WITHOUT_EVENTS if name in here}
    if peers:
        best = min(peers, key=peers.__getitem__)
        yield Gate(where, f"mean TTFT, x best peer ({best})", _ratio(ours.mean, peers[best]), slack.mean * SHARED_MEAN)


def _ratio(one: float, other: float) -> float:
    return one / other if other else float("inf")
