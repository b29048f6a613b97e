"""Implements the simple policies: bounded loads, least request, round robin, prefix hash.

Each policy gets the eligible members, ordered by slot and never empty, and their load estimates. A request counts as
load from the pick on, not from the first byte. Loads include the requests of peers as far as they are reported.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.rings.ids import MemberId
from promptgroup_router.rings.index import Candidates, Member, preferred

LEAST_CAP = 8
"""Requests that any member may have, whatever the mean. An engine runs hundreds in one batch: at a few requests per
member the mean says nothing about load, and leaving home for it would waste caches. (SGLang's cache_aware allows 10
over the mean.)"""


class RoutingPolicy(Protocol):
    """A rule that chooses one of `allowed`."""

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[MemberId, ReplicaLoad],
        *,
        now: float,
        turn: int,
    ) -> Member | None:
        """Return the member that gets the request, or None if it must wait.

        Policies store no state of their own choices: the same arguments give the same member.

        Args:
            candidates: the members that can serve the request.
            demand: the request.
            allowed: the eligible members, by slot; never empty.
            replicas: member id → load estimate.
            now: monotonic seconds.
            turn: number of requests that were placed among these candidates before.
        """


class BoundedLoad:
    """Chooses home on the ring, or the next member that is under its bound (Mirrokni et al., SODA 2018)."""

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[MemberId, ReplicaLoad],
        *,
        now: float,
        turn: int,
    ) -> Member:
        """Return the first member under the cap."""
        loads = {member.id: replicas[member.id].load for member in allowed}
        cap = load_cap(list(loads.values()), candidates.load_factor_percent)
        # such a member always exists, because the loads add up to less than the caps
        return next(member for member in preferred(candidates, demand.session, allowed) if loads[member.id] < cap)


class LeastRequest:
    """Chooses the member with the fewest requests; of several, the one that the session prefers."""

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[MemberId, ReplicaLoad],
        *,
        now: float,
        turn: int,
    ) -> Member:
        """Return the least loaded member."""
        least = min(replicas[member.id].load for member in allowed)
        idle = [member for member in allowed if replicas[member.id].load == least]
        return next(preferred(candidates, demand.session, idle))


class RoundRobin:
    """Chooses the members in turn."""

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[MemberId, ReplicaLoad],
        *,
        now: float,
        turn: int,
    ) -> Member:
        """Return the next member by slot."""
        return allowed[turn % len(allowed)]


class PrefixHash:
    """Sends all requests of a prefix to one place on the ring, whatever its load."""

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[MemberId, ReplicaLoad],
        *,
        now: float,
        turn: int,
    ) -> Member:
        """Return the first member after the prefix's hash."""
        return next(preferred(candidates, demand.prefix, allowed))


def load_cap(loads: Sequence[int], factor_percent: int) -> int:
    """Return the requests that a member may have: the mean after the next one, times the factor, rounded up."""
    return max(LEAST_CAP, -(-factor_percent * (sum(loads) + 1) // (100 * len(loads))))
