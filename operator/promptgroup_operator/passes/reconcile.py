"""One pass for one group: observe, decide, act. Passes are level-triggered: each reads the world, never a change."""

import base64
import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from promptgroup_contract import engine_tls, names
from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_operator.base.errors import ClusterError, EngineError, StoredSpecError, UnreadError, UnreadGroupError
from promptgroup_operator.base.fair_pool import FairPool
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines import tiers
from promptgroup_operator.engines.connections import EngineAccess, Trust
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.engines.pool_monitor import PoolMonitor
from promptgroup_operator.guests.revisions import with_outcomes
from promptgroup_operator.kube.read import ClusterReader, ClusterState
from promptgroup_operator.kube.work_queue import WorkQueue
from promptgroup_operator.kube.write import ClusterWriter
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.load.load_source import LoadSource, ScrapedLoad, load_subject
from promptgroup_operator.load.prometheus import Prometheus
from promptgroup_operator.load.router_history import RELEASE_PERIOD, RouterHistory
from promptgroup_operator.load.router_metrics import RouterCounts
from promptgroup_operator.load.router_scrape import RouterScraper
from promptgroup_operator.passes import lending
from promptgroup_operator.passes.guest_proofs import GuestProofs
from promptgroup_operator.passes.lending import Lending
from promptgroup_operator.passes.pass_writes import FailedWrite, FailedWrites, PassWrites
from promptgroup_operator.passes.refresh_runner import RefreshRunner
from promptgroup_operator.passes.router_grants import RouterGrants
from promptgroup_operator.passes.warmup_runner import WarmupRunner
from promptgroup_operator.plan import desired, plan, router_secrets, status
from promptgroup_operator.plan.plan import Plan
from promptgroup_operator.sizing import recommend
from promptgroup_operator.telemetry.collector import PassSummary, summarize
from promptgroup_operator.telemetry.metrics import REFUSED, OperatorMetrics
from promptgroup_operator.telemetry.pass_spans import PassSpans
from promptgroup_operator.world.effects import ConditionChange
from promptgroup_operator.world.load import PERIOD, GroupLoad
from promptgroup_operator.world.sizing_history import NEW
from promptgroup_operator.world.snapshot import (
    NO_CONTAINER,
    ContainerId,
    Key,
    Manifest,
    Pod,
    PoolAnswers,
    Problem,
    PromptText,
    Reading,
    RevisionState,
    SeenPools,
    Spent,
    World,
)
from promptgroup_operator.world.warming import Outcome, Refresh, WarmReason, Warmup

logger = logging.getLogger(__name__)

READERS = 16
"""Engines and routers that are read at the same time."""
UNWRITTEN = Problem(status.FAILED, "an object could not be written")
"""Problem of a plan that cannot be performed, where there are no words for it."""
SWEEP = timedelta(seconds=15)
"""Time between two looks at all that is remembered of engines and routers, for what is too old."""
READ_SECONDS = 10.0
"""Time for all engines of a group; one that answers later counts as not read, and the pass goes on without it."""
READ_WARM_SECONDS = 1.0
"""The same while a replica that has just become warm waits for its slot."""
JUST_WARM = timedelta(seconds=30)
"""Time for which a replica without a slot counts as one that has just become warm."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything that a pass read, before any of it is remembered."""

    state: ClusterState
    text: PromptText | Problem
    engines: Mapping[ContainerId, tuple[Fingerprint, Reading]]
    """Container of an engine → the fingerprint of its revision, and its counters."""
    routers: Mapping[ContainerId, Mapping[Key, RouterCounts]]
    """Container of a router → its counters for each group."""
    name_collisions: Mapping[tuple[str, str], Manifest]
    """Objects that have the names which the group's objects shall have, and that are not labelled as the group's."""
    peers_key: bool
    """True if the Secret exists by which the namespace's routers know each other."""
    pool: PoolAnswers | None
    """Answers of the servers of the group's KV pool; None where nobody looks."""

    @property
    def released(self) -> bool:
        """True while more than one revision has replicas."""
        return _released(self.state)

    @property
    def containers(self) -> list[ContainerId]:
        """Containers of all engines of the group."""
        return [pod.container_id for revision in self.state.revisions for pod in revision.pods if pod.container_id]


def _released(state: ClusterState) -> bool:
    return sum(revision.alive > 0 for revision in state.revisions) > 1


def _is_awaited(state: ClusterState, now: datetime) -> bool:
    """Return True if a replica that has just become warm has no slot yet."""
    return any(
        pod.is_warm and pod.slot is None and pod.warm.since is not None and now - pod.warm.since < JUST_WARM
        for revision in state.revisions
        for pod in revision.pods
        if pod.warm is not None
    )


def _may_borrow(state: ClusterState) -> bool:
    """Return True if it matters to a group what others of its pool have: it is sized, or has no replicas of its own."""
    return state.group.spec.sizing is not None or state.group.spec.replicas == 0


def _shrinks(state: ClusterState) -> bool:
    """Return True if a group with a fixed number of replicas has more than that."""
    spec = state.group.spec
    return spec.sizing is None and sum(revision.alive for revision in state.revisions) > recommend.least(spec)


class Reconciler:
    """Runs passes. Its memories may be lost: the next process begins with none."""

    def __init__(
        self,
        reader: ClusterReader,
        writer: ClusterWriter,
        engines: GroupEngines,
        *,
        queue: WorkQueue,
        settings: Settings,
        metrics: OperatorMetrics,
        spans: PassSpans,
    ) -> None:
        self._spans = spans
        self._reader = reader
        self._writer = writer
        self._engines = engines
        self._queue = queue
        self._engine_history = EngineHistory()
        self._router_history = RouterHistory()
        self._prometheus = Prometheus(settings, self._engine_history) if settings.prometheus_url else None
        self._source: LoadSource = self._prometheus or ScrapedLoad(self._engine_history, self._router_history)
        self._readers = FairPool(READERS, "read")
        self._pools = PoolMonitor(engines.plain.text, self._readers)
        self._warmups = WarmupRunner(engines, settings.warmups, self._report_warmup, self._spend)
        self._refreshes = RefreshRunner(
            engines, self._report_refresh, self._spend, metrics.refreshes, self._engine_history.own_queries
        )
        self._guest_proofs = GuestProofs()
        self._router_scraper = RouterScraper(
            reader.list_routers,
            lambda address, limit: engines.plain.text(address, limit=limit),
            reader.has_group,
            settings.router_namespaces,
            self._readers,
        )
        self._grants = RouterGrants(
            lambda key, name: reader.get_cached(key, router_secrets.KIND, name, seconds=0), reader.routes, writer
        )
        self._observes_all = settings.observe == "all"
        self._refresh_every = timedelta(seconds=settings.refresh_seconds)
        self._lending = Lending()
        self._pool_refusals: dict[Key, Problem] = {}
        self._failed_writes = FailedWrites()
        self._first_seen: dict[Key, datetime] = {}
        self._swept = datetime.min.replace(tzinfo=UTC)
        self._unsaid: dict[Key, dict[ContainerId, tuple[ConditionChange, bool]]] = {}
        """Warm-ups whose outcome could not be written on their pod yet."""
        self._summaries: dict[Key, PassSummary] = {}
        self._warmup_outcomes = metrics.warmups
        self._pass_failures = metrics.pass_failures.labels(REFUSED)

    def close(self) -> None:
        """Stop warm-ups, refreshes and readings."""
        self._warmups.close()
        self._refreshes.close()
        if self._prometheus is not None:
            self._prometheus.close()
        self._readers.close()

    def summaries(self) -> dict[Key, PassSummary]:
        """Return what the latest pass over each group found."""
        return self._summaries.copy()

    def run(self, key: Key, now: datetime) -> timedelta | None:
        """Run one pass: observe, decide, act.

        Returns:
            When the next pass is due; None if the group is gone.

        Raises:
            ClusterError: the API server is away, or an object changed since it was seen; the pass must be retried.
        """
        try:
            with self._spans.step("observe"):
                world = self.observe(key, now)
        except StoredSpecError as error:
            return self._report_stored_spec(key, error, now)
        if world is None:
            self._warmups.want(key, (), now)
            self._lending.forget(key)
            self._grants.forget(key)
            self._pool_refusals.pop(key, None)
            self._failed_writes.forget(key)
            self._unsaid.pop(key, None)
            self._guest_proofs.forget(key)
            self._first_seen.pop(key, None)
            self._engines.authorize(key, {})
            self._summaries.pop(key, None)
            return None  # deleted; owner references clean up
        with self._spans.step("decide"):
            todo = plan.decide(world, now)
        with self._spans.step("act"):
            todo = self.act(world, todo, now)
        self._conclude(world, todo, now)
        return todo.requeue_after

    def _conclude(self, world: World, todo: Plan, now: datetime) -> None:
        """Keep what this pass decided for the next one, and for the metrics."""
        key = world.group.key
        if todo.size is None:
            self._summaries.pop(key, None)
        else:
            self._summaries[key] = summarize(todo.size, world, self._summaries.get(key), now)

    def _report_stored_spec(self, key: Key, error: StoredSpecError, now: datetime) -> timedelta:
        """Write into the status what cannot be read of the group; all that serves is left as it is."""
        lasts = not isinstance(error, UnreadGroupError)
        words = str(error)
        unreadable = (
            status.unreadable(error.status, error.generation, words, now)
            if lasts
            else status.unread(error.status, words, now)
        )
        if unreadable != error.status:
            logger.warning("%s/%s: the group cannot be read: %s", key.namespace, key.name, words)
            self._writer.write_status(key, unreadable)
        return plan.SETTLED if lasts else plan.WAITING

    # --- observe -------------------------------------------------------------------------------------------

    def observe(self, key: Key, now: datetime) -> World | None:
        """Return a snapshot of the group's world; None if the group is gone.

        Raises:
            ClusterError: the API server did not answer or refused.
        """
        readings = self.read(key, now)
        if readings is None:
            return None
        self.remember(readings, now)
        world = self.snapshot(readings, now)
        target = world.prompt.fingerprint if isinstance(world.prompt, PromptText) else Fingerprint("")
        self._lending.put(world.group, lending.member(world.group, world.revisions, target, world.load), now)
        return world

    def read(self, key: Key, now: datetime) -> Readings | None:
        """Read the cluster, the engines and the routers; None if the group is gone."""
        state = self._reader.observe(key)
        if state is None:
            return None
        if state.host is not None:
            host = state.host
            outcomes = self._guest_proofs.of(key, {pod.container_id for pod in (*host.pods, *host.leaving)})
            state = replace(state, revisions=with_outcomes(state.revisions, outcomes, host.leaving))
        self._engines.authorize(key, self._accesses(state))
        return Readings(
            state=state,
            text=state.prompt,
            engines=self._read_engines(state, now),
            routers=self._read_routers(state, now),
            name_collisions=self._name_collisions(state),
            peers_key=self._has_peers_key(key),
            pool=self._ask_pool(state),
        )

    def _has_peers_key(self, key: Key) -> bool:
        try:
            return self._reader.get_cached(key, "Secret", names.SECRET_PEERS) is not None
        except UnreadError:
            return True

    def remember(self, readings: Readings, now: datetime) -> None:
        """Add what was read to the memories, and drop what is too old. Does no I/O; nothing else changes them."""
        state, key = readings.state, readings.state.group.key
        self._first_seen.setdefault(key, now)
        self._engine_history.begin(now)
        for container, (fingerprint, reading) in readings.engines.items():
            self._engine_history.add(container, reading, now, (key, fingerprint))
        for router, counts in readings.routers.items():
            self._router_history.add(router, counts, now)
        if readings.released:
            self._router_history.begin(key, _step(state.revisions))
        for pod in (pod for revision in state.revisions for pod in revision.pods):
            if pod.container_id in readings.engines:
                self._refreshes.record(pod, readings.engines[pod.container_id][1], now)
            elif state.host is not None and pod.is_warm:  # the host's passes read its engines
                latest = self._engine_history.latest(pod.container_id)
                if latest is not None:
                    self._refreshes.record(pod, latest, now)
        if now - self._swept >= SWEEP:  # of all groups: once for many passes
            self._swept = now
            for memory in (self._engine_history, self._router_history, self._refreshes):
                memory.forget(now)

    def snapshot(self, readings: Readings, now: datetime) -> World:
        """Return the world that a pass decides on: what was read now, and what the memories say. Changes neither."""
        state, key = readings.state, readings.state.group.key
        found_tokens = self._engine_history.found(readings.containers)
        hit_rate, tier_hit_rate = found_tokens.rates
        return World(
            group=state.group,
            prompt=readings.text,
            revisions=tuple(
                self._with_readings(key, revision, readings.engines, now, shared=state.host is not None)
                for revision in state.revisions
            ),
            siblings=state.siblings,
            others=state.others,
            live={**state.live, **readings.name_collisions},
            traffic=self._router_history.traffic(key, now) if readings.released else None,
            load=self._load(state, now),
            pool=self._lending.others(state.group, now) if _may_borrow(state) else (),
            hit_rate=hit_rate,
            tier_hit_rate=tier_hit_rate,
            tier_hit_rates=found_tokens.rates_by_source,
            pool_answers=readings.pool,
            unread=self._reader.problem(key),
            first_seen=self._first_seen.get(key),
            peers_key=readings.peers_key,
            refresh_every=self._refresh_every,
            inference_pools=self._with_refusal(key, state.inference_pools),
            host=state.host,
            prompts=state.prompts,
            guests_routed=state.guests_routed,
            sizing=self._summaries[key].size.history if key in self._summaries else NEW,
        )

    def _with_refusal(self, key: Key, pools: SeenPools) -> SeenPools:
        return replace(pools, problem=pools.problem or self._pool_refusals.get(key))

    def _accesses(self, state: ClusterState) -> dict[ContainerId, EngineAccess]:
        """Return container of an engine that runs → what it asks for, which may be another than the spec says by now.

        A pod that ends keeps its address in its status, while the cluster may give the address to another pod.
        """
        pods = (pod for revision in state.revisions for pod in revision.pods)
        return {
            pod.container_id: self._access(state.group.key, pod)
            for pod in pods
            if pod.container_id != NO_CONTAINER and not pod.deleting
        }

    def _access(self, key: Key, pod: Pod) -> EngineAccess:
        secret, _, secret_key = pod.credential.partition("/")
        data = self._values(key, "Secret", secret) if pod.credential else {}
        credential = data.get(secret_key, "").strip()
        if not pod.tls:
            return EngineAccess(credential)
        tls = engine_tls.parse(pod.tls)
        bundles = self._values(key, tls.kind, tls.name) if tls is not None else {}
        # what is not known is not trusted
        trust = Trust(bundles.get(tls.key, ""), tls.server_name) if tls is not None else Trust("", "")
        return EngineAccess(credential, trust)

    def _values(self, key: Key, kind: str, name: str) -> Mapping[str, str]:
        try:
            return self._reader.values(key, kind, name) or {}
        except UnreadError:
            return {}

    def _read_engines(self, state: ClusterState, now: datetime) -> dict[ContainerId, tuple[Fingerprint, Reading]]:
        """Read the engines that drain or whose counters are due; the host's passes read those of a guest."""
        if state.host is not None:
            return {}
        due = [
            pod
            for revision in state.revisions
            for pod in revision.pods
            if pod.is_warm
            and not self._refreshes.runs(pod.container_id)
            and (pod.draining_since is not None or self._engine_history.due(pod.container_id, now))
        ]
        dialect = DIALECTS[state.group.spec.engine.type]
        key = state.group.key
        seconds = READ_WARM_SECONDS if _is_awaited(state, now) else READ_SECONDS
        result = self._readers.map(key.namespace, lambda pod: self._reading(key, pod, dialect), due, seconds)
        return {
            pod.container_id: (pod.fingerprint, reading)
            for pod, reading in zip(due, result, strict=True)
            if reading is not None
        }

    def _ask_pool(self, state: ClusterState) -> PoolAnswers | None:
        cache = state.group.spec.cache
        if state.host is not None or cache is None or cache.pool is None or cache.pool.monitor is None:
            return None
        return self._pools.ask(cache.pool, state.group.key.namespace)

    def _reading(self, key: Key, pod: Pod, dialect: Dialect) -> Reading | None:
        try:
            return self._engines.of(key, pod.container_id).read(pod.address, dialect)
        except EngineError as error:
            logger.debug("pod %s: %s", pod.name, error)
            return None

    def _read_routers(self, state: ClusterState, now: datetime) -> dict[ContainerId, Mapping[Key, RouterCounts]]:
        """Read the routers that are due, while a release, the choice of what leaves or the load needs their figures."""
        often = _released(state) or _shrinks(state)
        if not often and not self._observes(state):
            return {}
        return self._router_scraper.read(state.group.key.namespace, now, RELEASE_PERIOD if often else PERIOD)

    def _name_collisions(self, state: ClusterState) -> dict[tuple[str, str], Manifest]:
        """Read the objects that have the names which the target's objects shall have, without the group's label.

        Its Deployment is observed with those of all revisions.
        """
        text = state.prompt
        if not isinstance(text, PromptText):
            return {}
        name = desired.name(state.group, text.fingerprint)
        result = {}
        budget = () if state.host is not None else ("PodDisruptionBudget",)
        for kind in (*budget, "Secret" if text.secret else "ConfigMap"):
            if (kind, name) not in state.live:
                # what cannot be read is applied without force, which takes nothing over
                raw = self._reader.if_known(state.group.key, kind, name, seconds=0)
                if raw is not None:
                    result[kind, name] = raw
        return result

    def _load(self, state: ClusterState, now: datetime) -> GroupLoad | None:
        """Return the load of the revision with most of the traffic; None where none is wanted or ready."""
        if not self._observes(state):
            return None
        serving = max(state.revisions, key=lambda revision: (revision.weight, revision.ready), default=None)
        if serving is None or not serving.ready:
            return None
        metric_names = DIALECTS[state.group.spec.engine.type].metrics
        subject = replace(load_subject(state.group.key, serving, metric_names), guests=state.guests)
        load = self._source.load(subject, now)
        if load.engines is not None:
            load = replace(load, engines=replace(load.engines, ranks=subject.ranks))
        return replace(load, tiers=tiers.reach(state.group.spec))

    def _observes(self, state: ClusterState) -> bool:
        return state.host is None and (self._observes_all or state.group.spec.sizing is not None)

    def _with_readings(
        self,
        key: Key,
        revision: RevisionState,
        readings: Mapping[ContainerId, tuple[Fingerprint, Reading]],
        now: datetime,
        *,
        shared: bool,
    ) -> RevisionState:
        """Return a revision with what is known of its engines; what `shared` ones work on is also others'."""

        def with_reading(pod: Pod) -> Pod:
            reading = readings[pod.container_id][1] if pod.container_id in readings else None
            busy = reading.busy if reading is not None else None
            seen = self._refreshes.last_seen(pod.container_id, pod.fingerprint)
            return replace(pod, in_flight=busy, last_seen=seen)

        pods = tuple(with_reading(pod) for pod in revision.pods)
        quiet = self._engine_history.quiet_since(pod.container_id for pod in pods) if not shared else None
        use = self._router_history.slot_use(key, short(revision.fingerprint), now)
        return replace(revision, pods=pods, quiet_since=quiet, use=use)

    # --- act -----------------------------------------------------------------------------------------------

    def act(self, world: World, todo: Plan, now: datetime) -> Plan:
        """Perform the plan's effects in order. A write that fails ends no other one; the status says what is unwritten.

        Returns:
            The plan that was performed: one that serves on with what stands, where a Deployment cannot be written.

        Raises:
            ClusterError: the API server is away, or an object changed since it was seen; the next pass begins from
                what was written.
        """
        key = world.group.key
        writes = self._failed_writes.begin(key, _texts(world), lambda: self._reader.is_away(key))
        try:
            performed = self._perform(world, todo, writes, now)
        finally:
            self._failed_writes.end(key, writes)
        if writes.tried or world.unread is not None:
            self._pass_failures.inc()
            self._spans.failed(REFUSED)
        return replace(performed, requeue_after=min(todo.requeue_after, writes.due(), self._reader.cache.due(key)))

    def _perform(self, world: World, todo: Plan, writes: PassWrites, now: datetime) -> Plan:
        key = world.group.key
        space = key.namespace
        changes = {change.uid: change for change in todo.conditions}
        self._close_gates(space, todo, changes, writes, now)
        if not self._apply_objects(world, todo, writes):
            # what is refused may be so for days: the replicas that come and go meanwhile are looked after as ever
            todo = plan.with_failed_writes(world, writes.problem() or UNWRITTEN, now)
            self._close_gates(space, todo, changes, writes, now)
            self._apply_objects(world, todo, writes, all_of_them=True)
        for mark in todo.pod_updates:
            with_mark = changes.get(mark.uid)
            write = partial(self._writer.update_pod, space, mark, with_mark, now)
            writes.attempt(f"Pod {mark.pod}", (mark, with_mark), write)
        routes = [item for item in (todo.route, world.live.get(("PromptRoute", key.name))) if item is not None]
        writes.attempt("Role", None, lambda: self._grants.put(key, routes))
        if todo.route is not None and plan.route_unwritten(world, todo):
            self._apply(world, todo.route, writes)
        pending = self._say_unsaid(world, writes, now)
        self._warmups.want(key, [job for job in todo.warmups if job.container_id not in pending], now)
        self._refreshes.start(key, todo.refreshes)
        for deletion in todo.deletions:  # after all that serving needs: a policy may refuse one for ever
            subject = f"{deletion.kind} {deletion.name}"
            writes.attempt(subject, deletion, partial(self._writer.delete, space, deletion))
        if todo.peers_key:
            self._create_peers_key(space)
        self._apply_pool(world, todo, writes)
        problem = writes.problem()
        result = plan.with_failed_writes(world, problem, now) if problem is not None else todo
        self._write_status(world, result, writes, now)
        return todo

    def _close_gates(
        self, namespace: str, todo: Plan, changes: dict[str, ConditionChange], writes: PassWrites, now: datetime
    ) -> None:
        """Write the changes of conditions that come with no update of their pod, and take them out of `changes`."""
        updated = {mark.uid for mark in todo.pod_updates}
        for change in [
            condition_change for condition_change in changes.values() if condition_change.uid not in updated
        ]:
            write = partial(self._writer.set_condition, namespace, change, warm=change.outcome.warm, now=now)
            writes.attempt(f"Pod {change.pod}", change, write)
            del changes[change.uid]

    def _apply(self, world: World, manifest: Manifest, writes: PassWrites) -> FailedWrite | None:
        subject = f"{manifest['kind']} {manifest['metadata']['name']}"
        return writes.attempt(subject, manifest, partial(self._writer.apply, manifest, plan.live(world, manifest)))

    def _apply_objects(self, world: World, todo: Plan, writes: PassWrites, *, all_of_them: bool = False) -> bool:
        """Apply the objects that differ. Return False at the first Deployment that cannot be written.

        What failed before comes first, so that no other object follows a plan that is not performed. With `all_of_them`
        the others are applied as well, but for those of a Deployment that does not exist, which is the record of them.
        """

        def failed_before(manifest: Manifest) -> bool:
            return writes.failed_before(f"{manifest['kind']} {manifest['metadata']['name']}")

        whole, missing = True, set()
        for manifest in sorted(plan.unwritten(world, todo), key=failed_before, reverse=True):
            name = manifest["metadata"]["name"]
            if name in missing or self._apply(world, manifest, writes) is None or manifest["kind"] != "Deployment":
                continue
            if not all_of_them:
                return False
            whole = False
            if plan.live(world, manifest) is None:
                missing.add(name)
        return whole

    def _say_unsaid(self, world: World, writes: PassWrites, now: datetime) -> set[ContainerId]:
        """Write the outcomes that warm-ups could not write, and return the containers of which that still fails."""
        key = world.group.key
        running = {pod.container_id for revision in world.revisions for pod in revision.pods}
        left = set()
        for container, (change, warm) in list(self._unsaid.get(key, {}).items()):
            say = partial(self._writer.set_condition, key.namespace, change, warm=warm, now=now, container=container)
            if container in running and writes.attempt(f"Pod {change.pod}", change, say) is not None:
                left.add(container)
            else:
                self._unsaid[key].pop(container, None)
        return left

    def _apply_pool(self, world: World, todo: Plan, writes: PassWrites) -> None:
        """Write the InferencePool; routers serve without it, so that a refusal is a condition of its own."""
        key = world.group.key
        refused = None
        if todo.pool is not None and plan.pool_unwritten(world, todo):
            failed = self._apply(world, todo.pool, writes)
            if failed is not None and failed.error.is_refusal:
                writes.forgive(failed)
                refused = Problem("PoolRefused", f"InferencePool {key.name}: {failed.words}")
        if (refused is None) == (key not in self._pool_refusals):
            return
        self._pool_refusals.pop(key, None)
        self._pool_refusals |= {key: refused} if refused is not None else {}
        self._queue.add(key)  # whose condition says it

    def _create_peers_key(self, namespace: str) -> None:
        """Create the key by which the namespace's routers know each other; traffic flows without it."""
        try:
            self._writer.create(desired.peers_secret(namespace, secrets.token_bytes(desired.PEERS_KEY_BYTES)))
        except ClusterError as error:
            logger.warning("%s: Secret %s cannot be created: %s", namespace, names.SECRET_PEERS, error)

    def _write_status(self, world: World, todo: Plan, writes: PassWrites, now: datetime) -> None:
        if todo.status is None or todo.status == world.group.status:
            return
        key, wanted = world.group.key, todo.status
        # its times differ with every pass while it is not written
        writes.attempt(f"PromptGroup {key.name}", None, lambda: self._writer.write_status(key, wanted))
        for event in todo.events:
            try:
                self._writer.emit_event(world.group, event, now)
            except ClusterError as error:
                # The status says the same, and a namespace that is being deleted takes no more events.
                logger.info("%s/%s: event %s: %s", key.namespace, key.name, event.reason, error)

    def _spend(self, container: ContainerId, spent: Spent) -> None:
        self._engine_history.spend(container, spent, datetime.now(UTC))

    def _report_warmup(self, key: Key, job: Warmup, outcome: Outcome) -> None:
        """Write the outcome of a warm-up on its pod, and queue a pass of the group."""
        serves = outcome.warm or outcome.reason is WarmReason.PROCEEDED
        self._unsaid.get(key, {}).pop(job.container_id, None)
        self._warmup_outcomes.labels(outcome.reason).inc()
        logger.info("pod %s/%s: %s: %s", key.namespace, job.pod, outcome.reason, outcome.message)
        if job.shared:
            result = job.container_id, job.prompt.fingerprint
            self._guest_proofs.put(key, *result, outcome, serves=serves, now=datetime.now(UTC))
            self._queue.add(key, ahead=True)
            return
        change = ConditionChange(job.pod, job.uid, outcome)
        container = job.container_id if serves else NO_CONTAINER
        try:
            self._writer.set_condition(key.namespace, change, warm=serves, now=datetime.now(UTC), container=container)
        except ClusterError as error:
            logger.warning("pod %s/%s: %s", key.namespace, job.pod, error)
            if serves:  # it is the next pass's to write; a warm-up that failed is repeated
                self._unsaid.setdefault(key, {})[job.container_id] = change, serves
        self._queue.add(key, ahead=True)  # all that this replica lacks is its slot

    def _report_refresh(self, key: Key, refresh: Refresh, outcome: Outcome) -> None:
        """Write the outcome of a refresh into the pod's condition, which stays True, and queue a pass of the group."""
        logger.info("pod %s/%s: %s: %s", key.namespace, refresh.pod, outcome.reason, outcome.message)
        if refresh.shared:
            result = refresh.container_id, refresh.fingerprint
            since = refresh.said.since or datetime.now(UTC)
            self._guest_proofs.put(key, *result, outcome, serves=True, now=since)
            self._queue.add(key)
            return
        change = ConditionChange(refresh.pod, refresh.uid, outcome)
        try:
            self._writer.set_condition(key.namespace, change, warm=True, now=refresh.said.since or datetime.now(UTC))
        except ClusterError as error:
            logger.warning("pod %s/%s: %s", key.namespace, refresh.pod, error)
        self._queue.add(key)


def _texts(world: World) -> list[str]:
    """Return the prompts that no message may quote, also as a Secret holds them."""
    prompts = [revision.prompt for revision in world.revisions if revision.prompt is not None]
    prompts += [world.prompt.prompt] if isinstance(world.prompt, PromptText) else []
    parts = dict.fromkeys(part for prompt in prompts for part in (prompt.system, prompt.tools, prompt.messages) if part)
    return [*parts, *(base64.b64encode(part.encode()).decode() for part in parts)]


def _step(revisions: Iterable[RevisionState]) -> list[tuple[Fingerprint, int, bool]]:
    """Return what identifies the step of a release: samples begin anew when it changes."""
    return sorted(
        (revision.fingerprint, revision.progress.weight, revision.progress.since is not None)
        for revision in revisions
        if revision.progress is not None
    )
