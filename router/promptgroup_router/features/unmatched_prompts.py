"""Counts the requests that no group declares, whether or not a replica may serve them."""

from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.routing.near_miss import UnmatchedPrompt
from promptgroup_router.routing.points import feature_of
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState
from promptgroup_router.undeclared.unmatched import sampled


def count_unmatched(state: RouterState, route: Route, request: ParsedRequest, now: float) -> None:
    """Count a request by its prefix, if no group declares it.

    Args:
        state: of the router or picker.
        route: its route.
        request: the request.
        now: monotonic seconds.
    """
    unmatched = feature_of(route.features, UnmatchedPrompt) if route.features else None
    if unmatched is None:
        return
    leading, near_miss = unmatched.leading, unmatched.near_miss
    state.metrics.unmatched.add(route.model)
    limit = state.unmatched.sample_bytes
    # no sample is taken of a near miss of a declared prompt: that prompt may be confidential
    kept = limit > 0 and bool(request.system) and near_miss is None
    state.unmatched.add(
        route.model,
        leading.hash,
        leading.length,
        tokens=route.demand.tier1,
        session=route.demand.session,
        text=route.demand.prefix,
        now=now,
        sample=sampled(request.system, request.tools, limit) if kept else None,
        near=near_miss,
        volatile=leading.volatile,
    )
    if near_miss is not None:
        state.metrics.near_miss.add(near_miss.group)
        state.near_misses.add(near_miss)
