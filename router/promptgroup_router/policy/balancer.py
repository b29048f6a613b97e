"""Chooses the replica of each request and keeps the state that the choice rests on.

`Balancer` finds the members that can be sent to: ready, not tried before and not ejected, or all of them when all are
ejected. It asks the policy of the candidates for one of these and counts the request there. The caller reports the
first token with `first_token`, and then exactly one of `end` and `release`.

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
"""Most placements kept for peers: more than a router serves in a second."""


PREFIX_OUTBOX = 2000
"""Most requests whose prefixes are kept for peers: more than a router serves in a tick."""
MOST_TOLD = 64
"""Most prefixes of a request that peers are told of, the longest first to go."""


class NoMemberLeftError(Exception):
    """A request has no member that it could be sent to: there is none, or every one was tried."""


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
        """The record of the session's last turn, as it was when the request was sent."""
        self.moved = False
        """True if another member served the session before."""
        self.cached = 0.0
        """Tokens of the prompt that should be cached there."""
        self.copied = 0.0
        """Tokens of it that should come from a KV tier which all replicas share."""
        self.shared = 0
        """Tokens of it that are other sessions'."""
        self.known = 0
        """Prefixes of the prompt that were cached there when the request was sent."""
        self.computed = False
        """True once the prompt was computed, as its answer has begun."""
        self.guessed = False
        """True if `cached` rests on the ring alone, because no record of the session exists."""
        self.step = replica.step
        """Predicted seconds of one engine step there."""
        self.ahead = replica.wait(now) > 0
        """True if the replica had prompts of others to compute first."""
        self.alone = not replica.in_flight and not replica.peer_in_flight
        """True while nothing else has run there between sending the request and its first token."""
        self.first: float | None = None
        """Time at which the first token came."""
        self.written = 0.0
        """Tokens that had been written there when the request was sent."""
        self.placement: Placement | None = None
        """The record of a session without one, kept once the first token has come."""
        self.own = 0
        """Tokens of its own that the session needs there."""
        self.turn = 0
        """Number of the turn in the records, once it is there."""
        self.sent: PendingPrefill


@dataclass(slots=True)
class Choice:
    """The member that gets a request, and what it was chosen from."""

    candidates: Candidates
    """Those of the request, or their last resort."""
    allowed: Sequence[Member]
    """The members that can be sent to."""
    member: Member | None
    """None if the request must wait for room."""


EngineProcess = tuple[str, str, int | None]
"""The address of an engine, its incarnation and the rank; the id of a member, and nothing, without an incarnation."""


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
        """Those of processes that are not among them any more."""
        self.successors: list[ReplicaLoad] = []
        """Those of processes that take a slot over which another one has until then."""


class Balancer:
    """Chooses members by the policy of their candidates."""

    def __init__(self, health: Health) -> None:
        self.replicas: dict[MemberId, ReplicaLoad] = {}
        """Member id → its load estimate, for every member of the index. Members of several groups share one where they
        are the same engine process."""
        self._processes: dict[EngineProcess, ReplicaLoad] = {}
        """Process → its load estimate."""
        self._in_flight: dict[MemberId, int] = {}
        """Member id → requests of this router in flight there, for members that have any."""
        self._prepared: _Members | None = None
        """Those of the next table, once they are made."""
        self._gone: list[object] = []
        """Records of the last table, until they are let go."""
        self.locations = SessionLocations()
        self.sessions = Sessions()
        self._health = health
        self._costs: dict[str, EngineCosts] = {}
        self._keys: dict[MemberHash, MemberId] = {}
        self._hashes: dict[MemberId, MemberHash] = {}
        self._clock = 0.0
        """The most tokens that any process had written when a table came: records of the next process begin there."""
        self._tier1: dict[PrefixKey, float] = {}
        """Prefix → its tokens, which the placements of peers do not carry."""
        self._requests = PrefixRequests()
        self._has_peers = False
        """True once somebody reads the outbox."""
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
        """Return the number of this router's requests that the candidates have."""
        return sum(self._in_flight.get(member.id, 0) for member in candidates.members)

    def member_id(self, key: MemberHash) -> MemberId | None:
        """Return the id of the member whose hash this is; None if the table has none that is ready."""
        return self._keys.get(key)

    # --- One request ---------------------------------------------------------------------------------------------

    def pick(self, candidates: Candidates, demand: Demand, now: float, tried: Collection[MemberId] = ()) -> Pick | None:
        """Choose a member for a request and count the request there.

        Args:
            candidates: the members that can serve it, all of the table that was installed last (`rings.renewal`).
            demand: the request.
            now: monotonic seconds.
            tried: members that it is not sent to again.

        Returns:
            The counted request, or None if the request must wait until a member has room.

        Raises:
            NoMemberLeftError: there is no member, or every one was tried.
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
        """Return what `pick` would choose; count nothing.

        Raises:
            NoMemberLeftError: there is no member.
        """
        return self._choose(candidates, demand, now, self._turns.get(candidates.id, 0))

    def costs_by_member(
        self, candidates: Candidates, demand: Demand, allowed: Sequence[Member], now: float
    ) -> dict[MemberId, tuple[ReplicaCost, bool]]:
        """Return member id → its cost and whether it has room; empty for policies that do not weigh costs."""
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
        """Record that the answer is complete; `usage` is what the engine reported, if anything."""
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
            if usage.cached_tokens is not None:
                cached = float(usage.cached_tokens)
                self._learn(pick, prompt, usage.cached_tokens)
        replica.written += max(0.0, prompt - cached + answer)
        # the end of the prompt, which has no mark, and the answer
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
        """Record that the request failed or was given up, so that nothing is known of the engine's work on it."""
        if not pick.counted:
            return
        self._leave(pick, now)
        place = self.locations.get(pick.demand.session)
        if place is not None and place.member == pick.member.id and place.turn == pick.turn:
            self._tell(pick, place)  # else the session would seem to run there until nobody has heard of it for long

    def _leave(self, pick: Pick, now: float) -> None:
        pick.counted = False
        pick.replica.leave(pick.sent)
        if self.replicas.get(pick.member.id) is pick.replica:  # else its process is gone, and what was counted there
            left = self._in_flight.get(pick.member.id, 0) - 1
            if left > 0:
                self._in_flight[pick.member.id] = left
            else:
                self._in_flight.pop(pick.member.id, None)
        if pick.demand.recorded:
            if not pick.computed:
                # requests that are given up must not push out what is cached
                pick.replica.prefixes.drop(pick.demand.marks, pick.known)
            self._leave_working_set(pick, now)
            self._settle(pick)

    def _leave_working_set(self, pick: Pick, now: float) -> None:
        session, live = pick.demand.session, pick.replica.live
        live.leave(session, now)
        # a session that never got a byte does not live there: clients that hang up would keep out those who stay
        if pick.placement is not None and self.locations.get(session) is None and not live.in_flight(session):
            live.drop(session)

    def _choose(
        self, candidates: Candidates, demand: Demand, now: float, turn: int, tried: Collection[MemberId] = ()
    ) -> Choice:
        """Choose a member, of the last resort only if no other has room or all others were tried."""
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
        if policy is table.Policy.EXPECTED_TTFT:  # nearly always: compiled code calls what it knows by name at once
            return self._expected.choose(candidates, demand, allowed, self.replicas, now=now, turn=turn)
        return self._policies[policy].choose(candidates, demand, allowed, self.replicas, now=now, turn=turn)

    def _allowed(self, candidates: Candidates, now: float, tried: Collection[MemberId] = ()) -> Sequence[Member]:
        overflow = candidates.policy is table.Policy.EXPECTED_TTFT
        eligible = candidates.members if overflow else candidates.ready or candidates.members
        untried = [member for member in eligible if member.id not in tried] if tried else eligible
        if self._health.no_failures():
            return untried
        # with all of them ejected, a member that may answer is better than an error
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
            # clients that hang up before the first byte must not fill the table
            pick.placement = placement
            replica.unplaced += pick.own
        return pick

    def _settle(self, pick: Pick) -> Placement | None:
        """Return the placement that is still to be recorded, which is counted as unplaced no more."""
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
        """Return True while the process that has a request is in the table: what another one has cached is gone."""
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
        """Tell peers where a session is: when it is placed, and once more when the request is over."""
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
        """Remove a session that moves to another member from the working set of the one it leaves."""
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
        """Learn which share a tier brings of what another replica has computed."""
        there = pick.cached - pick.copied
        expected = held(pick.demand, pick.before) - there
        if expected > 0:
            pick.replica.costs.observe_copy(expected, cached - there)

    # --- The table -------------------------------------------------------------------------------------------------

    def prepare(self, view: RoutingIndex, now: float) -> Generator[None, None, None]:
        """Make in steps what `install` takes of a table: nothing of it is used before."""
        self._prepared = None
        self._prepared = yield from self._made(view, now)

    def release_steps(self) -> Generator[None, None, None]:
        """Let go the records of the last table, one in each step: together they take a tenth of a second."""
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
                        # the operator has warmed it for this prompt, too
                        replica.touch(revision.prefix, revision.revision.tokens)
                    made.replicas[id_] = replica
                    yield
            yield
        yield from self._finish(made)
        return made

    def _finish(self, made: "_Members") -> Generator[None, None, None]:
        """Find what follows from a table's members: who is gone, how many share their costs, whose turn it is."""
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
        """Return the costs of a revision's engines, which those of its group with the same settings share."""
        key = revision.label + revision.revision.engine.settings
        figures = revision.revision.engine
        kind = self._costs.get(key) or made.costs.get(key)
        if kind is None:
            kind = EngineCosts(figures.kv_tokens, figures.prefill_rate, figures.step_tokens)
            kind.in_use.requests = self._requests  # a prompt may be lent replicas of another kind
        elif figures.kv_tokens:
            kind.set_capacity(figures.kv_tokens)
        kind.set_copies(figures.copy_rate, revision.revision.tokens)
        made.costs[key] = kind
        self._remember_tier1(revision.prefix, revision.revision.tokens)
        return kind

    def install(self, view: RoutingIndex, now: float) -> None:
        """Adopt the members of a new table and drop the state of members that are gone."""
        made, self._prepared = self._prepared, None
        if made is None or made.view is not view:
            made = at_once(self._made(view, now))
        replicas = self.replicas
        # of those that leave now, too: another process may take their slots over in a later table
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
        """Begin the clock of a process, whose cache is empty, where no record of an earlier one is believed."""
        replica.since = now
        self._clock += replica.costs.kv_tokens
        replica.written = self._clock

    def _hash(self, member: MemberId) -> MemberHash:
        return self._hashes[member] if member in self._hashes else member_hash(member)

    # --- Peers -----------------------------------------------------------------------------------------------------

    def export(self, now: float) -> tuple[list[PlacementReport], list[LoadReport]]:
        """Return the placements that peers have not been sent yet, and the loads to send them in this tick."""
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
        """Return the prefixes that peers have not been told of yet: of each prompt the end first, as in use."""
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
        """Merge what a peer tells of prefixes."""
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
            # the second report of a turn is that of its end
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
        """Restore placements that a peer remembers; they say where sessions are cached, not that they run."""
        for report in placements:
            id_ = self._keys.get(report.member)
            if id_ is not None:
                written = self.replicas[id_].tokens_written
                self.locations.restore(
                    report.session, Placement(id_, report.prefix, report.turn, report.tokens, written, now)
                )

    def expire_loads(self, now: float) -> None:
        """Drop the loads that peers have not told of for too long: the report that ended them was lost."""
        for replica in self._processes.values():
            if replica.peer_in_flight or replica.peer_pending:
                replica.expire_peers(now)

    def drop_peer(self, sender: int) -> None:
        """Drop the load of a peer that is gone."""
        for replica in self._processes.values():
            replica.drop_peer(sender)

    def snapshot(self) -> Iterator[PlacementReport]:
        """Yield the placements that are still believed, the most recently used first."""
        for session, place in self.locations.newest_first():
            replica = self.replicas.get(place.member)
            if replica is not None and replica.tokens_written - place.written < TRUST * replica.costs.kv_tokens:
                yield PlacementReport(session, self._hash(place.member), place.prefix, place.turn, int(place.tokens))
