"""Chooses the replica of each request.

`Balancer` selects the eligible members: ready, not tried before and not ejected, or all untried ones when all of them
are ejected. The routing policy of the candidates chooses one of these, and `placed` counts the request there.

`now` is in monotonic seconds.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from promptgroup_contract import table
from promptgroup_router.placement.members import MemberRecords
from promptgroup_router.placement.peer_reports import PeerReports
from promptgroup_router.placement.pick import Pick
from promptgroup_router.placement.placed_requests import PlacedRequests
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.expected_ttft import ExpectedTtft, ReplicaCost
from promptgroup_router.policy.health import Health
from promptgroup_router.policy.policies import BoundedLoad, LeastRequest, PrefixHash, RoundRobin, RoutingPolicy
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.policy.sessions import Sessions
from promptgroup_router.rings.ids import MemberId
from promptgroup_router.rings.index import Candidates, Member, RoutingIndex


class NoMemberLeftError(Exception):
    """No member is left for a request: the candidates have none, or all of them were tried."""


@dataclass(slots=True)
class Choice:
    """The member that gets a request, and the members that it was chosen from."""

    candidates: Candidates
    """The candidates of the request, or their last resort."""
    allowed: Sequence[Member]
    """The eligible members."""
    member: Member | None
    """None if the request must wait for capacity."""


class Balancer:
    """Chooses members by the routing policy of their candidates."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self.members = MemberRecords()
        self.locations = SessionLocations()
        self.sessions = Sessions()
        self._expected = ExpectedTtft(self.locations)
        self.peers = PeerReports(self.members, self.locations, self.sessions)
        self.placed = PlacedRequests(self.members, self.locations, self.sessions, self._expected, self.peers)
        self._policies: Mapping[table.Policy, RoutingPolicy] = {
            table.Policy.EXPECTED_TTFT: self._expected,
            table.Policy.BOUNDED_LOAD: BoundedLoad(),
            table.Policy.LEAST_REQUEST: LeastRequest(),
            table.Policy.ROUND_ROBIN: RoundRobin(),
            table.Policy.PREFIX_HASH: PrefixHash(),
        }

    def pick(self, candidates: Candidates, demand: Demand, now: float, tried: Collection[MemberId] = ()) -> Pick | None:
        """Choose a member for a request and count the request there.

        Args:
            candidates: the members that can serve it, all from the table that was installed last (`rings.renewal`).
            demand: the request.
            now: monotonic seconds.
            tried: members that are excluded, because the request was already sent to them.

        Returns:
            The counted request, or None if the request must wait until a member has capacity.

        Raises:
            NoMemberLeftError: there is no member, or all of them were tried.
        """
        place = self.locations.get(demand.session) if demand.recorded else None
        left = self.members.replicas.get(place.member) if place is not None else None
        if left is not None:
            left.live.arrive(demand.session, demand.size, later=demand.history > 0)
        turn = self.members.turns.get(candidates.id, 0)
        chosen = self._choose(candidates, demand, now, turn, tried)
        if chosen.member is None:
            if left is not None:
                left.live.hold(demand.session)
            return None
        self.members.turns[candidates.id] = turn + 1
        if not self._health.no_failures():
            self._health.sent(chosen.member.slot_id, chosen.member.incarnation, now)
        return self.placed.count(chosen.candidates, chosen.member, demand, now)

    def install(self, view: RoutingIndex, now: float) -> None:
        """Adopt the members of a new table, and drop the counts of requests whose engine process is not in it."""
        before = self.members.replicas
        self.members.install(view, now)
        self.placed.drop_departed(before)

    def preview(self, candidates: Candidates, demand: Demand, now: float) -> Choice:
        """Return the choice that `pick` would make, without counting a request.

        Raises:
            NoMemberLeftError: there is no member.
        """
        return self._choose(candidates, demand, now, self.members.turns.get(candidates.id, 0))

    def costs_by_member(
        self, candidates: Candidates, demand: Demand, allowed: Sequence[Member], now: float
    ) -> dict[MemberId, tuple[ReplicaCost, bool]]:
        """Return member id → its cost and whether it has capacity; empty for policies that do not compare costs."""
        if candidates.policy is not table.Policy.EXPECTED_TTFT:
            return {}
        return self._expected.costs_by_member(candidates, demand, allowed, self.members.replicas, now)

    def _choose(
        self, candidates: Candidates, demand: Demand, now: float, turn: int, tried: Collection[MemberId] = ()
    ) -> Choice:
        """Choose a member; one of the last resort only if no other has capacity or all others were tried."""
        fallback, policy = candidates.last_resort, candidates.policy
        allowed = self._allowed(candidates, now, tried)
        member = self._by_policy(policy, candidates, demand, allowed, now=now, turn=turn) if allowed else None
        if member is None and fallback is not None:
            others = self._allowed(fallback, now, tried)
            other = self._by_policy(policy, fallback, demand, others, now=now, turn=turn) if others else None
            if other is not None:
                return Choice(fallback, others, other)
            allowed = allowed or others
        if not allowed:
            raise NoMemberLeftError(candidates.id)
        return Choice(candidates, allowed, member)

    def _by_policy(
        self,
        policy: table.Policy,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        *,
        now: float,
        turn: int,
    ) -> Member | None:
        """Return the member that a policy chooses; None if the request must wait."""
        if policy is table.Policy.EXPECTED_TTFT:  # the usual case: compiled code calls it directly, by its static type
            return self._expected.choose(candidates, demand, allowed, self.members.replicas, now=now, turn=turn)
        return self._policies[policy].choose(candidates, demand, allowed, self.members.replicas, now=now, turn=turn)

    def _allowed(self, candidates: Candidates, now: float, tried: Collection[MemberId] = ()) -> Sequence[Member]:
        overflow = candidates.policy is table.Policy.EXPECTED_TTFT
        eligible = candidates.members if overflow else candidates.ready or candidates.members
        untried = [member for member in eligible if member.id not in tried] if tried else eligible
        if self._health.no_failures():
            return untried
        # when all members are ejected, trying one of them is better than an error
        return [
            member for member in untried if self._health.available(member.slot_id, member.incarnation, now)
        ] or untried
