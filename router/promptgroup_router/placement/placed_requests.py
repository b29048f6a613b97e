"""The requests that are placed on members, from their sending to their end, and the records that they change.

The caller reports the first token with `first_token`, and then exactly one of `end` and `release`.
"""

import math

from promptgroup_router.apis.usage import Usage
from promptgroup_router.placement.members import MemberRecords
from promptgroup_router.placement.peer_reports import PeerReports
from promptgroup_router.placement.pick import Pick
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.expected_ttft import ANSWER, ExpectedTtft, has_been, held
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.policy.session_locations import Placement, SessionLocations
from promptgroup_router.policy.sessions import SessionRecord, Sessions
from promptgroup_router.rings.ids import MemberId
from promptgroup_router.rings.index import Candidates, Member


class PlacedRequests:
    """Counts requests on members, and learns from their answers where sessions are cached and what prefill costs."""

    def __init__(
        self,
        members: MemberRecords,
        locations: SessionLocations,
        sessions: Sessions,
        expected: ExpectedTtft,
        peers: PeerReports,
    ) -> None:
        self._members = members
        self._locations = locations
        self._sessions = sessions
        self._expected = expected
        self._peers = peers
        self._in_flight: dict[MemberId, int] = {}
        """Member id → requests of this router in flight there, for members that have any."""

    @property
    def loads(self) -> dict[MemberId, int]:
        """Member id → requests of this router in flight there, for members that have any."""
        return dict(self._in_flight)

    def live(self, candidates: Candidates) -> int:
        """Return the number of this router's requests in flight on the candidates' members."""
        return sum(self._in_flight.get(member.id, 0) for member in candidates.members)

    def count(self, candidates: Candidates, member: Member, demand: Demand, now: float) -> Pick:
        """Count a request on a member that was chosen for it."""
        replica = self._members.replicas[member.id]
        pick = Pick(member, replica, demand, now)
        self._in_flight[member.id] = self._in_flight.get(member.id, 0) + 1
        if not demand.recorded:
            pick.sent = replica.send(0.0, 0.0, now, streamed=False)
            return pick
        place = self._locations.get_by_origin(demand.session, demand.origin, now)
        pick.before = place
        if place is None:
            pick.guessed = demand.history > 0 and next(candidates.order(demand.session)) is member
        elif place.member != member.id:
            pick.moved = True
            self._members.drop_session(place, demand.session)
        pick.cached = self._expected.cached(demand, member.id, replica, place, home=pick.guessed)
        costs, copy = replica.costs, 0.0
        if costs.copy_rate:
            pick.copied = costs.copied(pick.cached, held(demand, place))
            if pick.copied:
                copy = costs.copy(pick.copied)
                pick.cached += pick.copied
        seconds = costs.prefill(pick.cached, demand.prompt)
        pick.sent = replica.send(seconds, demand.prompt, now, streamed=demand.streamed, copy=copy)
        replica.live.expire(now)
        pick.shared = replica.shared(demand, been=has_been(place, member.id))
        pick.own = demand.prompt - pick.shared + ANSWER
        replica.live.enter(
            demand.session, demand.prefix, demand.tier1, pick.own,
            shared=pick.shared, returned=demand.history > 0, size=demand.size,
        )  # fmt: skip
        pick.known = replica.prefixes.longest(demand.marks)
        replica.use(demand)
        if self._peers.has_peers:
            self._peers.queue_prefixes(replica.key, demand, seconds)
        if demand.tier1:
            written = max(0.0, demand.prompt - pick.cached)
            costs.in_use.use(demand.prefix, demand.tier1, written, begins=place is None)
        self._members.record_prefix(demand.prefix, demand.tier1)
        pick.written = replica.tokens_written
        placement = Placement(member.id, demand.prefix, demand.turn, demand.prompt, pick.written, now)
        if place is not None:
            self._place(pick, placement, came_back=True)
        else:
            # clients that disconnect before the first byte must not fill the table of placements
            pick.placement = placement
            replica.unplaced += pick.own
        return pick

    def first_token(self, pick: Pick, now: float) -> None:
        """Record that the first byte of the answer has arrived."""
        if pick.counted and pick.first is None:
            pick.first = now
            pick.computed = True
            pick.alone = pick.alone and pick.demand.streamed and pick.replica.load == 1
            pick.replica.progress(pick.sent, now)
            self._place_new(pick)

    def end(self, pick: Pick, usage: Usage | None, now: float) -> None:
        """Record that the answer is complete; `usage` is the usage that the engine reported, if any."""
        if not pick.counted:
            return
        self._place_new(pick)
        pick.computed = True
        self._leave(pick, now, answered=now)
        replica, demand = pick.replica, pick.demand
        if not demand.recorded or not self._serves(pick):
            return
        prompt, answer, cached = demand.prompt, 0, pick.cached
        if usage is not None:
            prompt, answer = usage.prompt_tokens, usage.completion_tokens
            replica.costs.observe_answer(answer)
            if usage.cached_tokens is not None:
                cached = float(usage.cached_tokens)
                self._learn(pick, prompt, usage.cached_tokens)
        replica.written += max(0.0, prompt - cached + answer)
        # the answer, and the end of the prompt beyond its last mark
        replica.wrote(answer + demand.prompt - (demand.lengths[-1] if demand.marks else demand.tier1))
        place = self._locations.get(demand.session)
        if place is not None and place.member == pick.member.id and place.turn <= pick.turn:
            place.tokens = float(prompt + answer)
            place.written = replica.tokens_written
            if demand.session in self._sessions:
                tokens = max(0.0, place.tokens - demand.tier1)
                process = pick.member.id, replica.incarnation
                self._sessions.served(demand.session, SessionRecord(demand.counted_prefix, process, tokens, now))
            if self._peers.has_peers:
                self._peers.queue_placement(pick.demand.session, place, pick.shared)

    def release(self, pick: Pick, now: float) -> None:
        """Record that the request failed or was cancelled, so that the engine's progress on it is unknown."""
        if not pick.counted:
            return
        self._leave(pick, now)
        if not self._peers.has_peers:
            return
        place = self._locations.get(pick.demand.session)
        if place is not None and place.member == pick.member.id and place.turn == pick.turn:
            # else peers would count it as running there until it expires
            self._peers.queue_placement(pick.demand.session, place, pick.shared)

    def _leave(self, pick: Pick, now: float, answered: float = -math.inf) -> None:
        pick.counted = False
        pick.replica.leave(pick.sent, answered)
        if self._members.replicas.get(pick.member.id) is pick.replica:  # else the table lost its process and its count
            left = self._in_flight.get(pick.member.id, 0) - 1
            if left > 0:
                self._in_flight[pick.member.id] = left
            else:
                self._in_flight.pop(pick.member.id, None)
        if pick.demand.recorded:
            if not pick.computed:
                # cancelled requests must not evict records of cached prefixes
                pick.replica.prefixes.drop(pick.demand.marks, pick.known)
            self._leave_working_set(pick, now)
            self._settle(pick)

    def _leave_working_set(self, pick: Pick, now: float) -> None:
        session, live = pick.demand.session, pick.replica.live
        live.leave(session, now)
        # a session that never received a byte is not live: disconnected clients would block the admission of others
        if pick.placement is not None and self._locations.get(session) is None and not live.in_flight(session):
            live.drop(session)

    def _settle(self, pick: Pick) -> Placement | None:
        """Return the placement that is still to be recorded, and stop counting its tokens as unplaced."""
        placement, pick.placement = pick.placement, None
        if placement is not None:
            pick.replica.unplaced -= pick.own
        return placement

    def _place_new(self, pick: Pick) -> None:
        """Record the placement of a session that had none."""
        placement = self._settle(pick)
        if placement is not None and self._serves(pick):
            self._place(pick, placement, came_back=pick.demand.history > 0)

    def _serves(self, pick: Pick) -> bool:
        """Return True if the process that serves a request is still in the table; a later one has an empty cache."""
        return self._members.replicas.get(pick.member.id) is pick.replica

    def _place(self, pick: Pick, placement: Placement, *, came_back: bool) -> None:
        """Record the placement of a session, for this router and for its peers."""
        demand, replica = pick.demand, pick.replica
        self._locations.put_next(demand.session, placement)
        pick.turn = placement.turn
        if came_back:
            tokens, process = max(0.0, demand.prompt - demand.tier1), (placement.member, replica.incarnation)
            self._sessions.served(demand.session, SessionRecord(demand.counted_prefix, process, tokens, placement.seen))
        if self._peers.has_peers:
            self._peers.queue_placement(demand.session, placement, pick.shared)

    def _learn(self, pick: Pick, prompt: int, cached: int) -> None:
        if pick.guessed:
            self._expected.learn(pick.demand, cached, pick.known)
        costs = pick.replica.costs
        if costs.copy_rate and pick.moved and pick.before is not None:
            self._learn_copy(pick, cached)
        if pick.alone and pick.first is not None and not pick.copied:
            costs.observe(costs.prefill(cached, prompt), pick.step, pick.first - pick.since)

    @staticmethod
    def _learn_copy(pick: Pick, cached: int) -> None:
        """Learn which share of the tokens that another replica has computed can be copied from a KV tier."""
        there = pick.cached - pick.copied
        expected = held(pick.demand, pick.before) - there
        if expected > 0:
            pick.replica.costs.observe_copy(expected, cached - there)

    def drop_departed(self, before: dict[MemberId, ReplicaLoad]) -> None:
        """Drop the counts of members whose engine process has left with the previous table.

        Args:
            before: the load estimates of that table.
        """
        replicas = self._members.replicas
        self._in_flight = {
            id_: count for id_, count in self._in_flight.items() if id_ in before and before[id_] is replicas.get(id_)
        }
