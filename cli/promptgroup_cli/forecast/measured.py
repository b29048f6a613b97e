"""Estimates a replica's prefill rate, and a tier's bandwidth and latency, from timed requests. Does no I/O.

    prefill(n) = start + n / rate                       start: HTTP, template, tokenizer, scheduling, one token
    copy(n)    = start + latency + n / tokens a second

Both are straight lines over the tokens of a prompt. Whatever else happens on a machine makes a request slower and never
quicker, so of each length that was asked for the fastest request counts, whatever number of tokens its text has. The
line through these is that of least squares; the lines that leave one length out tell how sure it is.
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
LEAST_FOUND = 0.5
"""Share of a prompt that a tier must bring for the request to count as a copy."""
MOST_COMPUTED = 0.1
"""Share of a prompt that may be found in cache for the request to count as computed."""
LARGEST = 1e12
"""Largest figure that is read back."""

LARGEST_ERROR = 0.25
"""Distance from the line, as a share of a request's time, from which on it is no line."""
WIDEST = 1.5
"""Quotient of the highest and the lowest rate that the requests allow, from which on the rate says little."""

Between: TypeAlias = tuple[float, float]
"""Lowest and highest rate that the requests allow, in tokens a second; the highest may be infinite."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One request, as its engine counted it and its sender timed it."""

    prompt: int
    """Tokens of the prompt."""
    cached: int
    """Those of them that were found, wherever."""
    tiered: int
    """Those of them that a KV tier brought, at most."""
    seconds: float
    asked: int
    """The length that was asked for: texts of one length differ by some tokens."""


class Point(NamedTuple):
    """One request that was measured."""

    asked: int
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
        fastest[point.asked] = min(point, fastest.get(point.asked, point), key=lambda each: each.seconds)
    found = list(fastest.values())
    start, slope = _fitted(found)
    if slope <= 0:
        return None
    start = max(0.0, start)
    errors = [abs(start + slope * each.tokens - each.seconds) / each.seconds for each in found if each.seconds > 0]
    fewer = [found[:left] + found[left + 1 :] for left in range(len(found))] if len(found) > SIZES else [found]
    slopes = [max(0.0, _fitted(each)[1]) for each in fewer]
    return TimeLine(start, slope, max(errors, default=0.0), min(slope, *slopes), max(slope, *slopes))


def _fitted(points: Sequence[Point]) -> tuple[float, float]:
    """Return start and slope of the line of least squares; the slope is 0 where there is no line."""
    if len({each.tokens for each in points}) < SIZES:
        return 0.0, 0.0
    mean, center = (sum(each) / len(points) for each in list(zip(*points, strict=True))[1:])
    spread = sum((each.tokens - mean) ** 2 for each in points)
    slope = sum((each.tokens - mean) * (each.seconds - center) for each in points) / spread
    return center - slope * mean, slope


def prefill(timings: Sequence[Timing]) -> TimeLine | None:
    """Return the line of requests that were computed; None where there are too few of them."""
    computed = [each for each in timings if each.cached <= MOST_COMPUTED * each.prompt]
    return through([Point(each.asked, each.prompt - each.cached, each.seconds) for each in computed])


def is_sure(error: float, rates: Between) -> bool:
    """Return True if a rate is good enough to be relied on."""
    return error <= LARGEST_ERROR and rates[1] <= WIDEST * rates[0]


def between(least: float, most: float) -> Between:
    """Return the rates of the most and the least seconds of each token."""
    return 1 / most, 1 / least if least > 0 else inf


def copying(timings: Sequence[Timing], computing: TimeLine) -> TierFigures | None:
    """Return a tier's figures from requests whose prompts it held; None where too few of them were copied.

    What a request computed beside its copy is taken off by the line of the replica's own prefill.

    Args:
        timings: the requests.
        computing: line of the replica's prefill.
    """
    line = _copied(timings, computing.token)
    if line is None:
        return None
    # what is taken off is no surer than the line that it comes from
    others = [_copied(timings, token) for token in (computing.least, computing.most)]
    lines = [line, *(each for each in others if each is not None)]
    least = min(each.least for each in lines) if None not in others else 0.0
    latency = max(0.0, line.start - computing.start)
    pays = tiers.break_even(TierForecast(0.0, latency, line.token), 1 / computing.token)
    return TierFigures(1 / line.token, latency, line.error, pays, between(least, max(each.most for each in lines)))


def copies(timings: Sequence[Timing]) -> list[Timing]:
    """Return the requests whose prompts a tier brought."""
    return [each for each in timings if each.tiered >= LEAST_FOUND * each.prompt]


def _copied(timings: Sequence[Timing], token: float) -> TimeLine | None:
    points = [(each, each.seconds - (each.prompt - each.cached) * token) for each in copies(timings)]
    return through([Point(each.asked, each.tiered, seconds) for each, seconds in points])


def at_least(timings: Sequence[Timing]) -> Timing:
    """Return the copy that shows the highest rate that a tier has at least; there must be one."""
    return max(copies(timings), key=lambda each: each.tiered / max(each.seconds, sys.float_info.epsilon))


def read(document: Any) -> ReplicaFigures:
    """Read the figures that `promptgroup probe -o json` printed.

    Raises:
        ValueError: it is something else.
    """
    found = document if isinstance(document, Mapping) else {}
    rate, kv_tokens = _number(found, "prefillTokensPerSecond"), _number(found, "kvTokens")
    tier = found.get("tier")
    if not rate:
        raise ValueError("not the output of `promptgroup probe -o json`: it has no prefillTokensPerSecond")
    figures = None
    if isinstance(tier, Mapping):
        copied, latency = _number(tier, "tokensPerSecond"), _number(tier, "latencySeconds")
        if not copied:
            raise ValueError("not the output of `promptgroup probe -o json`: its tier has no tokensPerSecond")
        pays = tiers.break_even(TierForecast(0.0, latency, 1 / copied), rate)
        figures = TierFigures(copied, latency, _error(tier), pays, _between(tier, "between"))
    return ReplicaFigures(rate, 0.0, _error(found), int(kv_tokens), _between(found, "prefillBetween"), figures)


def _error(found: Mapping[str, Any]) -> float:
    """Return the error of a line: one that is not told is not 0."""
    value = found.get("error")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST:
        raise ValueError("not the output of this release's `promptgroup probe -o json`: a fit has no error")
    return float(value)


def _between(found: Mapping[str, Any], name: str) -> Between:
    """Return the lowest and the highest rate; null for a highest without bound."""
    rates = found.get(name)
    if isinstance(rates, list) and len(rates) == 2:
        low, high = (_number({name: each}, name) for each in rates)
        if low and (high >= low or rates[1] is None):
            return low, high or inf
    raise ValueError(f"not the output of this release's `promptgroup probe -o json`: {name} has no two rates")


def _number(found: Mapping[str, Any], name: str) -> float:
    value = found.get(name, 0)
    return float(value) if type(value) in (int, float) and 0 < value <= LARGEST else 0.0


def span(between: Between) -> str:
    """Return the lowest and the highest rate for people."""
    low, high = between
    return f"at least {low:,.0f}" if isinf(high) else f"{low:,.0f} to {high:,.0f}"


def bounds(between: Between) -> list[float | None]:
    """Return the lowest and the highest rate for programs; None for a highest without bound."""
    return [None if isinf(each) else round(each, 1) for each in between]
