"""The state that all connections of a router share: the table in use, and what was learned while serving."""

import secrets
from collections.abc import Generator, Sequence
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

from promptgroup_contract.access import AccessType
from promptgroup_contract.table import RoutingTable
from promptgroup_router.access.authenticator import Authenticator
from promptgroup_router.access.keyring import Keyring
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.authorities import Authorities
from promptgroup_router.base.exposition import PROMETHEUS, TextFormat
from promptgroup_router.base.metrics import Counter, Metrics
from promptgroup_router.base.steps import at_once
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.callers.salts import Salts
from promptgroup_router.policy.balancer import Balancer
from promptgroup_router.policy.health import Health
from promptgroup_router.policy.retry_budget import RetryBudget
from promptgroup_router.rings.aliases import AliasConflict
from promptgroup_router.rings.ids import member_parts
from promptgroup_router.rings.index import ClaimConflict, RoutingIndex, build_index, index_steps
from promptgroup_router.rings.names import NameConflict
from promptgroup_router.rings.remap import Shares, remap_steps, remapped_shares
from promptgroup_router.routing.admission_queue import AdmissionQueue
from promptgroup_router.routing.moves import Moves
from promptgroup_router.routing.near_miss import NearMisses
from promptgroup_router.routing.prompt_digest import PromptDigests
from promptgroup_router.tracing.tracer import Tracer
from promptgroup_router.undeclared.shared_prefixes import SharedPrefixes
from promptgroup_router.undeclared.unmatched import UNMATCHED, UnmatchedPrefixes

SERIES_SECONDS = 3600.0
"""Time for which the series of a revision or a group that left the table are still told: rates look back over less."""

Conflict: TypeAlias = ClaimConflict | AliasConflict | NameConflict
"""Something that a group declares and another one keeps."""


class Prepared(NamedTuple):
    """A table, made ready to be served."""

    view: RoutingIndex
    """Its index."""
    moved: Shares
    """Shares of the keys that it moves."""


class Waiter(Protocol):
    """A request that waits for room."""

    @property
    def revision(self) -> tuple[str, str]:
        """The group and the revision that it waits for."""

    def try_admit(self, now: float) -> bool:
        """Go on if a replica has room for the request. Return True if one has."""

    def time_out(self, now: float) -> None:
        """Refuse the request, which has waited for too long."""


class RouterState:
    """The shared state of a router. Only the event loop's thread changes it."""

    def __init__(
        self,
        authenticator: Authenticator | None = None,
        sample_bytes: int = 0,
        pass_paths: frozenset[bytes] = frozenset(),
        tracer: Tracer | None = None,
        began: float = -inf,
    ) -> None:
        """Begin with no table.

        Args:
            authenticator: knows who sends requests.
            sample_bytes: most bytes of a prompt that are kept as a sample; 0 to keep none.
            pass_paths: paths that are served beside those that are listed, by POST.
            tracer: records requests as spans; None where nobody wants them.
            began: when the process started, in monotonic seconds.
        """
        self.pass_paths = pass_paths
        self.authenticator = authenticator or Authenticator(Keyring(b""))
        self.authorities = Authorities()
        """The rules by which engines that serve TLS are verified."""
        self.untried: set[str] = set()
        """Kinds of keys (Secrets, issuers) that the first table needs and that were not asked for yet."""
        self.asks_callers = False
        """True if some group wants to know who sends a request."""
        self.index: RoutingIndex = build_index(RoutingTable())
        """The index of the table. It is replaced by one assignment; a request keeps the one that it began with."""
        self.loaded = False
        """True once a table was read, even if from the copy on disk."""
        self.draining = False
        self.confirmed = 0.0
        """Time at which the source was last known to agree with the table, in monotonic seconds."""
        self.metrics = Metrics()
        self.health = Health()
        self.balancer = Balancer(self.health)
        self.retry_budget = RetryBudget()
        self.admission_queue: AdmissionQueue[Waiter] = AdmissionQueue()
        """Requests that wait for room."""
        self.tokens = Tokens()
        self.limiter = Limiter(began)
        """The accounts of callers with limits."""
        self.salts = Salts(secrets.token_bytes(32))
        """The salts of callers; under a key of this process alone until it has read the one that routers share."""
        self.unmatched = UnmatchedPrefixes(sample_bytes=sample_bytes)
        self.shared_prefixes = SharedPrefixes()
        self.moves = Moves()
        self.near_misses = NearMisses()
        self.prompt_digests = PromptDigests()
        """The prompts of clients that ask about the cache."""
        self.tracer = tracer
        self._told: dict[tuple[str, ...], float] = {}
        """Labels group and revision, or group alone → when the table had it last."""

    @property
    def keys_tried(self) -> bool:
        """True once everything was asked for its keys by which the first table's groups know their callers."""
        return not self.untried

    @property
    def not_ready(self) -> bytes:
        """The reason for which no requests should be sent here, as a line of text; empty if they should."""
        if self.draining:
            return b"draining\n"
        if not self.loaded:
            return b"no routing table has been read yet\n"
        return b"" if self.keys_tried else b"keys of callers have not been asked for yet\n"

    def prepare(self, table: RoutingTable, now: float) -> Generator[None, None, Prepared]:
        """Make in steps what `install` takes of a table at once, so that a large one holds nobody up."""
        view = yield from index_steps(table)
        shares = yield from remap_steps(self.index, view)
        yield from self.balancer.prepare(view, now)
        return Prepared(view, shares)

    def install(
        self, table: RoutingTable, source: str, now: float, prepared: Prepared | None = None
    ) -> tuple[Conflict, ...]:
        """Serve by this table from here on.

        Args:
            table: the table.
            source: where it comes from.
            now: monotonic seconds.
            prepared: what was made of it before, if anything.

        Returns:
            The conflicts that were not there before.
        """
        self._forget_series(now)
        before = self.index
        if prepared is None:
            view = build_index(table)
            prepared = Prepared(view, remapped_shares(before, view))
        self.index = view = prepared.view
        accesses = {self.authenticator.access(access).type for access, _ in view.accesses}
        self.asks_callers = bool(accesses - {AccessType.ANONYMOUS})
        self.loaded = True
        self.confirmed = now
        pools = [revision.candidates for group in view.groups for revision in group.revisions]
        self.health.keep({member.slot_id for pool in pools for member in pool.ready})
        self.balancer.install(view, now)
        metrics = self.metrics
        metrics.table_info.replace({(table.version, source): 1})
        metrics.keys_moved.replace({(group,): share for group, share in prepared.moved.items()})
        metrics.conflicts.replace(_by_group(view.conflicts))
        metrics.alias_conflicts.replace(_by_group(view.alias_conflicts))
        metrics.name_conflicts.replace(_by_group(view.name_conflicts))
        known = frozenset(_conflicts(before))
        return tuple(conflict for conflict in _conflicts(view) if conflict not in known)

    def _forget_series(self, now: float) -> None:
        """Drop the series of what left the table long ago: prompts come and go as long as a router runs."""
        for group in self.index.groups:
            self._told[group.label,] = now
            for revision in group.revisions:
                self._told[group.label, revision.short] = now
        ats = {labels: at for labels, at in self._told.items() if now - at <= SERIES_SECONDS}
        if len(ats) < len(self._told):
            self._told = ats
            self.metrics.keep(("group",), ats.keys() | {(UNMATCHED,)})
            self.metrics.keep(("group", "revision"), ats.keys())
        # every time: a request that began with an older table may be counted after its group was forgotten
        self.near_misses.keep({labels[0] for labels in ats})

    def set_epoch(self, epoch: float) -> None:
        """Tell those who read no clock the seconds since 1970 at which the monotonic clock was 0."""
        self.authenticator.epoch = self.limiter.epoch = self.metrics.epoch = epoch
        if self.tracer is not None:
            self.tracer.epoch = epoch

    def admit_waiting(self, now: float) -> None:
        """Admit waiting requests that fit, after something has ended."""
        if self.admission_queue:
            self.admission_queue.admit(lambda waiter: waiter.try_admit(now), now)

    def expire_waiting(self, now: float) -> None:
        """Refuse the requests that have waited for too long, and admit others: time alone makes room too."""
        if self.admission_queue:
            for waiter in self.admission_queue.expire(now):
                waiter.time_out(now)
            self.admit_waiting(now)

    def exposition(self, now: float, connections: int, form: TextFormat = PROMETHEUS) -> str:
        """Return the metrics as text at once: see `exposition_steps`."""
        return at_once(self.exposition_steps(now, connections, form))

    def exposition_steps(
        self, now: float, connections: int, form: TextFormat = PROMETHEUS
    ) -> Generator[None, None, str]:
        """Return the metrics as text, with the gauges as of this moment, in steps of a line."""
        self._forget_series(now)
        in_flight: dict[tuple[str, ...], float] = {}
        sessions: dict[tuple[str, ...], float] = {}
        tokens: dict[tuple[str, ...], float] = {}
        slot_sessions: dict[tuple[str, ...], float] = {}
        slot_tokens: dict[tuple[str, ...], float] = {}
        waiting: dict[tuple[str, ...], float] = {}
        coming_back = self.balancer.sessions.totals(now)
        for group in self.index.groups:
            for revision in group.revisions:
                label = group.label, revision.short
                waiting[label] = 0
                sessions[label], tokens[label] = coming_back.get(revision.prefix, (0, 0))
                for member in revision.candidates.ready:
                    place = member.group, revision.short, str(member.slot)
                    process = member.id, member.incarnation
                    in_flight[place] = 0
                    count, held = self.balancer.sessions.of_process(process)
                    # of all ranks together: a slot leaves with all of them
                    slot_sessions[place] = slot_sessions.get(place, 0) + count
                    slot_tokens[place] = slot_tokens.get(place, 0) + held
                    yield
        for member_id, load in self.balancer.loads.items():
            parts = member_parts(member_id)
            place = parts.group, parts.revision, str(parts.slot)
            in_flight[place] = in_flight.get(place, 0) + load
        for waiter in self.admission_queue:
            if waiter.revision in waiting:
                waiting[waiter.revision] += 1
        metrics = self.metrics
        gauges: list[tuple[Counter, dict[tuple[str, ...], float]]] = [
            (metrics.in_flight, in_flight),
            (metrics.revision_sessions, sessions),
            (metrics.revision_session_tokens, tokens),
            (metrics.revision_waiting, waiting),
            (metrics.slot_sessions, slot_sessions),
            (metrics.slot_session_tokens, slot_tokens),
            (metrics.near_miss_offset, self.near_misses.medians()),
            (metrics.table_age, {(): now - self.confirmed} if self.loaded else {}),
            (metrics.waiting, {(): len(self.admission_queue)}),
            (metrics.connections, {(): connections}),
        ]
        for gauge, values in gauges:
            gauge.replace(values)
            yield
        return (yield from metrics.text_steps(form))


def _conflicts(view: RoutingIndex) -> tuple[Conflict, ...]:
    return view.conflicts + view.alias_conflicts + view.name_conflicts


def _by_group(conflicts: Sequence[Conflict]) -> dict[tuple[str, ...], float]:
    """Return label group → number of its conflicts."""
    result: dict[tuple[str, ...], float] = {}
    for conflict in conflicts:
        result[conflict.group,] = result.get((conflict.group,), 0) + 1
    return result
