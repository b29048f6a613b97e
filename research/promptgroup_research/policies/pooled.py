"""The project's router, told what a copy from a shared tier takes: what does it gain by sending sessions from home?

A session's history is in the pool, so any replica may copy it. The copy takes time, but none of the engine's: it is
waited for beside the backlog, and nobody else waits for it. So where a copy is quicker than computing, the wait is the
longer of the two, and the prefill is what comes after the history.
"""

from collections.abc import Mapping, Sequence

from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator.tier import TierModel
from promptgroup_research.simulator.world import World
from promptgroup_router.contract.table import Policy
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.expected_ttft import COLD_SHARE, MARGIN, PRICE, ExpectedTtft, _anchor, _need
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.policy.session_locations import Placement, SessionLocations
from promptgroup_router.rings.ids import MemberId
from promptgroup_router.rings.index import Candidates, Member


class _CopyAware(ExpectedTtft):
    """Expected time to first token, with copies."""

    def __init__(self, locations: SessionLocations, tier: TierModel) -> None:
        super().__init__(locations)
        self._tier = tier

    def cached(
        self, demand: Demand, id_: MemberId, replica: ReplicaLoad, place: Placement | None, *, home: bool
    ) -> float:
        """Return what the replica need not compute, wherever it is."""
        return max(super().cached(demand, id_, replica, place, home=home), _pooled(demand, place))

    def choose(
        self, candidates: Candidates, demand: Demand, allowed: Sequence[Member],
        replicas: Mapping[MemberId, ReplicaLoad], *, now: float, turn: int,
    ) -> Member | None:  # fmt: skip
        """Return the cheapest of all members that have room."""
        place = self._locations.get_by_origin(demand.session, demand.origin, now)
        anchor, _ = _anchor(candidates, demand, allowed, place)
        own, share = _need(demand)
        fitting = [each for each in allowed if self._fits(replicas[each.id], demand, own, share, now)]
        return min(
            fitting,
            key=lambda each: self._with_copy(demand, each, replicas[each.id], place, now, home=each is anchor),
            default=None,
        )

    def _with_copy(
        self, demand: Demand, member: Member, replica: ReplicaLoad, place: Placement | None, now: float, *, home: bool
    ) -> float:
        costs, pooled, copy = replica.costs, _pooled(demand, place), 0.0
        cached = ExpectedTtft.cached(self, demand, member.id, replica, place, home=home and place is None)
        if pooled > cached:
            seconds = self._tier.latency + (pooled - cached) * self._tier.token
            if seconds < costs.prefill(cached, pooled):
                copy, cached = seconds, pooled
        prefill = costs.prefill(cached, demand.prompt)
        if cached < demand.tier1:
            warm = costs.prefill(demand.tier1, demand.prompt)
            prefill = warm + COLD_SHARE * (prefill - warm)
        wait = max(replica.wait(now) + replica.late(now), copy)
        step = replica.step * (1 + (wait + prefill) * costs.rate / costs.step_tokens)
        return wait + step + (1 + PRICE) * prefill - (MARGIN if home else 0.0)


def _pooled(demand: Demand, place: Placement | None) -> float:
    """Return the tokens of a session's history that the pool has: all that some replica computed."""
    return min(place.tokens, demand.history or demand.prompt) if place is not None else 0.0


class Pooled(Ours):
    """One router that knows the pool; without one it is the project's."""

    def start(self, world: World) -> None:
        """Before the first event."""
        if world.tier is not None and world.tier.shared:
            for balancer in self.balancers:
                balancer._expected = _CopyAware(balancer.locations, world.tier)  # noqa: SLF001 - an experiment
                balancer._policies = {**balancer._policies, Policy.EXPECTED_TTFT: balancer._expected}  # noqa: SLF001
        super().start(world)
