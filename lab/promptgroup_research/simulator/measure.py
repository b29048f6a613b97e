"""The figures of a run: cache hits, times to first token, and the balance of load. Does no I/O."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.turns import Turn


@dataclass(frozen=True, slots=True)
class Figures:
    """One run, or the mean of several. Shares are 0 to 1, times are seconds."""

    requests: float
    """Requests that were measured."""
    hit: float
    """Prompt tokens that were cached, of all prompt tokens that were admitted."""
    mean: float
    p50: float
    p95: float
    p99: float
    imbalance: float
    """Requests of the replica that got most, over the mean."""
    refused: float
    unfinished: float
    """Requests without a first token when the run ended; their time so far counts as their TTFT."""
    wait: float
    """Mean seconds from arrival to admission."""
    own: float
    """Mean seconds of a request's own prefill."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the *sorted* values does not exceed; 0 without values."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def ttfts(turns: Iterable[Turn], ended: float) -> list[float]:
    """Sorted seconds to first tokens; up to the end of the run for those that got none."""
    return sorted((turn.first if turn.first >= 0 else ended) - turn.arrived for turn in turns if not turn.refused)


def hit(turns: Iterable[Turn]) -> float:
    """Share of prompt tokens that were cached."""
    admitted = [turn for turn in turns if turn.cached >= 0]
    return sum(turn.cached for turn in admitted) / max(1, sum(turn.prompt for turn in admitted))


def figures(measured: Sequence[Turn], replicas: int, model: Model, ended: float) -> Figures:
    """The figures of some requests of a run that ended at `ended`."""
    times = ttfts(measured, ended)
    places = Counter(turn.replica for turn in measured if not turn.refused)
    admitted = [turn for turn in measured if turn.admitted >= 0]
    owns = [model.prefill(turn.cached, turn.prompt - turn.cached) for turn in admitted]
    waits = [(turn.admitted if turn.admitted >= 0 else ended) - turn.arrived for turn in measured]
    return Figures(
        requests=len(measured),
        hit=hit(measured),
        mean=statistics.fmean(times) if times else 0.0,
        p50=percentile(times, 0.5),
        p95=percentile(times, 0.95),
        p99=percentile(times, 0.99),
        imbalance=max(places.values(), default=0) * replicas / max(1, places.total()),
        refused=sum(turn.refused for turn in measured),
        unfinished=sum(turn.first < 0 and not turn.refused for turn in measured),
        wait=statistics.fmean(waits) if waits else 0.0,
        own=statistics.fmean(owns) if owns else 0.0,
    )


def mean(runs: Sequence[Figures]) -> Figures:
    """Figure by figure."""
    return Figures(
        **{field.name: statistics.fmean(getattr(run, field.name) for run in runs) for field in fields(Figures)}
    )
