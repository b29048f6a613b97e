"""Predicts the operator's decision under the expected load. Does no I/O.

A size that is planned ahead meets the limits that the operator applies later, for the same reasons.
"""

from collections.abc import Callable, Sequence

from promptgroup_cli.forecast.forecast import (
    Expectation,
    ReplicaForecast,
    Workload,
    expect,
    working_set,
)
from promptgroup_cli.forecast.tiers import TierForecast
from promptgroup_operator.sizing.limits import UTILISATION, Limit, Target, exceeded
from promptgroup_operator.sizing.model import QUANTILE, fit
from promptgroup_operator.world.load import ClientLoad, EngineLoad, GroupLoad
from promptgroup_operator.world.samples import Histogram

SAMPLE = 600.0
"""Seconds of an imagined window: long enough that its first tokens are many."""
FEWEST = 1000.0
"""First tokens of an imagined window, however quiet."""


TiersOf = Callable[[int], Sequence[TierForecast]]
"""Returns the KV tiers beyond the GPUs' memory, for a number of replicas."""


def no_tiers(_replicas: int) -> Sequence[TierForecast]:
    """Return no tiers: KV is cached in the GPUs' memory alone."""
    return ()


def observed(
    workload: Workload, replica: ReplicaForecast, expected: Expectation, tiers: Sequence[TierForecast] = ()
) -> GroupLoad:
    """Return the load that an operator would observe.

    Args:
        workload: the requests of clients.
        replica: speed and capacity of one replica.
        expected: the prediction for the replicas.
        tiers: KV tiers beyond the GPUs' memory. Sessions need to fit the largest one, not the GPUs' caches.
    """
    forecast = working_set(workload, replica)
    room = forecast.room(replica.kv_tokens, expected.replicas)
    reach = max((room, *(tier.room for tier in tiers)))
    queries = workload.rate * workload.prompt
    requests = max(FEWEST, workload.rate * SAMPLE)
    first_token = Histogram((expected.ttft,), (QUANTILE * requests, (1 - QUANTILE) * requests))
    held = expected.running * replica.held(workload.context) + expected.replicas * workload.prefix
    engines = EngineLoad(
        replicas=expected.replicas,
        coverage=1.0,
        requests=workload.rate,
        queries=queries,
        hits=queries * expected.hit_rate,
        generated=workload.rate * workload.answer,
        computed=None,
        prefill_busy=None,
        decode_busy=None,
        queue_busy=None,
        running=expected.running,
        waiting=0.0,
        usage=min(1.0, held / (expected.replicas * replica.kv_tokens)),
        preemptions=None,
        first_token=first_token,
        kv_tokens=replica.kv_tokens,
        prefill_rate=replica.prefill_rate,
    )
    clients = ClientLoad(
        requests=workload.rate,
        errors=0.0,
        prompt_tokens=queries,
        sessions=workload.sessions,
        session_tokens=forecast.sessions * (room / reach) if reach > room else forecast.sessions,
        declared_tokens=workload.prefix,
        first_token=first_token,
        opening=1 / workload.turns,
    )
    return GroupLoad(seconds=SAMPLE, engines=engines, clients=clients)


def broken_limit(
    workload: Workload,
    replica: ReplicaForecast,
    expected: Expectation,
    target: float | None,
    tiers: Sequence[TierForecast] = (),
) -> Limit | None:
    """Return the limit that so many replicas do not meet; None when they meet all.

    Args:
        workload: the requests of clients.
        replica: speed and capacity of one replica.
        expected: the prediction for the replicas.
        target: seconds to the first token, p95; None when the load alone counts.
        tiers: see `observed`.
    """
    if expected.utilization > UTILISATION:
        return Limit.UTILISATION
    model = fit(observed(workload, replica, expected, tiers))
    limit = exceeded(model, expected.replicas, Target(None)) if model is not None else None
    if limit is None and target is not None and expected.ttft > target:
        return Limit.FIRST_TOKEN
    return limit


def least_replicas(
    workload: Workload, replica: ReplicaForecast, target: float | None, most: int, tiers: TiersOf = no_tiers
) -> tuple[int | None, Limit | None]:
    """Return the fewest replicas that meet all limits (None when `most` do not), and the limit that fewer do not meet.

    Args:
        workload: the requests of clients.
        replica: speed and capacity of one replica.
        target: see `broken_limit`.
        most: largest number of replicas to try.
        tiers: KV tiers beyond the GPUs' memory, by the number of replicas.
    """
    before: Limit | None = None
    for replicas in range(1, most + 1):
        tier_forecasts = tiers(replicas)
        limit = broken_limit(
            workload, replica, expect(workload, replica, replicas, tier_forecasts), target, tier_forecasts
        )
        if limit is None:
            return replicas, before
        before = limit
    return None, before
