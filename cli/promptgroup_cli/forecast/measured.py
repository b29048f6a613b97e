"""Estimates a replica's prefill rate, and a tier's bandwidth and latency, from timed requests. Does no I/O.

    prefill(n) = start + n / rate                       start: HTTP, template, tokenizer, scheduling, one token
    copy(n)    = start + latency + n / tokens a second

Both are straight lines over the tokens of a prompt. Other load on a machine makes a request slower and never quicker,
so the fastest request of each requested length counts, whatever the exact number of its tokens. The line is fitted to
these by least squares; lines that leave one length out show how reliable it is.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf
from typing import Any, NamedTuple, TypeAlias

from promptgroup_cli.forecast import tiers
from promptgroup_cli.forecast.tiers import TierForecast

SIZES = 2
"""Fewest different sizes that make a line."""
LEAST_SHARE = 0.5
"""Share of a prompt that a tier must supply for the request to count as a copy."""
MOST_COMPUTED = 0.1
"""Share of a prompt that may be cached for the request to count as computed."""
LARGEST = 1e12
"""Largest figure that is read back."""

LARGEST_ERROR = 0.25
"""Largest distance from the line, as a share of a request's time, at which its rate is reliable."""
WIDEST = 1.5
"""Largest quotient of the highest and the lowest rate that the requests allow, at which the rate is reliable."""

Between: TypeAlias = tuple[float, float]
"""Lowest and highest rate that the requests allow, in tokens a second; the highest may be infinite."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One request, as its engine counted it and its sender timed it."""

    prompt: int
    """Tokens of the prompt."""
    cached: int
    """Tokens of the prompt that were cached, in any tier."""
    tiered: int
    """Upper bound of the cached tokens that a KV tier supplied."""
    seconds: float
    length: int
    """The requested length: texts of one length differ by some tokens."""


class Point(NamedTuple):
    """One request that was measured."""

    length: int
    tokens: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Seconds over tokens."""

    start: float
    token: float
    """Seconds of each token."""
    error: float
    """Largest distance of a length's fastest request from the line, as a share of its time."""
    least: float
    """Least seconds of each token by lines that leave one length out; 0 where time does not grow on one of them."""
    most: float
    """Most seconds of each token by these lines."""


@dataclass(frozen=True, slots=True)
class TierFigures:
    """A tier, as it copies to one replica."""

    rate: float
    """Tokens a second."""
    latency: float
    """Seconds before the first token."""
    error: float
    break_even: float
    """Tokens from which on a copy is quicker than computing; infinite where it never is."""
    between: Between


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """Figures of one replica."""

    rate: float
    """Prompt tokens a second."""
    start: float
    """Seconds of a request that do not depend on its length."""
    error: float
    kv_tokens: int
    """Tokens of its KV cache; 0 when it does not say."""
    between: Between
    tier: TierFigures | None = None


def through(points: Sequence[Point]) -> TimeLine | None:
    """Return the line through the fastest request of each length; None where time does not grow with the tokens."""
    fastest: dict[int, Point] = {}
    for point in points:
        fastest[point.length] = min(point, fastest.get(point.length, point), key=lambda item: item.seconds)
    result = list(fastest.values())
    start, slope = _fitted(result)
    if slope <= 0:
        return None
    start = max(0.0, start)
    errors = [abs(start + slope * item.tokens - item.seconds) / item.seconds for item in result if item.seconds > 0]
    fewer = [result[:left] + result[left + 1 :] for left in range(len(result))] if len(result) > SIZES else [result]
    slopes = [max(0.0, _fitted(item)[1]) for item in fewer]
    return TimeLine(start, slope, max(errors, default=0.0), min(slope, *slopes), max(slope, *slopes))


def _fitted(points: Sequence[Point]) -> tuple[float, float]:
    """Return start and slope of the line of least squares; the slope is 0 where there is no line."""
    if len({point.tokens for point in points}) < SIZES:
        return 0.0, 0.0
    mean, center = (sum(item) / len(points) for item in list(zip(*points, strict=True))[1:])
    spread = sum((point.tokens - mean) ** 2 for point in points)
    slope = sum((point.tokens - mean) * (point.seconds - center) for point in points) / spread
    return center - slope * mean, slope


def prefill(timings: Sequence[Timing]) -> TimeLine | None:
    """Return the line through the requests that were computed; None where there are too few."""
    computed = [timing for timing in timings if timing.cached <= MOST_COMPUTED * timing.prompt]
    return through([Point(timing.length, timing.prompt - timing.cached, timing.seconds) for timing in computed])


def is_sure(error: float, rates: Between) -> bool:
    """Return True if a rate is reliable."""
    return error <= LARGEST_ERROR and rates[1] <= WIDEST * rates[0]


def between(least: float, most: float) -> Between:
    """Return the rates of the most and the least seconds of each token."""
    return 1 / most, 1 / least if least > 0 else inf


def copying(timings: Sequence[Timing], computing: TimeLine) -> TierFigures | None:
    """Return a tier's figures from requests whose prompts it held; None where too few of them were copied.

    The time that a request spent computing beside its copy is subtracted, by the line of the replica's own prefill.

    Args:
        timings: the requests.
        computing: line of the replica's prefill.
    """
    line = _copied(timings, computing.token)
    if line is None:
        return None
    # the subtracted time is no more reliable than the line that it comes from
    others = [_copied(timings, token) for token in (computing.least, computing.most)]
    lines = [line, *(other for other in others if other is not None)]
    least = min(time_line.least for time_line in lines) if None not in others else 0.0
    latency = max(0.0, line.start - computing.start)
    pays = tiers.break_even(TierForecast(0.0, latency, line.token), 1 / computing.token)
    return TierFigures(
        1 / line.token, latency, line.error, pays, between(least, max(time_line.most for time_line in lines))
    )


def copies(timings: Sequence[Timing]) -> list[Timing]:
    """Return the requests whose prompts a tier supplied."""
    return [timing for timing in timings if timing.tiered >= LEAST_SHARE * timing.prompt]


def _copied(timings: Sequence[Timing], token: float) -> TimeLine | None:
    points = [(copy, copy.seconds - (copy.prompt - copy.cached) * token) for copy in copies(timings)]
    return through([Point(timing.length, timing.tiered, seconds) for timing, seconds in points])


def at_least(timings: Sequence[Timing]) -> Timing:
    """Return the copy that shows the highest rate that a tier has at least; there must be one."""
    return max(copies(timings), key=lambda copy: copy.tiered / max(copy.seconds, sys.float_info.epsilon))


def read(document: Any) -> ReplicaFigures:
    """Read the figures that `promptgroup probe -o json` printed.

    Raises:
        ValueError: it is something else.
    """
    result = document if isinstance(document, Mapping) else {}
    rate, kv_tokens = _number(result, "prefillTokensPerSecond"), _number(result, "kvTokens")
    tier = result.get("tier")
    if not rate:
        raise ValueError("not the output of `promptgroup probe -o json`: it has no prefillTokensPerSecond")
    figures = None
    if isinstance(tier, Mapping):
        copied, latency = _number(tier, "tokensPerSecond"), _number(tier, "latencySeconds")
        if not copied:
            raise ValueError("not the output of `promptgroup probe -o json`: its tier has no tokensPerSecond")
        pays = tiers.break_even(TierForecast(0.0, latency, 1 / copied), rate)
        figures = TierFigures(copied, latency, _error(tier), pays, _between(tier, "between"))
    return ReplicaFigures(rate, 0.0, _error(result), int(kv_tokens), _between(result, "prefillBetween"), figures)


def _error(result: Mapping[str, Any]) -> float:
    """Return the error of a line; a missing error is refused, not read as 0."""
    value = result.get("error")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST:
        raise ValueError("not the output of this release's `promptgroup probe -o json`: a fit has no error")
    return float(value)


def _between(result: Mapping[str, Any], name: str) -> Between:
    """Return the lowest and the highest rate; null for a highest without bound."""
    rates = result.get(name)
    if isinstance(rates, list) and len(rates) == 2:
        low, high = (_number({name: rate}, name) for rate in rates)
        if low and (high >= low or rates[1] is None):
            return low, high or inf
    raise ValueError(f"not the output of this release's `promptgroup probe -o json`: {name} has no two rates")


def _number(result: Mapping[str, Any], name: str) -> float:
    value = result.get(name, 0)
    return float(value) if type(value) in (int, float) and 0 < value <= LARGEST else 0.0


def span(between: Between) -> str:
    """Return the lowest and the highest rate for people."""
    low, high = between
    return f"at least {low:,.0f}" if isinf(high) else f"{low:,.0f} to {high:,.0f}"


def bounds(between: Between) -> list[float | None]:
    """Return the lowest and the highest rate for programs; None for a highest without bound."""
    return [None if isinf(item) else round(item, 1) for item in between]
