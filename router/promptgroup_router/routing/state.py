"""The state that all connections of a router share: the table in use, and the statistics from serving."""

from collections.abc import Container, Generator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, TypeAlias

from promptgroup_contract.access import AccessType
from promptgroup_contract.names import UNMATCHED
from promptgroup_contract.table import RoutingTable
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.authorities import Authorities
from promptgroup_router.base.exposition import PROMETHEUS, TextFormat
from promptgroup_router.base.metrics import Counter, Metrics
from promptgroup_router.base.series import Series
from promptgroup_router.base.steps import at_once
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.health import Health
from promptgroup_router.policy.retry_budget import RetryBudget
from promptgroup_router.rings.aliases import AliasConflict
from promptgroup_router.rings.building import build_index, index_steps, replaced_steps
from promptgroup_router.rings.ids import MemberId, member_parts
from promptgroup_router.rings.index import Candidates, ClaimConflict, GroupEntry, RoutingIndex
from promptgroup_router.rings.names import NameConflict
from promptgroup_router.rings.remap import remap_steps
from promptgroup_router.routing.admission_queue import AdmissionQueue
from promptgroup_router.routing.moves import Moves
from promptgroup_router.routing.process_points import GroupPoints, ProcessFeatures

SERIES_SECONDS = 3600.0
"""Time for which the series of a revision or a group that left the table are still exported: rates cover less time."""

Labels: TypeAlias = tuple[str, ...]
"""The values of labels."""
Conflict: TypeAlias = ClaimConflict | AliasConflict | NameConflict
"""A declaration of a group that conflicts with another group, which has precedence."""


class Prepared(NamedTuple):
    """A table, made ready to be served."""

    before: RoutingIndex
    """The index that it is to replace."""
    view: RoutingIndex
    """Its index."""
    asks_callers: bool
    stale: Sequence[GroupEntry]
    """Groups of the index before that are not in this one."""
    replaced: Sequence[Candidates]
    """Candidates of the index before that are not in this one."""
    come: Sequence[Labels]
    """Values of the labels group, and group and revision, that it adds."""
    gauges: Sequence[tuple[Counter, dict[Labels, Series]]]
    """Gauges about the table, with their series."""
    conflicts: tuple[Conflict, ...]
    """Conflicts that were not there before."""
    points: Mapping[str, GroupPoints]
    """The points of its groups at which features act."""


class Waiter(Protocol):
    """A request that waits for capacity."""

    @property
    def revision(self) -> tuple[str, str]:
        """The group and the revision that it waits for."""

    def try_admit(self, now: float) -> bool:
        """Send the request if a replica has capacity for it. Return True if one has."""

    def time_out(self, now: float) -> None:
        """Refuse the request, which has waited for too long."""


class RouterState:
    """The shared state of a router. Only the event loop's thread changes it."""

    def __init__(
        self,
        pass_paths: frozenset[bytes] = frozenset(),
        features: ProcessFeatures | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Begin with no table.

        Args:
            pass_paths: paths that are served beside those that are listed, by POST.
            features: what the requests of the process share of its features; None for none.
            metrics: of the process, which features count in, too.
        """
        self.pass_paths = pass_paths
        self.features = features or ProcessFeatures()
        self.authorities = Authorities()
        """The rules by which engines that serve TLS are verified."""
        self.untried: set[str] = set()
        """Kinds of keys (Secrets, issuers) that the first table needs and that were not requested yet."""
        self.asks_callers = False
        """True if any group authenticates its callers."""
        self.index: RoutingIndex = build_index(RoutingTable())
        """The index of the table. It is replaced by one assignment; a request uses the one that it began with until its
        end."""
        self.loaded = False
        """True once a table was loaded, even if from the copy on disk."""
        self.draining = False
        self.confirmed = 0.0
        """Time at which the source last confirmed the table, in monotonic seconds."""
        self.metrics = metrics or Metrics()
        self.health = Health()
        self.balancer = Balancer(self.health)
        self.retry_budget = RetryBudget()
        self.admission_queue: AdmissionQueue[Waiter] = AdmissionQueue()
        """Requests that wait for capacity."""
        self.tokens = Tokens()
        self.moves = Moves()
        self.token_bytes = 0
        """Bytes of the answers' tokens that are stored so that another replica could continue the answers."""
        self._stale: list[object] = []
        """Parts of earlier tables that are still to be released."""
        self._left: dict[Labels, float] = {}
        """Labels group and revision, or group alone, that have left the table → when it had them last."""

    @property
    def keys_tried(self) -> bool:
        """True once all keys were requested by which the first table's groups identify their callers."""
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
        """Prepare in steps to serve a table: groups that are the same objects as before are reused.

        The result takes effect only with `install`.
        """
        yield from self.release_steps()
        yield from self._forget_steps(now)
        before = self.index
        view = yield from index_steps(table, before)
        moved = yield from remap_steps(before, view)
        yield from self.balancer.members.prepare(view, now)
        replaced = yield from replaced_steps(before, view)
        stale, gone, come = yield from _label_steps(before, view)
        kinds: set[AccessType] = set()
        for access, _ in view.accesses:
            kinds.add(self.features.access(access).type)
            yield
        metrics = self.metrics
        result: list[tuple[Counter, dict[Labels, float]]] = [
            (metrics.keys_moved, {(group,): share for group, share in moved.items()}),
            (metrics.conflicts, _by_group(view.conflicts)),
            (metrics.alias_conflicts, _by_group(view.alias_conflicts)),
            (metrics.name_conflicts, _by_group(view.name_conflicts)),
        ]
        gauges = []
        for gauge, values in result:
            gauges.append((gauge, (yield from gauge.series_steps(values))))
        reported, conflicts = frozenset(_conflicts(before)), []
        for conflict in _conflicts(view):
            if conflict not in reported:
                conflicts.append(conflict)
            yield
        points = yield from self.features.compose_steps(view)
        asks_callers = bool(kinds - {AccessType.ANONYMOUS})
        for labels in gone:  # no series of theirs is dropped meanwhile, since the table in use has them still
            self._left[labels] = now
            yield
        return Prepared(before, view, asks_callers, stale, replaced, come, gauges, tuple(conflicts), points)

    def install(
        self, table: RoutingTable, source: str, now: float, prepared: Prepared | None = None
    ) -> tuple[Conflict, ...]:
        """Serve this table from now on.

        Args:
            table: the table.
            source: its origin, for the metrics.
            now: monotonic seconds.
            prepared: the result of `prepare` for it, if there is one.

        Returns:
            The conflicts that were not there before.
        """
        if prepared is None or prepared.before is not self.index:
            prepared = at_once(self.prepare(table, now))
        self.balancer.install(prepared.view, now)
        self.index = prepared.view
        self.features.routing.groups = prepared.points
        # in reverse order: an index is released before its parts
        before, parts = prepared.before, prepared.before.parts
        self._stale += prepared.stale
        self._stale += parts.models.values()
        self._stale += (before.names, before.ready, before.draining, parts.labels, parts.oldest_first, parts.models)
        self._stale += (parts.lenders, parts.keepers)
        for candidates in prepared.replaced:
            candidates.validity.ended = True
        self.asks_callers = prepared.asks_callers
        self.loaded = True
        self.confirmed = now
        self.health.keep(_Slots(prepared.view.ready))
        for labels in prepared.come if self._left else ():
            self._left.pop(labels, None)
        self.metrics.table_info.replace({(table.version, source): 1})
        for gauge, series in prepared.gauges:
            self._stale.append(gauge.put(series))
        return prepared.conflicts

    def release_steps(self) -> Generator[None, None, None]:
        """Release the parts of tables that are not in use any more, one group or replica in each step.

        Running requests still reference the parts that they need. Releasing ten thousand groups at once takes 0.1 s.
        """
        yield from self.balancer.members.release_steps()
        while self._stale:
            self._stale.pop()
            yield

    def _forget_steps(self, now: float) -> Generator[None, None, None]:
        """Drop the series of groups and revisions that left the table more than `SERIES_SECONDS` ago."""
        expired = [labels for labels, at in self._left.items() if now - at > SERIES_SECONDS]
        if expired:
            for labels in expired:
                del self._left[labels]
            result = _ExportedLabels(self.index, self._left)
            yield from self.metrics.keep_steps(("group",), result)
            yield from self.metrics.keep_steps(("group", "revision"), result)
        # every time: a request that began with an older table may be counted after its group's series were dropped
        self.features.keep(_ExportedLabels(self.index, self._left))

    def set_epoch(self, epoch: float) -> None:
        """Set the seconds since 1970 at which the monotonic clock was 0, for components that read no clock."""
        self.metrics.epoch = epoch
        self.features.set_epoch(epoch)

    def admit_waiting(self, now: float) -> None:
        """Admit waiting requests that fit, after something has ended."""
        if self.admission_queue:
            self.admission_queue.admit(lambda waiter: waiter.try_admit(now), now)

    def expire_waiting(self, now: float) -> None:
        """Refuse the requests that have waited for too long, and admit others.

        Capacity may be free by now without an event.
        """
        self.features.sweep(now)
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
        yield from self._forget_steps(now)
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
                    count, tokens_held = self.balancer.sessions.of_process(process)
                    # of all ranks together: a slot leaves with all of them
                    slot_sessions[place] = slot_sessions.get(place, 0) + count
                    slot_tokens[place] = slot_tokens.get(place, 0) + tokens_held
                    yield
            yield
        for member_id, load in self.balancer.placed.loads.items():
            parts = member_parts(member_id)
            place = parts.group, parts.revision, str(parts.slot)
            in_flight[place] = in_flight.get(place, 0) + load
        for awaited in chain((waiter.revision for waiter in self.admission_queue), self.features.waiting()):
            if awaited in waiting:
                waiting[awaited] += 1
        metrics = self.metrics
        gauges: list[tuple[Counter, dict[tuple[str, ...], float]]] = [
            (metrics.in_flight, in_flight),
            (metrics.revision_sessions, sessions),
            (metrics.revision_session_tokens, tokens),
            (metrics.revision_waiting, waiting),
            (metrics.slot_sessions, slot_sessions),
            (metrics.slot_session_tokens, slot_tokens),
            (metrics.table_age, {(): now - self.confirmed} if self.loaded else {}),
            (metrics.waiting, {(): len(self.admission_queue)}),
            (metrics.connections, {(): connections}),
            *self.features.gauges(metrics, self.index),
        ]
        for gauge, values in gauges:
            gauge.put((yield from gauge.series_steps(values)))
        return (yield from metrics.text_steps(form))


class _Slots:
    """The ids of slots that can be sent to, by the members there: an engine with ranks has one for each."""

    def __init__(self, ready: Container[MemberId]) -> None:
        self._ready = ready

    def __contains__(self, slot_id: object) -> bool:
        return slot_id in self._ready or f"{slot_id}.0" in self._ready


class _ExportedLabels:
    """The labels whose series are exported: those of the table, and those that have left it recently."""

    def __init__(self, view: RoutingIndex, left: Container[Labels]) -> None:
        self._view, self._left = view, left

    def __contains__(self, labels: object) -> bool:
        if labels in self._left or labels == (UNMATCHED,):
            return True
        if not isinstance(labels, tuple) or not labels:
            return False
        entry = self._view.parts.labels.get(labels[0])
        return entry is not None and (
            len(labels) == 1 or any(revision.short == labels[1] for revision in entry.revisions)
        )


def _label_steps(
    old: RoutingIndex, new: RoutingIndex
) -> Generator[None, None, tuple[list[GroupEntry], list[Labels], list[Labels]]]:
    """Return the groups of an index that a later one lacks, the labels that it lacks, and those that it adds."""
    stale: list[GroupEntry] = []
    gone: list[Labels] = []
    come: list[Labels] = []
    for one, other, result in ((old, new, gone), (new, old, come)):
        for label, entry in one.parts.labels.items():
            there = other.parts.labels.get(label)
            if there is not entry:
                if one is old:
                    stale.append(entry)
                if there is None:
                    result.append((label,))
                shorts = {revision.short for revision in there.revisions} if there is not None else set()
                result += [(label, revision.short) for revision in entry.revisions if revision.short not in shorts]
            yield
    return stale, gone, come


def _conflicts(view: RoutingIndex) -> tuple[Conflict, ...]:
    return view.conflicts + view.alias_conflicts + view.name_conflicts


def _by_group(conflicts: Sequence[Conflict]) -> dict[tuple[str, ...], float]:
    """Return label group → number of its conflicts."""
    result: dict[tuple[str, ...], float] = {}
    for conflict in conflicts:
        result[conflict.group,] = result.get((conflict.group,), 0) + 1
    return result
