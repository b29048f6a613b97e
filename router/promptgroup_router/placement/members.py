"""The load estimates and the costs of a table's members, and their renewal with each table.

Members of several groups that are the same engine process share one load estimate. A process keeps its estimate for as
long as tables contain it; one that takes over a slot begins with an empty cache.
"""

from collections.abc import Generator

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.base.steps import at_once
from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.policy.session_locations import Placement
from promptgroup_router.prefixes.prefixes_in_use import LIMIT as PREFIXES
from promptgroup_router.prefixes.prefixes_in_use import PrefixSessions
from promptgroup_router.rings.ids import MemberHash, MemberId, PrefixKey, member_hash
from promptgroup_router.rings.index import Member, RevisionEntry, RoutingIndex

EngineProcess = tuple[str, str, int | None]
"""The address of an engine, its incarnation and the rank; without an incarnation, the member id with empty values."""


def _process(member: Member) -> EngineProcess:
    return (member.address, member.incarnation, member.rank) if member.incarnation else (member.id, "", None)


class _TableRecords:
    """The records of one table's members, while they are built."""

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


class MemberRecords:
    """The records of the members of the table that was installed last."""

    def __init__(self) -> None:
        self.replicas: dict[MemberId, ReplicaLoad] = {}
        """Member id → its load estimate, for every member of the index. Members of several groups share one estimate if
        they are the same engine process."""
        self.processes: dict[EngineProcess, ReplicaLoad] = {}
        """Process → its load estimate."""
        self.turns: dict[str, int] = {}
        """Id of candidates → requests that were placed among them."""
        self._prepared: _TableRecords | None = None
        """The records of the next table, once they are built."""
        self._gone: list[object] = []
        """Records of the previous table, until their memory is released."""
        self._costs: dict[str, EngineCosts] = {}
        self._keys: dict[MemberHash, MemberId] = {}
        self._hashes: dict[MemberId, MemberHash] = {}
        self._clock = 0.0
        """The most tokens that any process had written when a table was installed: counts of new processes start above
        it."""
        self._prefix_tokens: dict[PrefixKey, float] = {}
        self._sessions = PrefixSessions()

    # --- What is recorded ------------------------------------------------------------------------------------------

    def member_id(self, key: MemberHash) -> MemberId | None:
        """Return the id of the member with this hash; None if the table has no such member."""
        return self._keys.get(key)

    def member_hash(self, member: MemberId) -> MemberHash:
        """Return the hash that a member has in reports to peers."""
        return self._hashes[member] if member in self._hashes else member_hash(member)

    def prefix_tokens(self, prefix: PrefixKey) -> float | None:
        """Return the tokens of a declared prefix, which the placements of peers do not contain; None if unrecorded."""
        return self._prefix_tokens.get(prefix)

    def record_prefix(self, prefix: PrefixKey, tokens: float) -> None:
        """Record the tokens of a declared prefix."""
        recorded = self._prefix_tokens.get(prefix)
        if recorded == tokens:
            return
        if recorded is None and len(self._prefix_tokens) >= PREFIXES:
            del self._prefix_tokens[next(iter(self._prefix_tokens))]
        self._prefix_tokens[prefix] = tokens

    def drop_session(self, place: Placement, session: SessionKey) -> None:
        """Remove a session that moves to another member from the working set of the previous one."""
        left = self.replicas.get(place.member)
        if left is not None:
            left.live.drop(session)

    # --- The next table --------------------------------------------------------------------------------------------

    def prepare(self, view: RoutingIndex, now: float) -> Generator[None, None, None]:
        """Build in steps the records that `install` adopts for a table; none of them is used before."""
        self._prepared = None
        self._prepared = yield from self._made(view, now)

    def release_steps(self) -> Generator[None, None, None]:
        """Release the records of the previous table, one in each step: together they take a tenth of a second."""
        while self._gone:
            record = self._gone.pop()
            if isinstance(record, ReplicaLoad):
                # others may take over its slot in the next table, which is made after this
                self._clock = max(self._clock, record.tokens_written)
            yield

    def _made(self, view: RoutingIndex, now: float) -> Generator[None, None, _TableRecords]:
        yield from self.release_steps()
        made = _TableRecords(view)
        for running in self.processes.values():
            self._clock = max(self._clock, running.tokens_written)
            yield
        for group in view.groups:
            for revision in group.revisions:
                kind = self._kind(revision, made)
                for member in (*revision.candidates.ready, *revision.candidates.draining):
                    id_, process = member.id, _process(member)
                    known = self.replicas.get(id_)
                    made.hashes[id_] = key = self.member_hash(id_)
                    made.keys[key] = id_
                    replica = made.processes.get(process)
                    if replica is None:
                        standing = self.processes.get(process)
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

    def _finish(self, made: _TableRecords) -> Generator[None, None, None]:
        """Derive from a table's members the removed processes, the replicas per cost model and the request counts."""
        for process, replica in self.processes.items():
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
                turn = self.turns.get(revision.candidates.id)
                if turn is not None:
                    made.turns[revision.candidates.id] = turn
            yield

    def _kind(self, revision: RevisionEntry, made: _TableRecords) -> EngineCosts:
        """Return the costs of a revision's engines; revisions of a group with the same engine settings share them."""
        key = revision.label + revision.revision.engine.settings
        figures = revision.revision.engine
        kind = self._costs.get(key) or made.costs.get(key)
        if kind is None:
            kind = EngineCosts(figures.kv_tokens, figures.prefill_rate, figures.step_tokens)
            kind.in_use.sessions = self._sessions  # lent replicas of another kind may serve a prompt
        elif figures.kv_tokens:
            kind.set_capacity(figures.kv_tokens)
        kind.sequences = figures.max_sequences or kind.sequences
        kind.set_copies(figures.copy_rate, revision.revision.tokens)
        made.costs[key] = kind
        self.record_prefix(revision.prefix, revision.revision.tokens)
        return kind

    def install(self, view: RoutingIndex, now: float) -> None:
        """Adopt the members of a new table and drop the state of members that are not in it."""
        made, self._prepared = self._prepared, None
        if made is None or made.view is not view:
            made = at_once(self._made(view, now))
        if made.successors:  # of processes that this table removes
            self._clock = max([self._clock, *(replica.tokens_written for replica in made.gone)])
        for replica in made.successors:
            self._start(replica, now)
            replica.inherited = now
        turns = {id_: self.turns.get(id_, turn) for id_, turn in made.turns.items()}
        self._gone += made.gone
        self._gone += (self.replicas, self.processes, self._costs, self._hashes, self._keys, self.turns)
        self.replicas, self.processes, self._costs = made.replicas, made.processes, made.costs
        self._hashes, self._keys, self.turns = made.hashes, made.keys, turns

    def _replica(
        self, member: Member, replica_load: ReplicaLoad | None, costs: EngineCosts, now: float, made: _TableRecords
    ) -> ReplicaLoad:
        if replica_load is not None and replica_load.incarnation == member.incarnation:
            replica_load.costs = costs
            return replica_load
        replica = ReplicaLoad(self.member_hash(member.id), member.incarnation, costs, now)
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
