"""The simple policies: bounded loads, least request, round robin, prefix hash. Pure.

Each is given the members that may be sent to, by slot and never empty, and their ledgers. A load counts from the pick
on, not from the first byte, and counts the requests of peers as far as they are known.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.rings.index import Candidates, Member, preferred

LEAST_CAP = 8
"""Requests that any member may have. An engine runs hundreds in one batch, so at a few requests each the mean says
nothing about load, and leaving home for it would throw caches away. (SGLang's cache_aware allows 10 over the mean.)"""


class RoutingPolicy(Protocol):
    """Chooses one of `allowed`."""

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[str, ReplicaLoad],
        now: float,
    ) -> Member | None:
        """The member that gets the request; None when it must wait. A copy may be asked without moving this one on."""


class BoundedLoad:
    """Home on the ring unless it is over its bound, then the next that is not (Mirrokni et al., SODA 2018)."""

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[str, ReplicaLoad],
        now: float,
    ) -> Member:
        """The first member under the cap."""
        loads = {member.id: replicas[member.id].load for member in allowed}
        cap = load_cap(list(loads.values()), candidates.load_factor_percent)
        # there is one: loads add up to less than the caps
        return next(member for member in preferred(candidates, demand.session, allowed) if loads[member.id] < cap)


class LeastRequest:
    """Fewest requests in flight; of several, the one that the session prefers."""

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[str, ReplicaLoad],
        now: float,
    ) -> Member:
        """The least loaded member."""
        least = min(replicas[member.id].load for member in allowed)
        idle = [member for member in allowed if replicas[member.id].load == least]
        return next(preferred(candidates, demand.session, idle))


class RoundRobin:
    """One after the other."""

    def __init__(self, turns: Mapping[str, int] | None = None) -> None:
        self._turns: dict[str, int] = dict(turns or {})

    def __copy__(self) -> "RoundRobin":
        return RoundRobin(self._turns)

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[str, ReplicaLoad],
        now: float,
    ) -> Member:
        """The next member by slot."""
        turn = self._turns.get(candidates.id, 0)
        self._turns[candidates.id] = turn + 1
        return allowed[turn % len(allowed)]

    def keep(self, pools: Collection[str]) -> None:
        """Forget all other pools."""
        self._turns = {id_: turn for id_, turn in self._turns.items() if id_ in pools}


class PrefixHash:
    """All requests of a prefix to one place on the ring, whatever its load."""

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[str, ReplicaLoad],
        now: float,
    ) -> Member:
        """The first member after the prefix's hash."""
        return next(preferred(candidates, demand.prefix, allowed))


def load_cap(loads: Sequence[int], factor_percent: int) -> int:
    """Requests that a member may have once the next is placed: the mean then, times the factor, rounded up."""
    return max(LEAST_CAP, -(-factor_percent * (sum(loads) + 1) // (100 * len(loads))))
