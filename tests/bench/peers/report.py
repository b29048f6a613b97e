"""What a router did, as numbers and as a table. Pure but for printing."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from promptgroup_local.load.summary import quantile

P99_AGAINST_PEERS = 0.75
"""What the p99 of this project's router may be of the best peer's at most."""
POINTS = 0.02
"""What a hit rate may be off the simulation's."""
HIT_BELOW_PEERS = 0.03
"""Share of tokens by which the gate lets hits be below the best peer's, which keeps each session where it began."""
QUICK_P99 = 1.2
"""The gate of quick runs for the p99 beside the best peer's: it is that of three requests."""
QUIET = 0.9
"""Share of the machine's cores up to which times say something."""
QUIET_SECONDS = 0.05
"""Seconds by which timers may be late on a quiet machine, 99th percentile."""
APART = 1.2
"""Mean TTFTs of two routers are in an order where the simulation has them apart by this factor."""


@dataclass(frozen=True, slots=True)
class Run:
    """One router, one seed."""

    router: str
    seed: int
    requests: int
    """That were measured."""
    failed: dict[str, int]
    """By what went wrong."""
    hit: float
    """Prompt tokens found in caches, by the engines' counters, 0 to 1."""
    imbalance: float
    """Most requests on an engine over the mean."""
    ttfts: list[float]
    """Seconds, of requests that did not fail, ascending."""
    router_cpu: float
    """Seconds of the router's CPU a request."""
    engines_cpu: float
    """Cores that the engines took together."""
    client_cpu: float
    machine: float
    """Share of the machine's cores that was busy, with whatever else."""
    late: float
    """Seconds by which timers are late, 99th percentile: where it is not small against TTFTs, they say nothing."""
    simulated_hit: float | None = None
    simulated_mean: float | None = None
    simulated_p99: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One router, all seeds: TTFTs of all of them together, means of the other figures."""

    router: str
    requests: int
    failed: int
    hit: float
    imbalance: float
    mean: float
    p50: float
    p99: float
    router_cpu: float
    engines_cpu: float
    client_cpu: float
    machine: float
    late: float
    simulated_hit: float | None
    simulated_mean: float | None
    simulated_p99: float | None


def rows(runs: Iterable[Run]) -> list[Row]:
    """In the order in which routers first come."""
    by_router: dict[str, list[Run]] = {}
    for run in runs:
        by_router.setdefault(run.router, []).append(run)
    return [_row(name, some) for name, some in by_router.items()]


def _row(name: str, runs: Sequence[Run]) -> Row:
    times = sorted(each for run in runs for each in run.ttfts)

    def mean(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known else None

    return Row(
        router=name,
        requests=sum(run.requests for run in runs),
        failed=sum(sum(run.failed.values()) for run in runs),
        hit=statistics.fmean(run.hit for run in runs),
        imbalance=statistics.fmean(run.imbalance for run in runs),
        mean=statistics.fmean(times) if times else 0.0,
        p50=quantile(times, 0.5) or 0.0,
        p99=quantile(times, 0.99) or 0.0,
        router_cpu=statistics.fmean(run.router_cpu for run in runs),
        engines_cpu=statistics.fmean(run.engines_cpu for run in runs),
        client_cpu=statistics.fmean(run.client_cpu for run in runs),
        machine=statistics.fmean(run.machine for run in runs),
        late=max(run.late for run in runs),
        simulated_hit=mean(run.simulated_hit for run in runs),
        simulated_mean=mean(run.simulated_mean for run in runs),
        simulated_p99=mean(run.simulated_p99 for run in runs),
    )


def table(of: Sequence[Row], title: str) -> Table:
    """For the terminal."""
    shown = Table(title=title)
    headings = (
        "router", "requests", "failed", "token hit", "simulated", "TTFT mean, ms", "simulated", "p50", "p99",
        "simulated", "max / mean", "router CPU, ms / request", "cores: engines", "client", "machine", "timers late, ms",
    )  # fmt: skip
    for heading in headings:
        shown.add_column(heading, justify="left" if heading == "router" else "right")
    for row in of:
        shown.add_row(
            row.router,
            str(row.requests),
            str(row.failed),
            f"{row.hit:.1%}",
            "-" if row.simulated_hit is None else f"{row.simulated_hit:.1%}",
            *map(_milliseconds, (row.mean, row.simulated_mean, row.p50, row.p99, row.simulated_p99)),
            f"{row.imbalance:.2f}",
            f"{row.router_cpu * 1000:.2f}",
            f"{row.engines_cpu:.2f}",
            f"{row.client_cpu:.2f}",
            f"{row.machine:.0%}",
            f"{row.late * 1000:.0f}",
        )
    return shown


def verdicts(of: Sequence[Row], ours: str, peers: Sequence[str]) -> list[str]:
    """What must hold between this project's router and the best of its peers, met or missed."""
    by_name = {row.router: row for row in of}
    some = [by_name[name] for name in peers if name in by_name]
    if ours not in by_name or not some:
        return []
    own = by_name[ours]
    hits, quick = max(some, key=lambda row: row.hit), min(some, key=lambda row: row.p99)
    ratio = own.p99 / quick.p99
    quick_enough = ratio <= P99_AGAINST_PEERS
    lines = [
        f"token hit {own.hit:.1%}, best peer {hits.hit:.1%} ({hits.router}): {_word(own.hit >= hits.hit)}",
        f"p99 TTFT {ratio:.2f} x the best peer's ({quick.router}), at most {P99_AGAINST_PEERS}: {_word(quick_enough)}",
    ]
    return lines + _agreement([row for row in of if row.simulated_hit is not None])


def quiet(of: Sequence[Row]) -> bool:
    """Return True if the machine left the routers enough time for a judgement of their times."""
    return all(row.machine <= QUIET and row.late <= QUIET_SECONDS for row in of)


def missed(of: Sequence[Row], ours: str, peers: Sequence[str], *, quick: bool) -> list[str]:
    """Return the gates that this project's router misses beside the best of its peers; times only of a quiet machine.

    Args:
        of: the rows of all routers.
        ours: name of the row that is judged.
        peers: names of the rows that it is judged by.
        quick: whether the runs were quick ones, whose p99 is that of few requests.

    Raises:
        LookupError: the judged row, or every peer's, is missing.
    """
    by_name = {row.router: row for row in of}
    own, some = by_name[ours], [by_name[name] for name in peers if name in by_name]
    if not some:
        raise LookupError("no peer was run")
    best, most = max(row.hit for row in some), QUICK_P99 if quick else P99_AGAINST_PEERS
    ratio = own.p99 / min(row.p99 for row in some)
    gates = {
        f"{own.failed} requests failed": own.failed == 0,
        f"token hit {own.hit:.1%} is below {best - HIT_BELOW_PEERS:.1%}": own.hit >= best - HIT_BELOW_PEERS,
        f"p99 TTFT is {ratio:.2f} x the best peer's, above {most}": ratio <= most or not quiet(of),
    }
    return [text for text, met in gates.items() if not met]


def _agreement(of: Sequence[Row]) -> list[str]:
    """How far rows that have a simulation agree with it."""
    if not of:
        return []
    off, far = max((abs(row.hit - (row.simulated_hit or 0)), row.router) for row in of)
    pairs = [(low, high) for low in of for high in of if (low.simulated_mean or 0) * APART < (high.simulated_mean or 0)]
    kept = sum(low.mean < high.mean for low, high in pairs)
    return [
        f"hit rate within {off * 100:.1f} points of the simulation's, at most 2 ({far}): {_word(off <= POINTS)}",
        f"order of mean TTFTs as simulated in {kept} of {len(pairs)} pairs: {_word(kept == len(pairs))}",
    ]


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f}"


def _word(met: bool) -> str:
    return "met" if met else "MISSED"
