"""The tables of articles on prefix caching, measured: routing on eight GPUs, hit rates by workload, 1/N.

An article's figures are listed beside the measured ones. It names neither engine nor load, so its times cannot be
compared; hit rates, and the ranking of policies, can.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from promptgroup_research.experiments.catalogue import POLICIES
from promptgroup_research.experiments.report import Sheet, milliseconds
from promptgroup_research.experiments.runs import DRAIN
from promptgroup_research.policies.borders import REST, Borders
from promptgroup_research.policies.peer import Peer
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.measure import Figures, figures, mean
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.workloads import chat
from promptgroup_research.simulator.world import Router, World

WARM_UP, LENGTH = 60.0, 240.0
"""Seconds before requests are measured, and the end of arrivals."""
REPLICAS = 8


class AffinityGroups(Peer):
    """The first `count` replicas serve the shared prefix, the others the rest; in each part, the least loaded."""

    name = "affinity groups, 6 + 2"

    def __init__(self, count: int = 6) -> None:
        super().__init__()
        self._count = count

    def choose(self, turn: Turn, now: float) -> int:
        """The least loaded of the part."""
        up = self.world.up
        part = up[: self._count] if turn.session.group >= 0 else up[self._count :]
        return min(part, key=self.in_flight.__getitem__)


@dataclass(frozen=True, slots=True)
class Case:
    """A workload that an article describes."""

    title: str
    rate: float
    prefix: int
    """Tokens that sessions of a group share."""
    sharing: float
    """Share of requests in sessions of groups."""
    groups: int
    turns: float
    claim: str
    """The article's hit rate."""
    kv_tokens: int = 400_000

    def write(self, seed: int) -> list[Session]:
        """Sessions."""
        return chat(self.rate, LENGTH, seed, groups=self.groups, shared=self.sharing,
                    prompt=(self.prefix, self.prefix), mean_turns=self.turns)  # fmt: skip


def _owned(*counts: int, rest: int = 0) -> list[tuple[int, int]]:
    return [*enumerate(counts), *([(REST, rest)] if rest else [])]


ROUTING: dict[str, tuple[Callable[[int], Router], str]] = {
    "round robin": (POLICIES["round-robin"], "12.5 %, imbalance low, 52 / 115 ms"),
    "prefix hash": (POLICIES["prefix-hash"], "95 %, imbalance 8 x, 8 (median) / 280 ms"),
    "cache-aware (SGLang's)": (POLICIES["sglang"], "85 %, moderate, 14 / 65 ms"),
    "affinity groups, 6 + 2": (lambda _: AffinityGroups(), "92 %, low, 10 / 48 ms"),
    "promptgroup": (POLICIES["promptgroup"], ""),
}
BORDERS: dict[str, Callable[[int], Router]] = {
    "no borders": POLICIES["promptgroup"],
    "soft: 3 + 1 + 1 + 1 + 1 + 1, shared": lambda seed: Borders(_owned(3, 1, 1, 1, 1, 1), hard=False, seed=seed),
    "hard: 2 + 1 + 1 + 1 + 1 + 1, rest 1": lambda seed: Borders(_owned(2, 1, 1, 1, 1, 1, rest=1), hard=True, seed=seed),
    "hard: 1 + 1 + 1 + 1 + 1 + 1, rest 2": lambda seed: Borders(_owned(1, 1, 1, 1, 1, 1, rest=2), hard=True, seed=seed),
}
MAKERS = {policy: make for policy, (make, _) in ROUTING.items()} | BORDERS
SHARED = [
    Case("8 GPUs, 80 % of requests on one prefix of 2,000 tokens, single questions", 40, 2000, 0.8, 1, 1.0, ""),
    Case("The same with conversations of 5 turns", 45, 2000, 0.8, 1, 5.0, ""),
]
BY_WORKLOAD = [
    Case("enterprise chatbot, one system prompt", 40, 2048, 0.98, 1, 3.0, "96 %"),
    Case("ten system prompts", 40, 1500, 0.90, 10, 3.0, "88 %"),
    Case("RAG, shared chunks", 25, 4096, 0.60, 40, 1.0, "55 %"),
    Case("chat of 5 and more turns", 40, 3000, 0.85, 10, 7.0, "82 %"),
    Case("code completion", 25, 2000, 0.40, 20, 2.0, "35 %"),
    Case("batch, shared instructions", 40, 1000, 0.95, 5, 1.0, "93 %"),
    Case("open-ended", 25, 500, 0.15, 5, 1.5, "12 %"),
]
FITTING = [
    Case("6 prompts, 400k tokens of KV", 45, 3000, 0.8, 6, 5.0, ""),
    Case("64 prompts, 400k tokens of KV", 45, 3000, 0.8, 64, 5.0, ""),
    Case("64 prompts, 60k tokens of KV", 15, 3000, 0.8, 64, 5.0, "", 60_000),
]
SHARES = [Case(f"{share:.0%} of requests share", 25, 2000, share, 10, 1.0, "") for share in (0.1, 0.2, 0.3, 0.5, 0.8)]


BORDERED = [
    Case(f"Borders between 6 groups with chat, {rate / 65.9:.0%} load", rate, 3000, 0.8, 6, 5.0, "")
    for rate in (39.5, 49.4)
]


@dataclass(frozen=True, slots=True)
class Part:
    """One run."""

    case: Case
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class Found:
    """The figures of a run."""

    figures: Figures
    history: float
    """Share of the tokens after Tier 1, on later turns, that were cached."""


def jobs(seeds: Sequence[int]) -> list[Part]:
    """All runs of all tables."""
    seeds = seeds[:3]
    both = ("round robin", "promptgroup")
    parts = [(case, policy) for case in SHARED for policy in ROUTING]
    parts += [(case, policy) for case in (*BY_WORKLOAD, *FITTING, *SHARES) for policy in both]
    parts += [(case, policy) for case in BORDERED for policy in BORDERS]
    return [Part(case, policy, seed) for case, policy in parts for seed in seeds]


def run(part: Part) -> Found:
    """Simulate."""
    model = replace(Model(), kv_tokens=part.case.kv_tokens)
    world = World(MAKERS[part.policy](part.seed), part.case.write(part.seed), REPLICAS, model)
    world.run(LENGTH + DRAIN)
    measured = [turn for turn in world.turns if WARM_UP <= turn.arrived < LENGTH]
    later = [turn for turn in measured if turn.history and turn.cached >= 0]
    history = sum(max(0, turn.cached - turn.session.tier1) for turn in later)
    # the last block of a history is never whole
    whole = sum((turn.history - turn.session.tier1) // model.block * model.block for turn in later)
    return Found(figures(measured, REPLICAS, model, LENGTH + DRAIN), min(1.0, history / max(1, whole)))


def sheets(parts: Sequence[Part], founds: Sequence[Found]) -> list[Sheet]:
    """The tables, the article's figures beside."""
    results: dict[tuple[str, str], list[Found]] = {}
    for part, item in zip(parts, founds, strict=True):
        results.setdefault((part.case.title, part.policy), []).append(item)
    cells = {
        key: Found(mean([entry.figures for entry in some]), sum(entry.history for entry in some) / len(some))
        for key, some in results.items()
    }
    return [
        *(_routing(case, cells) for case in SHARED),
        _beside("Hit rate by workload", BY_WORKLOAD, cells),
        _beside("Where 1/N holds: history, and prompts that do not fit", FITTING, cells),
        *(_borders(case, cells) for case in BORDERED),
        _beside("When grouping pays: single questions, 10 prompts of 2,000 tokens", SHARES, cells),
    ]


def _routing(case: Case, cells: dict[tuple[str, str], Found]) -> Sheet:
    rows = []
    for policy, (_, claim) in ROUTING.items():
        it = cells[case.title, policy].figures
        imbalance = f"{it.imbalance:.2f}"
        times = (milliseconds(it.mean), milliseconds(it.p50), milliseconds(it.p99))
        rows.append((policy, f"{it.hit:.1%}", imbalance, *times, claim))
    columns = (
        "policy",
        "token hit",
        "max / mean",
        "TTFT mean, ms",
        "p50",
        "p99",
        "article: hit, imbalance, mean / p99",
    )
    return Sheet(case.title, columns, tuple(rows))


def _borders(case: Case, cells: dict[tuple[str, str], Found]) -> Sheet:
    rows = []
    for policy in BORDERS:
        it = cells[case.title, policy].figures
        times = (milliseconds(it.mean), milliseconds(it.p50), milliseconds(it.p99))
        rows.append((policy, f"{it.hit:.1%}", *times, f"{it.refused:.0f}", f"{it.unfinished:.0f}"))
    columns = ("own replicas", "token hit", "TTFT mean, ms", "p50", "p99", "refused", "unfinished")
    return Sheet(case.title, columns, tuple(rows))


def _beside(title: str, cases: Sequence[Case], cells: dict[tuple[str, str], Found]) -> Sheet:
    rows = []
    for case in cases:
        robin, ours = cells[case.title, "round robin"], cells[case.title, "promptgroup"]
        saved = 1 - ours.figures.mean / robin.figures.mean
        rows.append(
            (
                case.title, f"{robin.figures.hit:.0%}", f"{robin.history:.0%}" if robin.history else "-",
                f"{ours.figures.hit:.0%}", f"{ours.history:.0%}" if ours.history else "-",
                milliseconds(robin.figures.mean), milliseconds(ours.figures.mean), f"{saved:.0%}", case.claim,
            )
        )  # fmt: skip
    columns = (
        "workload", "round robin: token hit", "of history", "promptgroup: token hit", "of history",
        "TTFT mean: round robin, ms", "promptgroup", "less", "article: hit",
    )  # fmt: skip
    return Sheet(title, columns, tuple(rows))
