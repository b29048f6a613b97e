"""Estimates a replica's prefill rate, and a tier's bandwidth and latency, from timed requests. Does no I/O.

    prefill(n) = start + n / rate                       start: HTTP, template, tokenizer, scheduling, one token
    copy(n)    = start + latency + n / tokens a second

Both are straight lines over the tokens of a prompt. Whatever else happens on a machine makes a request slower and never
quicker, so of each size the fastest request counts; the line through these is that of least squares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from promptgroup_cli.forecast.tiers import TierForecast, break_even

SIZES = 2
"""Fewest different sizes that make a line."""
LEAST_FOUND = 0.5
"""Share of a prompt that a tier must bring for the request to count as a copy."""
MOST_COMPUTED = 0.1
"""Share of a prompt that may be found in cache for the request to count as computed."""
LARGEST = 1e12
"""Largest figure that is read back."""


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


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Seconds over tokens."""

    start: float
    token: float
    """Seconds of each token."""
    error: float
    """Largest distance of a size's fastest request from the line, as a share of its time."""


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
    tier: TierFigures | None = None


def through(points: Sequence[tuple[float, float]]) -> TimeLine | None:
    """Return the line through the fastest request of each size; None where time does not grow with size."""
    fastest: dict[float, float] = {}
    for tokens, seconds in points:
        fastest[tokens] = min(seconds, fastest.get(tokens, seconds))
    if len(fastest) < SIZES:
        return None
    count = len(fastest)
    mean, center = sum(fastest) / count, sum(fastest.values()) / count
    spread = sum((tokens - mean) ** 2 for tokens in fastest)
    slope = sum((tokens - mean) * (seconds - center) for tokens, seconds in fastest.items()) / spread
    if slope <= 0:
        return None
    start = max(0.0, center - slope * mean)
    errors = [abs(start + slope * tokens - seconds) / seconds for tokens, seconds in fastest.items() if seconds > 0]
    return TimeLine(start, slope, max(errors, default=0.0))


def prefill(timings: Sequence[Timing]) -> TimeLine | None:
    """Return the line of requests that were computed; None where there are too few of them."""
    computed = [each for each in timings if each.cached <= MOST_COMPUTED * each.prompt]
    return through([(each.prompt - each.cached, each.seconds) for each in computed])


def copying(timings: Sequence[Timing], computing: TimeLine) -> TierFigures | None:
    """Return a tier's figures from requests whose prompts it held; None where too few of them were copied.

    What a request computed beside its copy is taken off by the line of the replica's own prefill.

    Args:
        timings: the requests.
        computing: line of the replica's prefill.
    """
    copied = [each for each in timings if each.tiered >= LEAST_FOUND * each.prompt]
    points = [(each.tiered, each.seconds - (each.prompt - each.cached) * computing.token) for each in copied]
    found = through(points)
    if found is None:
        return None
    latency = max(0.0, found.start - computing.start)
    tier = TierForecast(0.0, latency, found.token)
    return TierFigures(1 / found.token, latency, found.error, break_even(tier, 1 / computing.token))


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
        figures = TierFigures(copied, latency, 0.0, break_even(TierForecast(0.0, latency, 1 / copied), rate))
    return ReplicaFigures(rate, 0.0, 0.0, int(kv_tokens), figures)


def _number(found: Mapping[str, Any], name: str) -> float:
    value = found.get(name, 0)
    return float(value) if type(value) in (int, float) and 0 < value <= LARGEST else 0.0
