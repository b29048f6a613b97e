"""Run `python -m promptgroup_research.claims`: what the traffic's properties cost or bring, one table a claim.

Eight engines of the simulator behind one router, a minute after a warm-up, means over seeds. `--quick` takes one seed.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from promptgroup_research.claims import loads
from promptgroup_research.experiments.catalogue import JUDGING, POLICIES
from promptgroup_research.experiments.report import Sheet, milliseconds
from promptgroup_research.experiments.runs import DRAIN
from promptgroup_research.output import command_line
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.measure import percentile, ttfts
from promptgroup_research.simulator.turns import Session
from promptgroup_research.simulator.world import World

WARM_UP, LENGTH = 180.0, 240.0
"""Seconds before requests are measured, and the end of arrivals."""
REPLICAS = 8
RATE = 45.0
"""Requests a second: three quarters of what the engines can serve of these conversations."""
BATCH = 600
"""Requests of a batch on one engine."""
WIDTH = 130

DEFAULT = Model()

Write = Callable[[float, int], list[Session]]
"""Seconds of arrivals and a seed → sessions."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a table."""

    title: str
    write: Write
    model: Model = DEFAULT
    policy: str = "promptgroup"


@dataclass(frozen=True, slots=True)
class Part:
    """One run."""

    sheet: str
    case: Case
    seed: int


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of a run: of sessions that begin with a shared prompt. Shares are 0 to 1, times are seconds."""

    hit: float
    mean: float
    p99: float
    refused: int


def _of(write: Callable[..., list[Session]], rate: float = RATE, **fields: float) -> Write:
    return partial(_write, write, rate, fields)


def _write(
    write: Callable[..., list[Session]], rate: float, fields: dict[str, float], until: float, seed: int
) -> list[Session]:
    return write(rate, until, seed, **fields)


def _blocks(size: int) -> Model:
    return replace(Model(), block=size)


def _cache(tokens: int) -> Model:
    return replace(Model(), kv_tokens=tokens)


ONE = _of(loads.conversations)
TEN = _of(loads.conversations, prompts=10)
SHEETS: dict[str, tuple[Case, ...]] = {
    "The price of isolation: one system prompt of 3,000 tokens, a cache of its own for each tenant": (
        Case("one cache for all", ONE),
        *(Case(f"{count} tenants", _of(loads.conversations, prompts=count)) for count in (10, 50, 200, 1000)),
    ),
    "A/B tests of the system prompt": (
        Case("one prompt", ONE),
        Case("2 variants, one for each session", _of(loads.conversations, prompts=2)),
        Case("4 variants, one for each session", _of(loads.conversations, prompts=4)),
        Case("2 variants, drawn for each request", _of(loads.assigned_by_request, variants=2)),
        Case("4 variants, drawn for each request", _of(loads.assigned_by_request, variants=4)),
    ),
    "Answers that are regenerated": tuple(
        Case(f"{share:.0%}, {policy}", _of(loads.regenerated, rate=RATE, share=share), policy=policy)
        for share in (0.0, 0.3)
        for policy in ("promptgroup", "round-robin")
    ),
    "Block table or radix tree: tokens by which prefixes are cached": tuple(
        Case(f"{size} token{'s' * (size > 1)}", TEN, _blocks(size)) for size in (1, 16, 64, 128, 256)
    ),
    "Requests that share nothing, beside conversations at 30 requests/s": tuple(
        Case(f"{tokens:,} tokens of KV, {rate} requests/s of 1,000 tokens that share nothing",
             _of(loads.with_strangers, rate=30.0, strangers=rate), _cache(tokens))
        for tokens in (400_000, 100_000)
        for rate in (0, 4, 12)
    ),
}  # fmt: skip


def run(part: Part) -> Result:
    """Simulate."""
    case = part.case
    world = World(POLICIES[case.policy](part.seed), case.write(LENGTH, part.seed), REPLICAS, case.model)
    world.run(LENGTH + DRAIN)
    measured = [turn for turn in world.turns if WARM_UP <= turn.arrived < LENGTH and turn.session.group >= 0]
    admitted = [turn for turn in measured if turn.cached >= 0]
    times = sorted(ttfts(measured, LENGTH + DRAIN))
    return Result(
        hit=sum(turn.cached for turn in admitted) / max(1, sum(turn.prompt for turn in admitted)),
        mean=statistics.fmean(times),
        p99=percentile(times, 0.99),
        refused=sum(turn.refused for turn in measured),
    )


def sheets(parts: Sequence[Part], results: Sequence[Result]) -> list[Sheet]:
    """Return a table for each claim: means over seeds, and the mean TTFT beside that of the first row."""
    rows: dict[str, dict[str, list[Result]]] = {}
    for part, result in zip(parts, results, strict=True):
        rows.setdefault(part.sheet, {}).setdefault(part.case.title, []).append(result)
    return [Sheet(title, COLUMNS, tuple(_rows(cases))) for title, cases in rows.items()]


COLUMNS = ("", "token hit", "TTFT mean, ms", "to the first row", "p99, ms", "refused")


def _rows(cases: dict[str, list[Result]]) -> list[tuple[str, ...]]:
    means = {title: statistics.fmean(result.mean for result in some) for title, some in cases.items()}
    first = next(iter(means.values()))
    return [
        (
            title,
            f"{statistics.fmean(result.hit for result in some):.1%}",
            milliseconds(means[title]),
            f"{means[title] / first - 1:+.0%}",
            milliseconds(statistics.fmean(result.p99 for result in some)),
            f"{sum(result.refused for result in some)}",
        )
        for title, some in cases.items()
    ]


def throughput(prompt: int, common: float, answer: int) -> float:
    """Requests a second of one engine that gets a batch at once, whose prompts have this share in common."""
    sessions = loads.batch(BATCH, prompt, common, answer)
    world = World(POLICIES["round-robin"](1), sessions, 1)
    world.run(10_000.0)
    return (BATCH - 1) / (max(turn.ended for turn in world.turns) - loads.BATCH_BEGINS)


def throughputs() -> Sheet:
    """Return the throughput of one engine by the share of prompts that is common."""
    shapes = ((2000, 150), (2000, 500), (8000, 150), (500, 500))
    shares = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    rows = []
    for prompt, answer in shapes:
        rates = [throughput(prompt, common, answer) for common in shares]
        cells = (f"{rate:.1f} ({rate / rates[0]:.2f})" for rate in rates)
        rows.append((f"prompts of {prompt:,} tokens, answers of {answer}", *cells))
    columns = ("requests/s (times that of nothing in common)", *(f"{share:.0%}" for share in shares))
    return Sheet("Throughput of one engine by the share of the prompt that all requests have in common",
                 columns, tuple(rows))  # fmt: skip


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_research.claims", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed instead of three")
    parser.add_argument("--jobs", type=command_line.count, default=2, help="processes")
    parser.add_argument("--only", metavar="TEXT", default="", help="tables whose title has this text")
    chosen = parser.parse_args()
    console = command_line.console(WIDTH)
    seeds = JUDGING[:1] if chosen.quick else JUDGING[:3]
    parts = [
        Part(title, case, seed)
        for title, cases in SHEETS.items()
        if chosen.only in title
        for case in cases
        for seed in seeds
    ]
    shown = sheets(parts, command_line.watched(console, run, parts, chosen.jobs))
    if chosen.only in "Throughput of one engine":
        shown.insert(0, throughputs())
    for sheet in shown:
        console.print(sheet.markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
