"""Whether a new revision does worse than the old one: two samples of the same time → pass, wait or fail. Pure.

It fails when it is both worse by more than it may be and significantly worse:

    failed requests       Cochran-Mantel-Haenszel test with continuity correction
    time to first token   Wilcoxon-Mann-Whitney U with tie correction, strata combined by van Elteren;
                          for the 95th percentile the share slower than the old one's, by the first test again
    hit rate              the same U, of the share of each prompt that was found in cache

One that is worse by more than it may be, but not significantly, waits for more requests. A step is looked at again and
again, which alone makes a false alarm likely: of the error that `confidencePercent` leaves, each doubling of the
sample has a share that gets smaller (alpha spending), and the comparisons share each of those (Bonferroni).

Sources: Mantel & Haenszel, J. Natl. Cancer Inst. 22 (1959) 719; Mann & Whitney, Ann. Math. Statist. 18 (1947) 50;
van Elteren, Bull. Int. Statist. Inst. 37 (1960) 351; Lan & DeMets, Biometrika 70 (1983) 659.
"""

import enum
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from promptgroup_operator.api.prompt_group import JudgeSpec
from promptgroup_operator.world.samples import Histogram, Sample, Stratum, bucket_of, quantile

COMPARISONS = 4
"""Errors, hit rate, and time to first token twice: each has this part of the error that may be made."""

MEDIAN, TAIL = 0.5, 0.95
"""Quantiles of the time to first token that are compared."""


class AnalysisOutcome(enum.Enum):
    """What becomes of the step."""

    PASS = "pass"  # noqa: S105 - no password
    WAIT = "wait"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """An opinion with its reason, in the words of a condition."""

    opinion: AnalysisOutcome
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One figure of both revisions."""

    reason: str
    text: str
    beyond: bool
    """Worse by more than it may be."""
    p: float
    """Probability of a difference like this where there is none."""


Pair = tuple[Stratum, Stratum]
"""(old, new) of one stratum, neither empty."""


def analyse(old: Sample, new: Sample, spec: JudgeSpec) -> AnalysisResult:
    """Compare the requests of two revisions over the same time."""
    pairs = [(old[name], new[name]) for name in sorted(old.keys() & new.keys())]
    pairs = [(a, b) for a, b in pairs if a.requests > 0 and b.requests > 0]
    seen = min(sum(a.requests for a, _ in pairs), sum(b.requests for _, b in pairs))
    if seen < spec.min_requests:
        counts = [sum(each.requests for each in sample.values()) for sample in (new, old)]
        return AnalysisResult(
            AnalysisOutcome.WAIT,
            "TooFewRequests",
            f"{counts[0]:.0f} requests of the new revision and {counts[1]:.0f} of the old one in this step: "
            f"{spec.min_requests} of each that can be compared are needed",
        )
    doubling = int(math.log2(seen / spec.min_requests)) + 1
    alpha = (1 - spec.confidence_percent / 100) / COMPARISONS / (doubling * (doubling + 1))
    found = list(_comparisons(pairs, spec))
    worse = [each for each in found if each.beyond]
    failed = next((each for each in worse if each.p < alpha), None)
    if failed is not None:
        return AnalysisResult(
            AnalysisOutcome.FAIL, failed.reason, f"{failed.text} (p={failed.p:.2g}, {seen:.0f} requests compared)"
        )
    if worse:
        text = "; ".join(each.text for each in worse)
        return AnalysisResult(
            AnalysisOutcome.WAIT, "Undecided", f"{text}; the difference is not significant after {seen:.0f} requests"
        )
    return AnalysisResult(AnalysisOutcome.PASS, "NotWorse", "; ".join(each.text for each in found))


def _comparisons(pairs: Sequence[Pair], spec: JudgeSpec) -> Iterator[_Comparison]:
    rates = _both(pairs, lambda each: each.errors / each.requests, lambda each: each.requests)
    yield _Comparison(
        "ErrorRate",
        f"{rates[1]:.1%} of requests failed, {rates[0]:.1%} with the old revision",
        rates[1] - rates[0] > spec.max_error_rise_percent / 100,
        _more([(a.errors, a.requests, b.errors, b.requests) for a, b in pairs]),
    )
    timed = [(a, b) for a, b in pairs if a.first_token.total and b.first_token.total]
    if timed:
        yield from _first_token(timed, 1 + spec.max_ttft_rise_percent / 100)
    cached = [(a, b) for a, b in pairs if a.cached.total and b.cached.total]
    if cached:
        rates = _both(cached, lambda each: _mean(each.cached), lambda each: each.cached.total)
        yield _Comparison(
            "HitRate",
            f"{rates[1]:.0%} of prompt tokens were in cache, {rates[0]:.0%} with the old revision",
            rates[0] - rates[1] > spec.max_hit_rate_drop_percent / 100,
            greater([(b.cached, a.cached) for a, b in cached]),
        )


def _first_token(pairs: Sequence[Pair], factor: float) -> Iterator[_Comparison]:
    old, new = _standardised([(a.first_token, b.first_token) for a, b in pairs])
    shifted = greater([(a.first_token, b.first_token) for a, b in pairs])
    edge = bucket_of(old, TAIL)
    slow = _more(
        [
            (_above(a.first_token, edge), a.first_token.total, _above(b.first_token, edge), b.first_token.total)
            for a, b in pairs
        ]
    )
    for q, p in ((MEDIAN, shifted), (TAIL, slow)):
        before, after = quantile(old, q), quantile(new, q)
        text = f"time to first token p{q * 100:.0f} {after * 1000:.0f} ms, {before * 1000:.0f} ms with the old revision"
        yield _Comparison("TimeToFirstToken", text, after > before * factor, p)


def _both(
    pairs: Sequence[Pair], value: Callable[[Stratum], float], weight: Callable[[Stratum], float]
) -> tuple[float, float]:
    """(old, new): means over the strata, both by the new revision's share of requests in each."""
    total = sum(weight(new) for _, new in pairs)
    old, new = (sum(value(pair[side]) * weight(pair[1]) for pair in pairs) / total for side in (0, 1))
    return old, new


def _standardised(pairs: Sequence[tuple[Histogram, Histogram]]) -> tuple[Histogram, Histogram]:
    """(old, new) over all strata, the old one's weighted as if it had the new one's share of requests in each."""
    old = Histogram()
    new = Histogram()
    for before, after in pairs:
        factor = after.total / before.total
        old += Histogram(before.bounds, tuple(count * factor for count in before.counts))
        new += after
    return old, new


def _mean(shares: Histogram) -> float:
    """Of observations from 0 to 1: each at the middle of its bucket."""
    bounds = shares.bounds
    middles = [bounds[0], *((a + b) / 2 for a, b in itertools.pairwise(bounds)), bounds[-1]]
    return sum(count * at for count, at in zip(shares.counts, middles, strict=True)) / shares.total


def _above(histogram: Histogram, bucket: int) -> float:
    return sum(histogram.counts[bucket + 1 :])


def _more(tables: Sequence[tuple[float, float, float, float]]) -> float:
    """P of so many events in the second sample where both have one rate, over strata: Cochran-Mantel-Haenszel.

    Args:
        tables: (events, trials, events, trials) of the old and the new revision, one a stratum.
    """
    excess = variance = 0.0
    for old_events, old_trials, new_events, new_trials in tables:
        events, trials = old_events + new_events, old_trials + new_trials
        if trials < 2:
            continue
        excess += new_events - events * new_trials / trials
        variance += old_trials * new_trials * events * (trials - events) / (trials**2 * (trials - 1))
    if variance <= 0:
        return 1.0
    return _tail((excess - 0.5) / math.sqrt(variance))


def greater(pairs: Sequence[tuple[Histogram, Histogram]]) -> float:
    """P of a second sample so much greater where both have one distribution, over strata: van Elteren.

    Observations in one bucket are ties and share their mean rank.
    """
    excess = variance = 0.0
    for first, second in pairs:
        n, m = first.total, second.total
        total = n + m
        if n == 0 or m == 0:
            continue
        ranks = below = tied = 0.0
        for one, other in zip(first.counts, second.counts, strict=True):
            same = one + other
            ranks += other * (below + (same + 1) / 2)
            below += same
            tied += same**3 - same
        weight = 1 / (total + 1)
        excess += weight * (ranks - m * (total + 1) / 2)
        variance += weight**2 * n * m / 12 * (total + 1 - tied / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    return _tail(excess / math.sqrt(variance))


def _tail(z: float) -> float:
    """Upper tail of the standard normal distribution."""
    return math.erfc(z / math.sqrt(2)) / 2
