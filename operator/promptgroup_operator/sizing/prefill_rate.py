"""Estimates a replica's prefill rate: from the proof of warmth, or from clients' requests where no proof measured it.

A proof measures the rate only on a prompt of at least `MIN_UNCACHED` computed tokens. Under that, most of the time is
overhead of the request, so the time of short requests gives a lower and an upper bound of the rate:

slow   computed tokens over their time in prefill: as if all of the overhead was computation
fast   MIN_UNCACHED tokens in the time of one such request: as if all of the time was overhead

m concurrent prefills slow each other down (processor sharing: T = p / (1 - rho), Kleinrock, "Queueing systems" II,
1976), so computed / busy = R (1 - rho) is solved for R. Decisions that add replicas use the fast rate, and decisions
that remove replicas use the slow one, so the uncertainty never changes the number.
"""

from dataclasses import dataclass, replace

from promptgroup_operator.world.engine_facts import MIN_UNCACHED
from promptgroup_operator.world.load import EngineLoad, GroupLoad
from promptgroup_operator.world.samples import quantile

KV_OVER_WEIGHTS = 4.0
"""Bytes of KV cache over bytes of weights. 80 GB and an 8B model in bf16 leave 3.4, larger models less. A value that is
too high overestimates the cost of decoding, so that the demand is not underestimated."""
RATE_LEAST = 0.5
"""Lower bound of the rate from requests' prefill times, as a share of the proven rate. Long contexts raise the cost per
token (by half at 15,000 tokens); a lower rate is the overhead of short prefills, which more replicas do not reduce."""
FEW = 10
"""Minimum number of requests in a window for a meaningful mean time in prefill."""


@dataclass(frozen=True, slots=True)
class RateRange:
    """Prompt tokens a second of one replica, between two bounds."""

    slow: float
    fast: float


def prefill_rate(load: GroupLoad) -> float:
    """Return the prompt tokens per second of one replica, the slower bound if it is a range; 0 when unknown."""
    engines = load.engines
    if engines is None:
        return 0.0
    if not engines.prefill_rate:
        rate_range = from_requests(load)
        return rate_range.slow if rate_range is not None else 0.0
    if not engines.computed or not engines.prefill_busy:
        return engines.prefill_rate
    seen = _seen(engines, engines.computed, engines.prefill_busy)
    return min(engines.prefill_rate, max(RATE_LEAST * engines.prefill_rate, seen))


def from_requests(load: GroupLoad) -> RateRange | None:
    """Return the range estimated from requests; None where a proof measured the rate, or with too few requests."""
    engines = load.engines
    if engines is None or engines.prefill_rate or engines.requests * load.seconds < FEW or engines.replicas <= 0:
        return None
    computed = engines.computed if engines.computed is not None else engines.queries - engines.hits
    busy = engines.prefill_busy if engines.prefill_busy is not None else _until_first_token(engines)
    if computed <= 0 or not busy:
        return None
    slow = _seen(engines, computed, busy)
    return RateRange(slow, slow * max(1.0, MIN_UNCACHED * engines.requests / computed))


def at_fastest(load: GroupLoad) -> GroupLoad:
    """Return the load with the fastest rate that requests allow, as if it had been proven."""
    rate_range = from_requests(load)
    if rate_range is None or load.engines is None:
        return load
    return replace(load, engines=replace(load.engines, prefill_rate=rate_range.fast, computed=None, prefill_busy=None))


def interference(usage: float) -> float:
    """Share of the time left by prefill that decoding takes."""
    return KV_OVER_WEIGHTS * usage / (1 + KV_OVER_WEIGHTS * usage)


def _seen(engines: EngineLoad, computed: float, busy: float) -> float:
    return computed / busy / (1 - interference(engines.usage)) + computed / engines.replicas


def _until_first_token(engines: EngineLoad) -> float | None:
    """Return request-seconds per second until first tokens, by their median, for engines without a prefill metric."""
    if engines.first_token.total < FEW or not engines.first_token.bounds:
        return None
    waited = engines.queue_busy or 0.0
    whole = engines.requests * quantile(engines.first_token, 0.5)
    return whole - waited if whole > waited else whole
