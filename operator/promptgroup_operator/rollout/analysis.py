"""Compares a new revision with the old one: two samples of the same time → pass, wait or fail.

A revision fails when it is both worse by more than a limit and significantly worse:

    failed requests       Cochran-Mantel-Haenszel test with continuity correction
    time to first token   of streamed answers: Wilcoxon-Mann-Whitney U with tie correction, strata combined by van
                          Elteren; for the 95th percentile the share slower than the old one's, by the first test again
    hit rate              the same U, of the share of each prompt that was served from cache

Only similar requests are compared: strata are first and later turns, clients that name the group and clients that send
its prompt, streamed and whole answers. The first byte of a whole answer follows its last token, so its time depends
more on the answer's length than on the engine: whole answers are compared only by errors and hit rate. Requests that
routers count as `other` are not compared: their times depend on a session's previous replica, on lending and on queues,
not on the prompt. Clients that send a prompt choose their revision: their times are compared only if those of the new
one do not send longer requests. docs/concepts/releases.md lists further differences beside the prompt.

A figure over all strata is their mean, weighted by m n / (m + n) for m and n requests, as Mantel and Haenszel do. So it
is worse by more than a limit only if one of the strata is.

A revision that is worse by more than a limit, but not significantly, waits for more requests. A step is analysed
repeatedly, which alone would make a false alarm likely. So a difference is significant when it exceeds a boundary
that equal revisions cross at any time, however often they are compared, with no more than the error that
`confidencePercent` leaves: Robbins's normal mixture. The comparisons divide that error (Bonferroni). A gross fault
fails from 10 requests on; to pass requires `minRequests`, and 10 streamed answers where they can be expected before
twice `minRequests`. Decisions 0017 and 0074 have the figures. If clients send the new prompt and hardly any requests
are left to compare with, `retireDeadline` ends the wait (decision 0079). It ends no other wait: for an undecided
revision neither the take-over nor the rollback is justified, so the condition reports it to users instead.

Sources: Mantel & Haenszel, J. Natl. Cancer Inst. 22 (1959) 719; Mann & Whitney, Ann. Math. Statist. 18 (1947) 50;
van Elteren, Bull. Int. Statist. Inst. 37 (1960) 351; Robbins, Ann. Math. Statist. 41 (1970) 1397; Howard, Ramdas,
McAuliffe & Sekhon, Ann. Statist. 49 (2021) 1055.
"""

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from promptgroup_contract import names
from promptgroup_operator.api.prompt_group import JudgeSpec
from promptgroup_operator.world.samples import Histogram, Sample, Stratum, StratumKey, bucket_of, mean, quantile

COMPARISONS = 4
"""Number of comparisons among which the permitted error is divided: errors, hit rate, and time to first token twice."""

MEDIAN, TAIL = 0.5, 0.95
"""Quantiles of the time to first token that are compared."""

EARLY = 10
"""Minimum number of comparable requests of each revision from which on a gross fault fails a step: the tests' normal
approximation needs some."""

STREAMS_WITHIN = 2
"""Multiple of `minRequests` up to which a step waits for `EARLY` streamed answers if clients stream: without them the
time to first token would not be compared. Beyond it, a group whose clients seldom stream passes without them."""

SHORT = 64
"""Tokens by which requests may always be longer on average: an engine computes them in one step."""

LONG = timedelta(hours=1)
"""Time after which the message of a step that waits for `minRequests` includes advice to shorten it."""


class AnalysisOutcome(enum.Enum):
    """Outcome of an analysis for the step of a release."""

    PASS = "pass"  # noqa: S105 - no password
    WAIT = "wait"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """An outcome with the reason and the message of a condition."""

    outcome: AnalysisOutcome
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One figure of both revisions."""

    reason: str
    text: str
    limit: str
    """The setting with the permitted difference."""
    beyond: bool
    """True if it is worse by more than the limit."""
    p: float
    """Probability of such a difference between equal revisions."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """One stratum of both revisions, neither of them empty."""

    key: StratumKey
    old: Stratum
    new: Stratum


def analyse(
    old: Sample, new: Sample, spec: JudgeSpec, elapsed: timedelta, longest: timedelta = timedelta.max
) -> AnalysisResult:
    """Compare the requests of two revisions over the same time.

    Args:
        old: requests of the revision that serves.
        new: requests of the revision that is released.
        spec: limits, and the confidence that a failure requires.
        elapsed: time since the start of the step.
        longest: maximum wait for comparable requests of the old revision; after it, an undecided step waits for a
            user's decision.
    """
    pairs = [_Pair(key, old[key], new[key]) for key in sorted(old.keys() & new.keys()) if key.turn != names.TURN_OTHER]
    pairs = [pair for pair in pairs if pair.old.requests > 0 and pair.new.requests > 0]
    counts = sum(pair.new.requests for pair in pairs), sum(pair.old.requests for pair in pairs)
    compared = min(counts)
    result = list(_comparisons(pairs, spec)) if compared >= EARLY else []
    worse = [item for item in result if item.beyond]
    failed = next((item for item in worse if item.p < significant(compared, spec)), None)
    if failed is not None:
        message = f"{failed.text} (p={failed.p:.2g}, {compared:.0f} requests compared)"
        return AnalysisResult(AnalysisOutcome.FAIL, failed.reason, message)
    if counts[1] < EARLY and elapsed >= longest and (text := _by_itself(new, spec)):
        message = f"{text}; within rollout.retireDeadline {counts[1]:.0f} of the old revision could be compared"
        return AnalysisResult(AnalysisOutcome.PASS, "NotCompared", message)
    if compared < spec.min_requests:
        message = _too_few(counts, spec.min_requests, elapsed)
        return AnalysisResult(AnalysisOutcome.WAIT, "TooFewRequests", message)
    streams, enough = _streams(old, new, pairs, spec), STREAMS_WITHIN * spec.min_requests
    if streams is not None and streams < EARLY and compared < enough:
        message = f"{streams:.0f} streamed answers of each revision can be compared, {EARLY} are needed"
        message = f"{message}, or {enough} requests of any kind ({compared:.0f} so far)"
        return AnalysisResult(AnalysisOutcome.WAIT, "TooFewRequests", message)
    undecided = "Undecided" if elapsed < longest else "Inconclusive"
    if streams is not None and streams < EARLY and (late := _slow_others(old, new, spec)) is not None:
        message = f"{late}, of streamed answers that waited behind others or came to another replica than before; only "
        message = f"{message}{streams:.0f} of each revision can be compared, {EARLY} are needed"
        return AnalysisResult(AnalysisOutcome.WAIT, undecided, message)
    if worse:
        text = "; ".join(item.text for item in worse)
        limits = " and ".join(dict.fromkeys(f"rollout.judge.{item.limit}" for item in worse))
        message = f"{text}; the difference is more than {limits} allows"
        message = f"{message}, and not significant after {compared:.0f} requests"
        return AnalysisResult(AnalysisOutcome.WAIT, undecided, message)
    return AnalysisResult(AnalysisOutcome.PASS, "NotWorse", "; ".join(item.text for item in result))


def significant(compared: float, spec: JudgeSpec) -> float:
    """Return the p-value below which a comparison fails; the chance that equal revisions ever reach it is bounded.

    The boundary is the two-sided normal mixture (Howard et al. 2021, equation 14) at twice the error, since a test has
    one side. It is narrowest, for its `rho`, at `minRequests`.

    Args:
        compared: requests of the revision with fewer requests, with which the information of a test grows.
        spec: the confidence and `minRequests`.
    """
    error = (1 - spec.confidence_percent / 100) / COMPARISONS
    odds = -2 * math.log(2 * error)
    rho = spec.min_requests / (odds + math.log1p(odds))
    return _tail(math.sqrt((1 + rho / compared) * (odds + math.log1p(compared / rho))))


def _by_itself(new: Sample, spec: JudgeSpec) -> str:
    """Describe the requests of a revision without a comparison; empty if there are too few, or too many failed."""
    requests, errors = sum(item.requests for item in new.values()), sum(item.errors for item in new.values())
    if requests < spec.min_requests or errors > requests * spec.max_error_rise_percent / 100:
        return ""
    return f"{errors / requests:.1%} of {requests:.0f} requests failed"


def _too_few(counts: tuple[float, float], needed: int, elapsed: timedelta) -> str:
    new, old = counts
    text = f"{new:.0f} requests of the new revision and {old:.0f} of the old one can be compared, {needed} are needed"
    if min(counts) <= 0:
        return f"{text} of each"
    left = elapsed * (needed / min(counts) - 1)
    text = f"{text} of each: about {_rounded(left)} more at this rate"
    return f"{text}; lower rollout.judge.minRequests or raise the step's weight to need less" if left > LONG else text


def _rounded(span: timedelta) -> str:
    """Return a span in a single rounded unit, so that a condition's message changes seldom."""
    seconds = span.total_seconds()
    if seconds < 60:
        return "1 minute"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} minutes" if minutes < 120 else f"{math.ceil(minutes / 60)} hours"


def _comparisons(pairs: Sequence[_Pair], spec: JudgeSpec) -> Iterator[_Comparison]:
    limit = spec.max_error_rise_percent / 100
    rises = [pair.new.errors / pair.new.requests - pair.old.errors / pair.old.requests for pair in pairs]
    tables = [(pair.old.errors, pair.old.requests, pair.new.errors, pair.new.requests) for pair in pairs]
    worst = pairs[_worst([_more([table]) for table in tables], [rise > limit for rise in rises])]
    yield _Comparison(
        "ErrorRate",
        f"{worst.new.errors / worst.new.requests:.1%} of requests failed, "
        f"{worst.old.errors / worst.old.requests:.1%} with the old revision ({worst.key})",
        "maxErrorRisePercent",
        _mean(rises, [_weight(pair.old.requests, pair.new.requests) for pair in pairs]) > limit,
        _more(tables),
    )
    timed = _timed(pairs, spec)
    if _fewer(timed) >= EARLY:
        yield from _first_token(timed, 1 + spec.max_ttft_rise_percent / 100)
    cached = [pair for pair in pairs if _alike(pair.old.cached, pair.new.cached)]
    if cached:
        limit = spec.max_hit_rate_drop_percent / 100
        falls = [mean(item.old.cached) - mean(item.new.cached) for item in cached]
        drops = [(item.new.cached, item.old.cached) for item in cached]
        worst = cached[_worst([greater([drop]) for drop in drops], [fall > limit for fall in falls])]
        yield _Comparison(
            "HitRate",
            f"{mean(worst.new.cached):.0%} of repeated tokens were in cache, "
            f"{mean(worst.old.cached):.0%} with the old revision ({worst.key})",
            "maxHitRateDropPercent",
            _mean(falls, [_weight(item.old.cached.total, item.new.cached.total) for item in cached]) > limit,
            greater(drops),
        )


def _timed(pairs: Sequence[_Pair], spec: JudgeSpec) -> list[_Pair]:
    """Return the strata whose times to first token can be compared."""
    return [
        pair for pair in pairs if _alike(pair.old.first_token, pair.new.first_token) and not _computes_more(pair, spec)
    ]


def _computes_more(pair: _Pair, spec: JudgeSpec) -> bool:
    """Return True if the new revision must compute so many more tokens that this alone could make it slower.

    Clients that choose their revision may send longer requests. In addition, for all clients, tokens that sessions
    share beyond the declared prompt are not in the new revision's caches yet.
    """
    old, new = pair.old, pair.new
    own, result = old.own / old.first_token.total, old.shared / old.first_token.total
    before = max(0.0, own - result)
    if pair.key.how != names.HOW_NAME:  # otherwise differences are random
        own = new.own / new.first_token.total
    after = own - new.shared / new.first_token.total
    return after > before * (1 + spec.max_ttft_rise_percent / 100) + SHORT


def _slow_others(old: Sample, new: Sample, spec: JudgeSpec) -> str | None:
    """Describe a slowdown of streams that are not compared: it does not fail a step, but prevents it from passing."""
    others = [_Pair(key, old[key], new[key]) for key in sorted(old.keys() & new.keys()) if key.turn == names.TURN_OTHER]
    timed = _timed(others, spec)
    first_token = _first_token(timed, 1 + spec.max_ttft_rise_percent / 100) if timed else ()
    return next((item.text for item in first_token if item.beyond), None)


def _fewer(timed: Sequence[_Pair]) -> float:
    """Return the number of streamed answers that the revision with the fewer ones has in these strata."""
    return min(sum(item.old.first_token.total for item in timed), sum(item.new.first_token.total for item in timed))


def _streams(old: Sample, new: Sample, pairs: Sequence[_Pair], spec: JudgeSpec) -> float | None:
    """Return the number of comparable streamed answers of each revision; None if none are expected.

    They are expected if clients that reach both revisions stream; clients that send a prompt stay with its revision.
    """
    both = {pair.key.how for pair in pairs}
    expected = any(
        stratum.first_token.total > 0 for sample in (old, new) for key, stratum in sample.items() if key.how in both
    )
    return _fewer(_timed(pairs, spec)) if expected else None


def _alike(old: Histogram, new: Histogram) -> bool:
    """Return True if both have observations, in the same buckets: routers of another version may have others."""
    whole = len(old.counts) == len(new.counts) == len(old.bounds) + 1 > 1
    return whole and old.bounds == new.bounds and old.total > 0 and new.total > 0


def _first_token(pairs: Sequence[_Pair], factor: float) -> Iterator[_Comparison]:
    times = [(pair.old.first_token, pair.new.first_token) for pair in pairs]
    edge = bucket_of(_standardised(times), TAIL)
    weights = [_weight(before.total, after.total) for before, after in times]
    tables = [(_above(a, edge), a.total, _above(b, edge), b.total) for a, b in times]
    tests = (
        (MEDIAN, greater(times), [greater([time]) for time in times]),
        (TAIL, _more(tables), [_more([table]) for table in tables]),
    )
    for q, p, parts in tests:
        shown = [(quantile(before, q), quantile(after, q)) for before, after in times]
        index = _worst(parts, [after > before * factor for before, after in shown])
        before, after = shown[index]
        text = (
            f"time to first token p{q * 100:.0f} {after * 1000:.0f} ms, "
            f"{before * 1000:.0f} ms with the old revision ({pairs[index].key})"
        )
        means = [_mean(column, weights) for column in zip(*shown, strict=True)]
        yield _Comparison("TimeToFirstToken", text, "maxTtftRisePercent", means[1] > means[0] * factor, p)


def _worst(parts: Sequence[float], beyond: Sequence[bool]) -> int:
    """Return the index of the stratum whose figures are shown in the message.

    Args:
        parts: p-value of each stratum; the one with the lowest is shown.
        beyond: True for a stratum that is worse by more than the limit; if there are any, only these are shown.
    """
    shown = [index for index, is_beyond in enumerate(beyond) if is_beyond] or range(len(parts))
    return min(shown, key=lambda index: parts[index])


def _weight(old: float, new: float) -> float:
    """Return the weight of a stratum, from the numbers of requests of both revisions."""
    return old * new / (old + new)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _standardised(pairs: Sequence[tuple[Histogram, Histogram]]) -> Histogram:
    """Return the old revision over all strata, weighted as if it had the new one's share of requests in each."""
    old = Histogram()
    for before, after in pairs:
        factor = after.total / before.total
        old += Histogram(before.bounds, tuple(count * factor for count in before.counts))
    return old


def _above(histogram: Histogram, bucket: int) -> float:
    return sum(histogram.counts[bucket + 1 :])


def _more(tables: Sequence[tuple[float, float, float, float]]) -> float:
    """Return the probability of so many events in the second sample if both have one rate: Cochran-Mantel-Haenszel.

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
    """Return the probability of a second sample so much greater if both have one distribution: van Elteren.

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
    """Return the upper tail of the standard normal distribution."""
    return math.erfc(z / math.sqrt(2)) / 2
