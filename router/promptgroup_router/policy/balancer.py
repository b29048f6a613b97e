"""Chooses the replica of each request and holds the state that this choice depends on.

`Balancer` selects the eligible members: ready, not tried before and not ejected, or all untried ones when all of them
are ejected. The routing policy of the candidates chooses one of these, and the request counts as in flight there. The
caller reports the first token with `first_token`, and then exactly one of `end` and `release`.

Does no I/O and reads no clock; `now` is in monotonic seconds.
"""

from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from promptgroup_contract import table
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.steps import at_once
from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.expected_ttft import ANSWER, TRUST, ExpectedTtft, ReplicaCost, has_been, held
from promptgroup_router.policy.gossip import REPEATS, LoadReport, PlacementReport, PrefixReport
from promptgroup_router.policy.health import Health
from promptgroup_router.policy.policies import BoundedLoad, LeastRequest, PrefixHash, RoundRobin, RoutingPolicy
from promptgroup_router.policy.replica_load import PendingPrefill, ReplicaLoad
from promptgroup_router.policy.session_locations import Placement, SessionLocations
from promptgroup_router.policy.sessions import SessionRecord, Sessions
from promptgroup_router.prefixes.prefixes_in_use import LIMIT as PREFIXES
from promptgroup_router.prefixes.prefixes_in_use import PrefixRequests
from promptgroup_router.rings.ids import MemberHash, MemberId, PrefixKey, member_hash
from promptgroup_router.rings.index import Candidates, Member, RevisionEntry, RoutingIndex

OUTBOX = 10_000
"""Most placements queued for peers: more than a router serves in a second."""


PREFIX_OUTBOX = 2000
"""Most requests whose prefixes are queued for peers: more than a router serves in a tick."""
MOST_TOLD = 64
"""Most prefixes of a request that are reported to peers; the longest are left out first."""


class NoMemberLeftError(Exception):
    """No member is left for a request: the candidates have none, or all of them were tried."""


class Pick:
    """A request that is counted on a member until it ends."""

    __slots__ = (
        "ahead", "alone", "before", "cached", "computed", "copied", "counted", "demand", "first", "guessed", "known",
        "member", "moved", "own", "placement", "replica", "sent", "shared", "since", "step", "turn", "written",
    )  # fmt: skip

    def __init__(self, member: Member, replica: ReplicaLoad, demand: Demand, now: float) -> None:
        self.member = member
        self.replica = replica
        self.demand = demand
        self.since = now
        self.counted = True
        self.before: Placement | None = None
        """The placement of the session's previous turn, as it was recorded when the request was sent."""
        self.moved = False
        """True if another member served the session before."""
        self.cached = 0.0
        """Tokens of the prompt that are expected to be cached there."""
        self.copied = 0.0
        """Tokens of the prompt that are expected to be copied from a KV tier which all replicas share."""
        self.shared = 0
        """Tokens of the prompt that other sessions have computed there."""
        self.known = 0
        """Number of prefixes of the prompt that were cached there when the request was sent."""
        self.computed = False
        """True once the prefill is done, because the answer has begun."""
        self.guessed = False
        """True if `cached` is assumed from the ring alone, because no record of the session exists."""
        self.step = replica.step
        """Predicted seconds of one engine step there."""
        self.ahead = replica.wait(now) > 0
        """True if the replica had to compute the prompts of other requests first."""
        self.alone = not replica.in_flight and not replica.peer_in_flight
        """True if no other request ran there between sending the request and its first token."""
        self.first: float | None = None
        """Time at which the first token arrived."""
        self.written = 0.0
        """Tokens that had been written into the replica's cache when the request was sent."""
        self.placement: Placement | None = None
        """The placement of a session that had none, which is recorded once the first token has arrived."""
        self.own = 0
        """Unshared tokens that the session needs in the replica's cache."""
        self.turn = 0
        """Number of the turn in the recorded placement, once there is one."""
        self.sent: PendingPrefill


@dataclass(slots=True)
class Choice:
    """The member that gets a request, and the members that it was chosen from."""

    candidates: Candidates
    """The candidates of the request, or their last resort."""
    allowed: Sequence[Member]
    """The eligible members."""
    member: Member | None
    """None if the request must wait for capacity."""


EngineProcess = tuple[str, str, int | None]
"""The address of an engine, its incarnation and the rank; without an incarnation, the member id with empty values."""


def _process(member: Member) -> EngineProcess:
    return (member.address, member.incarnation, member.rank) if member.incarnation else (member.id, "", None)


class _Members:
    """The records of a table's members."""

    __slots__ = ("costs", "gone", "hashes", "keys", "processes", "replicas", "successors", "turns", "view")

    def __init__(self, view: RoutingIndex) -> None:
        self.view = view
        self.replicas: dict[MemberId, ReplicaLoad] = {}
        self.processes: dict[EngineProcess, ReplicaLoad] = {}
        self.costs: dict[str, EngineCosts] = {}
        self.hashes: dict[MemberId, MemberHash] = {}
        self.keys: dict[MemberHash, MemberId] = {}
        self.turns: dict[str, int] = {}
        self.gone: list[ReplicaLoad] = []
        """Load estimates of processes that the table does not contain any more."""
        self.successors: list[ReplicaLoad] = []
        """Load estimates of processes that take over a slot from another process when the table is installed."""


class Balancer:
    """Chooses members by the routing policy of their candidates."""

    def __init__(self, health: Health) -> None:
        self.replicas: dict[MemberId, ReplicaLoad] = {}
        """Member id → its load estimate, for every member of the index. Members of several groups share one estimate if
        they are the same engine process."""
        self._processes: dict[EngineProcess, ReplicaLoad] = {}
        """Process → its load estimate."""
        self._in_flight: dict[MemberId, int] = {}
        """Member id → requests of this router in flight there, for members that have any."""
        self._prepared: _Members | None = None
        """The records of the next table, once they are built."""
        self._gone: list[object] = []
        """Records of the previous table, until their memory is released."""
        self.locations = SessionLocations()
        self.sessions = Sessions()
        self._health = health
        self._costs: dict[str, EngineCosts] = {}
        self._keys: dict[MemberHash, MemberId] = {}
        self._hashes: dict[MemberId, MemberHash] = {}
        self._clock = 0.0
        """The most tokens that any process had written when a table was installed: counts of new processes start above
        it."""
        self._tier1: dict[PrefixKey, float] = {}
        """Prefix → its tokens, which the placements of peers do not contain."""
        self._requests = PrefixRequests()
        self._has_peers = False
        """True once `export` was called; before, no report for peers is queued."""
        self._outbox: deque[PlacementReport] = deque(maxlen=OUTBOX)
        self._prefixes: deque[tuple[MemberHash, Demand]] = deque(maxlen=PREFIX_OUTBOX)
        self._turns: dict[str, int] = {}
        """Id of candidates → requests that were placed among them."""
        self._expected = ExpectedTtft(self.locations)
        self._policies: Mapping[table.Policy, RoutingPolicy] = {
            table.Policy.EXPECTED_TTFT: self._expected,
            table.Policy.BOUNDED_LOAD: BoundedLoad(),
            table.Policy.LEAST_REQUEST: LeastRequest(),
            table.Policy.ROUND_ROBIN: RoundRobin(),
            table.Policy.PREFIX_HASH: PrefixHash(),
        }

    @property
    def loads(self) -> dict[MemberId, int]:
        """Member id → requests of this router in flight there, for members that have any."""
        return dict(self._in_flight)

    def live(self, candidates: Candidates) -> int:
        """Return the number of this router's requests in flight on the candidates' members."""
        return sum(self._in_flight.get(member.id, 0) for member in candidates.members)

    def member_id(self, key: MemberHash) -> MemberId | None:
        """Return the id of the member with this hash; None if the table has no such member."""
        return self._keys.get(key)

    # --- One request ---------------------------------------------------------------------------------------------

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
        left = self.replicas.get(place.member) if place is not None else None
        if left is not None:
            left.live.arrive(demand.session)
        turn = self._turns.get(candidates.id, 0)
        chosen = self._choose(candidates, demand, now, turn, tried)
        if chosen.member is None:
            return None
        self._turns[candidates.id] = turn + 1
        return self._count(chosen.candidates, chosen.member, demand, now)

    def preview(self, candidates: Candidates, demand: Demand, now: float) -> Choice:
        """Return the choice that `pick` would make, without counting a request.

        Raises:
            NoMemberLeftError: there is no member.
        """
        return self._choose(candidates, demand, now, self._turns.get(candidates.id, 0))

    def costs_by_member(
        self, candidates: Candidates, demand: Demand, allowed: Sequence[Member], now: float
    ) -> dict[MemberId, tuple[ReplicaCost, bool]]:
        """Return member id → its cost and whether it has capacity; empty for policies that do not compare costs."""
        if candidates.policy is not table.Policy.EXPECTED_TTFT:
            return {}
        return self._expected.costs_by_member(candidates, demand, allowed, self.replicas, now)

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
        self._leave(pick, now)
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
        place = self.locations.get(demand.session)
        if place is not None and place.member == pick.member.id and place.turn <= pick.turn:
            place.tokens = float(prompt + answer)
            place.written = replica.tokens_written
            if demand.session in self.sessions:
                tokens = max(0.0, place.tokens - demand.tier1)
                process = pick.member.id, replica.incarnation
                self.sessions.served(demand.session, SessionRecord(demand.counted_prefix, process, tokens, now))
            self._tell(pick, place)

    def release(self, pick: Pick, now: float) -> None:
        """Record that the request failed or was cancelled, so that the engine's progress on it is unknown."""
        if not pick.counted:
            return
        self._leave(pick, now)
        place = self.locations.get(pick.demand.session)
        if place is not None and place.member == pick.member.id and place.turn == pick.turn:
            self._tell(pick, place)  # else peers would count it as running there until it expires

    def _leave(self, pick: Pick, now: float) -> None:
        pick.counted = False
        pick.replica.leave(pick.sent)
        if self.replicas.get(pick.member.id) is pick.replica:  # else its process left the table, with its count
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
        if pick.placement is not None and self.locations.get(session) is None and not live.in_flight(session):
            live.drop(session)

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
            return self._expected.choose(candidates, demand, allowed, self.replicas, now=now, turn=turn)
        return self._policies[policy].choose(candidates, demand, allowed, self.replicas, now=now, turn=turn)

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

    def _count(self, candidates: Candidates, member: Member, demand: Demand, now: float) -> Pick:
        replica = self.replicas[member.id]
        if not self._health.no_failures():
            self._health.sent(member.slot_id, member.incarnation, now)
        pick = Pick(member, replica, demand, now)
        self._in_flight[member.id] = self._in_flight.get(member.id, 0) + 1
        if not demand.recorded:
            pick.sent = replica.send(0.0, 0.0, now, streamed=False)
            return pick
        place = self.locations.get_by_origin(demand.session, demand.origin, now)
        pick.before = place
        if place is None:
            pick.guessed = demand.history > 0 and next(candidates.order(demand.session)) is member
        elif place.member != member.id:
            pick.moved = True
            self._drop_session(place, demand.session)
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
            demand.session, demand.prefix, demand.tier1, pick.own, shared=pick.shared, returned=demand.history > 0
        )
        pick.known = replica.prefixes.longest(demand.marks)
        replica.use(demand)
        if self._has_peers:
            self._prefixes.append((replica.key, demand))
        if demand.tier1:
            costs.in_use.use(demand.prefix, demand.tier1, max(0.0, demand.prompt - pick.cached))
        self._remember_tier1(demand.prefix, demand.tier1)
        pick.written = replica.tokens_written
        placement = Placement(member.id, demand.prefix, demand.turn, demand.prompt, pick.written, now)
        if place is not None:
            self._place(pick, placement, came_back=True)
        else:
            # clients that disconnect before the first byte must not fill the table of placements
            pick.placement = placement
            replica.unplaced += pick.own
        return pick

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
        return self.replicas.get(pick.member.id) is pick.replica

    def _place(self, pick: Pick, placement: Placement, *, came_back: bool) -> None:
        """Record the placement of a session, for this router and for its peers."""
        demand, replica = pick.demand, pick.replica
        self.locations.put_next(demand.session, placement)
        pick.turn = placement.turn
        if came_back:
            tokens, process = max(0.0, demand.prompt - demand.tier1), (placement.member, replica.incarnation)
            self.sessions.served(demand.session, SessionRecord(demand.counted_prefix, process, tokens, placement.seen))
        self._tell(pick, placement)

    def _tell(self, pick: Pick, place: Placement) -> None:
        """Queue the placement of a session for peers: once when it is placed, and again when the request ends."""
        if self._has_peers:
            self._outbox.append(
                PlacementReport(
                    pick.demand.session,
                    self._hash(place.member),
                    place.prefix,
                    place.turn,
                    int(place.tokens),
                    pick.shared,
                )
            )

    def _remember_tier1(self, prefix: PrefixKey, tier1: float) -> None:
        known = self._tier1.get(prefix)
        if known == tier1:
            return
        if known is None and len(self._tier1) >= PREFIXES:
            del self._tier1[next(iter(self._tier1))]
        self._tier1[prefix] = tier1

    def _drop_session(self, place: Placement, session: SessionKey) -> None:
        """Remove a session that moves to another member from the working set of the previous one."""
        left = self.replicas.get(place.member)
        if left is not None:
            left.live.drop(session)

    def _learn(self, pick: Pick, prompt: int, cached: int) -> None:
        if pick.guessed:
            self._expected.learn(pick.demand, cached)
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

    # --- The table -------------------------------------------------------------------------------------------------

    def prepare(self, view: RoutingIndex, now: float) -> Generator[None, None, None]:
        """Build in steps the records that `install` adopts for a table; none of them is used before."""
        self._prepared = None
        self._prepared = yield from self._made(view, now)

    def release_steps(self) -> Generator[None, None, None]:
        """Release the records of the previous table, one in each step: together they take a tenth of a second."""
        while self._gone:
            self._gone.pop()
            yield

    def _made(self, view: RoutingIndex, now: float) -> Generator[None, None, _Members]:
        made = _Members(view)
        for running in self._processes.values():
            self._clock = max(self._clock, running.tokens_written)
            yield
        for group in view.groups:
            for revision in group.revisions:
                kind = self._kind(revision, made)
                for member in (*revision.candidates.ready, *revision.candidates.draining):
                    id_, process = member.id, _process(member)
                    known = self.replicas.get(id_)
                    made.hashes[id_] = key = self._hash(id_)
                    made.keys[key] = id_
                    replica = made.processes.get(process)
                    if replica is None:
                        standing = self._processes.get(process)
                        replica = self._replica(member, standing or known, kind, now, made)
                        replica.key = key
                        made.processes[process] = replica
                    if known is not replica:
                        # the operator has warmed the replica for this prompt, too
                        replica.touch(revision.prefix, revision.revision.tokens)
                    made.replicas[id_] = replica
                    yield
            yield
        yield from self._finish(made)
        return made

    def _finish(self, made: "_Members") -> Generator[None, None, None]:
        """Derive from a table's members the removed processes, the replicas per cost model and the request counts."""
        for process, replica in self._processes.items():
            if made.processes.get(process) is not replica:
                made.gone.append(replica)
            yield
        kinds: dict[int, int] = {}
        for replica in made.processes.values():
            kinds[id(replica.costs)] = kinds.get(id(replica.costs), 0) + 1
            yield
        for kind in made.costs.values():
            kind.in_use.replicas = max(1, kinds.get(id(kind), 0))
            yield
        for group in made.view.groups:
            for revision in group.revisions:
                turn = self._turns.get(revision.candidates.id)
                if turn is not None:
                    made.turns[revision.candidates.id] = turn
            yield

    def _kind(self, revision: RevisionEntry, made: "_Members") -> EngineCosts:
        """Return the costs of a revision's engines; revisions of a group with the same engine settings share them."""
        key = revision.label + revision.revision.engine.settings
        figures = revision.revision.engine
        kind = self._costs.get(key) or made.costs.get(key)
        if kind is None:
            kind = EngineCosts(figures.kv_tokens, figures.prefill_rate, figures.step_tokens)
            kind.in_use.requests = self._requests  # lent replicas of another kind may serve a prompt
        elif figures.kv_tokens:
            kind.set_capacity(figures.kv_tokens)
        kind.set_copies(figures.copy_rate, revision.revision.tokens)
        made.costs[key] = kind
        self._remember_tier1(revision.prefix, revision.revision.tokens)
        return kind

    def install(self, view: RoutingIndex, now: float) -> None:
        """Adopt the members of a new table and drop the state of members that are not in it."""
        made, self._prepared = self._prepared, None
        if made is None or made.view is not view:
            made = at_once(self._made(view, now))
        replicas = self.replicas
        # processes removed by this table count, too: others may take over their slots in a later table
        self._clock = max([self._clock, *(replica.tokens_written for replica in made.gone)])
        for replica in made.successors:
            self._start(replica, now)
            replica.inherited = now
        self._in_flight = {
            id_: count
            for id_, count in self._in_flight.items()
            if id_ in replicas and replicas[id_] is made.replicas.get(id_)
        }
        turns = {id_: self._turns.get(id_, turn) for id_, turn in made.turns.items()}
        self._gone += made.gone
        self._gone += (replicas, self._processes, self._costs, self._hashes, self._keys, self._turns)
        self.replicas, self._processes, self._costs = made.replicas, made.processes, made.costs
        self._hashes, self._keys, self._turns = made.hashes, made.keys, turns

    def _replica(
        self, member: Member, replica_load: ReplicaLoad | None, costs: EngineCosts, now: float, made: _Members
    ) -> ReplicaLoad:
        if replica_load is not None and replica_load.incarnation == member.incarnation:
            replica_load.costs = costs
            return replica_load
        replica = ReplicaLoad(self._hash(member.id), member.incarnation, costs, now)
        replica.begin(costs, now)
        if replica_load is not None:
            made.successors.append(replica)
        else:
            self._start(replica, now)
        return replica

    def _start(self, replica: ReplicaLoad, now: float) -> None:
        """Start the count of a process with an empty cache so high that placements of earlier ones count as evicted."""
        replica.since = now
        self._clock += replica.costs.kv_tokens
        replica.written = self._clock

    def _hash(self, member: MemberId) -> MemberHash:
        return self._hashes[member] if member in self._hashes else member_hash(member)

    # --- Peers -----------------------------------------------------------------------------------------------------

    def export(self, now: float) -> tuple[list[PlacementReport], list[LoadReport]]:
        """Return the placements that were not sent to peers yet, and the loads to send in this tick."""
        self._has_peers = True
        placements = list(self._outbox)
        self._outbox.clear()
        loads = []
        for replica in self._processes.values():
            if replica.in_flight:
                replica.ticks = REPEATS
            elif replica.ticks:
                replica.ticks -= 1
            else:
                continue
            loads.append(replica.export(now))
        return placements, loads

    def export_prefixes(self) -> list[PrefixReport]:
        """Return the prefixes that were not reported to peers yet, the longest of each prompt first, as in `use`."""
        reports: list[PrefixReport] = []
        for member, demand in self._prefixes:
            marks, lengths, begin = demand.marks, demand.lengths, demand.unmarked
            for place in range(min(len(marks), MOST_TOLD) - 1, -1, -1):
                before = lengths[place - 1] if place else begin
                reports.append(PrefixReport(marks[place], member, lengths[place] - before))
            if begin:
                reports.append(PrefixReport(demand.prefix, member, begin))
        self._prefixes.clear()
        return reports

    def merge_prefixes(self, prefixes: Sequence[PrefixReport]) -> None:
        """Merge the prefixes that a peer reports."""
        for prefix, member, tokens in prefixes:
            id_ = self._keys.get(member)
            if id_ is not None:
                self.replicas[id_].heard(prefix, tokens)

    def merge(
        self, sender: int, placements: Sequence[PlacementReport], loads: Sequence[LoadReport], now: float
    ) -> None:
        """Merge a peer's placements and loads; placements may arrive twice and out of order."""
        for load in loads:
            id_ = self._keys.get(load.member)
            if id_ is not None:
                self.replicas[id_].merge(sender, load, now)
        for report in placements:
            id_ = self._keys.get(report.member)
            place = self.locations.get_fresh(report.session, now)
            if id_ is not None and (place is None or place.turn <= report.turn):
                self._merge_placement(report, id_, place, now)

    def _merge_placement(self, report: PlacementReport, id_: MemberId, place: Placement | None, now: float) -> None:
        replica = self.replicas[id_]
        ended = False
        if place is not None:
            if place.member != id_:
                self._drop_session(place, report.session)
            # the second report of a turn reports its end
            ended = place.member == id_ and place.turn == report.turn
        in_use = replica.costs.in_use
        known = self._tier1.get(report.prefix)
        tier1 = float(in_use.mean()) if known is None else known
        if tier1 and not ended:
            in_use.use(report.prefix, int(tier1), 0.0)
        tokens = min(report.tokens, replica.costs.kv_tokens)
        self.sessions.drop(report.session)
        replica.live.expire(now)
        shared = min(report.shared, tokens)
        own = 0 if ended else min(tokens - shared + ANSWER, replica.costs.kv_tokens)
        replica.live.heard(report.session, report.prefix, tier1, own, now, ended=ended, shared=shared)
        self.locations.put(
            report.session, Placement(id_, report.prefix, report.turn, tokens, replica.tokens_written, now)
        )

    def restore(self, placements: Sequence[PlacementReport], now: float) -> None:
        """Restore placements that a peer has stored: they say where sessions are cached, not that they are active."""
        for report in placements:
            id_ = self._keys.get(report.member)
            if id_ is not None:
                written = self.replicas[id_].tokens_written
                self.locations.restore(
                    report.session, Placement(id_, report.prefix, report.turn, report.tokens, written, now)
                )

    def expire_loads(self, now: float) -> None:
        """Drop the loads that peers have not reported for too long: the report of their end was lost."""
        for replica in self._processes.values():
            if replica.peer_in_flight or replica.peer_pending:
                replica.expire_peers(now)

    def drop_peer(self, sender: int) -> None:
        """Drop the load of a peer that has left."""
        for replica in self._processes.values():
            replica.drop_peer(sender)

    def snapshot(self) -> Iterator[PlacementReport]:
        """Yield the placements whose sessions are still expected to be cached, the most recently used first."""
        for session, place in self.locations.newest_first():
            replica = self.replicas.get(place.member)
            if replica is not None and replica.tokens_written - place.written < TRUST * replica.costs.kv_tokens:
                yield PlacementReport(session, self._hash(place.member), place.prefix, place.turn, int(place.tokens))
