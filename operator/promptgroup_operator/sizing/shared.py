"""Sizes groups whose replicas lend to each other: the pool is sized first, then divided among its groups.

Groups of one namespace with the same engines and `routing.sharing: Pool` serve each other's overflow, so one group may
have spare capacity that another needs. If they were sized separately, every group would round up and hold a reserve.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from promptgroup_operator.sizing import limits
from promptgroup_operator.sizing.limits import Target
from promptgroup_operator.sizing.model import Model, fit
from promptgroup_operator.world.load import ClientLoad, EngineLoad, GroupLoad, PoolMember


def least_replicas(own: PoolMember, others: Sequence[PoolMember], margin: float = 1.0) -> tuple[int, Model] | None:
    """Return the minimum of replicas that `own` needs, and the model of its load; None when its load is unknown.

    A group with an unknown load is not counted as part of the pool.

    Args:
        own: the group.
        others: the other groups of its pool.
        margin: usable share of each limit; a value below 1 is used to decide if the number may fall.
    """
    model = fit(own.load) if own.load is not None else None
    if model is None:
        return None
    fitted = [(other, fit(other.load)) for other in others if other.load is not None]
    present = [(pool_member, result) for pool_member, result in fitted if result is not None]
    members, models = [own, *(pool_member for pool_member, _ in present)], [model, *(result for _, result in present)]
    whole = fit(together([member.load for member in members if member.load is not None]))
    if len(members) == 1 or whole is None:
        return limits.least_replicas(model, 1, own.high, Target(own.ttft), margin), model
    targets = [member.ttft for member in members if member.ttft is not None]
    low, high = sum(member.low for member in members), sum(member.high for member in members)
    total = limits.least_replicas(whole, low, high, Target(min(targets, default=None)), margin)
    parts = [_weight(item) for item in models]
    return _part(members, parts, total, rising=margin == 1.0), model


def _part(members: Sequence[PoolMember], weights: Sequence[float], total: int, *, rising: bool) -> int:
    """Return the first member's part: its current number if the pool as a whole is large enough."""
    if rising and total > sum(member.high for member in members):
        return members[0].high + 1
    there = sum(member.current for member in members)
    if total > there if rising else total < there:
        return split(total, weights, [(member.low, member.high) for member in members])[0]
    return members[0].current


def _weight(model: Model) -> float:
    """Return the replicas that a load would need alone, unrounded: by its work, or by its working set."""
    work = model.demand(model.observed) / limits.UTILISATION
    filled = model.filled(1) if model.sessions_need_replicas else None
    return max(work, filled or 0.0, 1e-6)


def split(total: int, weights: Sequence[float], bounds: Sequence[tuple[int, int]]) -> list[int]:
    """Return whole replicas in proportion, within bounds, by the largest remainders (Hamilton's method)."""
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
    engines = [load.engines for load in loads if load.engines is not None]
    clients = [load.clients for load in loads if load.clients is not None]
    return GroupLoad(
        seconds=max(load.seconds for load in loads),
        engines=_engines(engines),
        clients=_clients(clients) if len(clients) == len(loads) else None,
        tiers=loads[0].tiers,  # their engines are the same
    )


def _engines(engine_loads: Sequence[EngineLoad]) -> EngineLoad:
    replicas = sum(one.replicas for one in engine_loads)
    first, *rest = engine_loads
    first_token = first.first_token
    for one in rest:
        first_token = first_token + one.first_token
    return EngineLoad(
        replicas=replicas,
        coverage=min(one.coverage for one in engine_loads),
        requests=sum(one.requests for one in engine_loads),
        queries=sum(one.queries for one in engine_loads),
        hits=sum(one.hits for one in engine_loads),
        tiered=sum(one.tiered for one in engine_loads),
        generated=sum(one.generated for one in engine_loads),
        computed=_sum([one.computed for one in engine_loads]),
        prefill_busy=_sum([one.prefill_busy for one in engine_loads]),
        decode_busy=_sum([one.decode_busy for one in engine_loads]),
        queue_busy=_sum([one.queue_busy for one in engine_loads]),
        running=sum(one.running for one in engine_loads),
        waiting=sum(one.waiting for one in engine_loads),
        usage=sum(one.usage * one.replicas for one in engine_loads) / replicas if replicas else 0.0,
        preemptions=_sum([one.preemptions for one in engine_loads]),
        first_token=first_token,
        kv_tokens=min((one.kv_tokens for one in engine_loads if one.kv_tokens), default=0),
        prefill_rate=min((one.prefill_rate for one in engine_loads if one.prefill_rate), default=0.0),
        ranks=max(one.ranks for one in engine_loads),
    )


def _clients(client_loads: Sequence[ClientLoad]) -> ClientLoad:
    requests = sum(one.requests for one in client_loads)
    first, *rest = client_loads
    first_token = first.first_token
    for one in rest:
        first_token = first_token + one.first_token
    declared = sum(one.requests * one.declared_tokens for one in client_loads) / requests if requests else 0
    return replace(
        first,
        requests=requests,
        errors=sum(one.errors for one in client_loads),
        prompt_tokens=sum(one.prompt_tokens for one in client_loads),
        sessions=_sum([one.sessions for one in client_loads]),
        session_tokens=_sum([one.session_tokens for one in client_loads]),
        declared_tokens=round(declared),
        first_token=first_token,
        opening=None,
        evicted=(),
        held=sum(one.held for one in client_loads),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum of the values; None if one of them is unknown."""
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(values) else None
