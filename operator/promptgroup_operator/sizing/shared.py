"""Groups whose replicas lend to each other: the pool is sized first, then shared out among them.

Groups of one namespace with the same engines and `routing.sharing: Pool` take each other's overflow, so what one lacks
another may have to spare. Sized one by one each would round up, and keep a reserve, for itself.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from promptgroup_operator.sizing import limits
from promptgroup_operator.sizing.limits import Target
from promptgroup_operator.sizing.model import Model, fit
from promptgroup_operator.world.load import ClientLoad, EngineLoad, GroupLoad, PoolMember


def least_replicas(own: PoolMember, others: Sequence[PoolMember], margin: float = 1.0) -> tuple[int, Model] | None:
    """Return the least replicas that `own` needs, and the model of its own load; None when nothing is known of it.

    Of another group that nothing is known of nothing is lent or borrowed.

    Args:
        own: the group.
        others: the other groups of its pool.
        margin: what of each limit may be used; below 1 asks how far the number may fall.
    """
    model = fit(own.load) if own.load is not None else None
    if model is None:
        return None
    fitted = [(each, fit(each.load)) for each in others if each.load is not None]
    known = [(each, found) for each, found in fitted if found is not None]
    members, models = [own, *(each for each, _ in known)], [model, *(found for _, found in known)]
    whole = fit(together([each.load for each in members if each.load is not None]))
    if len(members) == 1 or whole is None:
        return limits.least_replicas(model, 1, own.high, Target(own.ttft), margin), model
    targets = [each.ttft for each in members if each.ttft is not None]
    low, high = sum(each.low for each in members), sum(each.high for each in members)
    total = limits.least_replicas(whole, low, high, Target(min(targets, default=None)), margin)
    parts = [_weight(each) for each in models]
    return _part(members, parts, total, rising=margin == 1.0), model


def _part(members: Sequence[PoolMember], weights: Sequence[float], total: int, *, rising: bool) -> int:
    """Return the first member's part. A pool that is large enough lends what one of its groups lacks."""
    if rising and total > sum(each.high for each in members):
        return members[0].high + 1
    there = sum(each.current for each in members)
    if total > there if rising else total < there:
        return split(total, weights, [(each.low, each.high) for each in members])[0]
    return members[0].current


def _weight(model: Model) -> float:
    """Return the replicas that a load would take alone, unrounded: by its work, or by its working set."""
    work = model.demand(model.observed) / limits.UTILISATION
    filled = model.filled(1) if model.sessions_need_replicas else None
    return max(work, filled or 0.0, 1e-6)


def split(total: int, weights: Sequence[float], bounds: Sequence[tuple[int, int]]) -> list[int]:
    """Return whole replicas in proportion, within bounds: largest remainders get the rest (Hamilton's method)."""
    whole = sum(weights)
    ideal = [total * weight / whole for weight in weights]
    parts = [min(max(math.floor(share), low), high) for share, (low, high) in zip(ideal, bounds, strict=True)]
    while sum(parts) < total:
        open_ = [i for i, (_, high) in enumerate(bounds) if parts[i] < high]
        if not open_:
            break
        parts[max(open_, key=lambda i: (ideal[i] - parts[i], -i))] += 1
    while sum(parts) > total:
        open_ = [i for i, (low, _) in enumerate(bounds) if parts[i] > low]
        if not open_:
            break
        parts[min(open_, key=lambda i: (ideal[i] - parts[i], -i))] -= 1
    return parts


def together(loads: Sequence[GroupLoad]) -> GroupLoad:
    """Return the load of several groups as one."""
    engines = [each.engines for each in loads if each.engines is not None]
    clients = [each.clients for each in loads if each.clients is not None]
    return GroupLoad(
        seconds=max(each.seconds for each in loads),
        engines=_engines(engines),
        clients=_clients(clients) if len(clients) == len(loads) else None,
        tiers=loads[0].tiers,  # their engines are the same
    )


def _engines(each: Sequence[EngineLoad]) -> EngineLoad:
    replicas = sum(one.replicas for one in each)
    first, *rest = each
    first_token = first.first_token
    for one in rest:
        first_token = first_token + one.first_token
    return EngineLoad(
        replicas=replicas,
        coverage=min(one.coverage for one in each),
        requests=sum(one.requests for one in each),
        queries=sum(one.queries for one in each),
        hits=sum(one.hits for one in each),
        tiered=sum(one.tiered for one in each),
        generated=sum(one.generated for one in each),
        computed=_sum([one.computed for one in each]),
        prefill_busy=_sum([one.prefill_busy for one in each]),
        decode_busy=_sum([one.decode_busy for one in each]),
        queue_busy=_sum([one.queue_busy for one in each]),
        running=sum(one.running for one in each),
        waiting=sum(one.waiting for one in each),
        usage=sum(one.usage * one.replicas for one in each) / replicas if replicas else 0.0,
        preemptions=_sum([one.preemptions for one in each]),
        first_token=first_token,
        kv_tokens=min((one.kv_tokens for one in each if one.kv_tokens), default=0),
        prefill_rate=min((one.prefill_rate for one in each if one.prefill_rate), default=0.0),
    )


def _clients(each: Sequence[ClientLoad]) -> ClientLoad:
    requests = sum(one.requests for one in each)
    first, *rest = each
    first_token = first.first_token
    for one in rest:
        first_token = first_token + one.first_token
    declared = sum(one.requests * one.declared_tokens for one in each) / requests if requests else 0
    return replace(
        first,
        requests=requests,
        errors=sum(one.errors for one in each),
        prompt_tokens=sum(one.prompt_tokens for one in each),
        sessions=_sum([one.sessions for one in each]),
        session_tokens=_sum([one.session_tokens for one in each]),
        declared_tokens=round(declared),
        first_token=first_token,
        opening=None,
        evicted=(),
        held=sum(one.held for one in each),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum of values that are all known; None if one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
