"""One pass for one group: observe, decide, act. Level-triggered: a pass reads the world, never a difference."""

import logging
import secrets
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from promptgroup_operator.base.errors import ClusterError, EngineError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.dialect import DIALECTS, Dialect
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.kube.cluster import Cluster, ClusterState
from promptgroup_operator.kube.work_queue import WorkQueue
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.load.load_source import LoadSource, ScrapedLoad, load_subject
from promptgroup_operator.load.prometheus import Prometheus
from promptgroup_operator.load.router_history import RELEASE_PERIOD, RouterHistory
from promptgroup_operator.load.router_scrape import RouterScraper
from promptgroup_operator.passes import lending
from promptgroup_operator.passes.lending import Lending
from promptgroup_operator.passes.refresh_runner import RefreshRunner
from promptgroup_operator.passes.warmup_runner import WarmupRunner
from promptgroup_operator.plan import desired, plan, prompt
from promptgroup_operator.plan.plan import Plan
from promptgroup_operator.telemetry.collector import PassSummary, summarize
from promptgroup_operator.telemetry.metrics import OperatorMetrics
from promptgroup_operator.world.effects import ConditionChange
from promptgroup_operator.world.load import PERIOD, GroupLoad
from promptgroup_operator.world.samples import Traffic
from promptgroup_operator.world.sizing_history import NEW
from promptgroup_operator.world.snapshot import (
    Key,
    Manifest,
    Pod,
    Problem,
    PromptText,
    Reading,
    RevisionState,
    Spent,
    World,
)
from promptgroup_operator.world.warming import Outcome, Refresh, WarmReason, Warmup
from promptgroup_router.contract import names

logger = logging.getLogger(__name__)

REFUSED = frozenset({400, 403, 422})
"""Statuses of a request that trying again does not mend."""
READERS = 16
"""Engines read at the same time."""


class Reconciler:
    """Runs passes. Holds nothing that the next process would miss."""

    def __init__(
        self,
        cluster: Cluster,
        engines: EngineClient,
        queue: WorkQueue,
        settings: Settings,
        metrics: OperatorMetrics,
    ) -> None:
        self._cluster = cluster
        self._engines = engines
        self._queue = queue
        self._engine_history = EngineHistory()
        self._router_history = RouterHistory()
        self._prometheus = Prometheus(settings, self._engine_history) if settings.prometheus_url else None
        self._source: LoadSource = self._prometheus or ScrapedLoad(self._engine_history, self._router_history)
        self._router_namespaces = settings.router_namespaces
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        self._warmups = WarmupRunner(engines, settings.warmups, self._report, self._spend)
        self._refreshes = RefreshRunner(engines, self._report_refresh, self._spend, metrics.touches)
        self._router_scraper = RouterScraper(cluster.list_routers, engines.text, self._router_history, self._readers)
        self._touch_every = timedelta(seconds=settings.touch_seconds)
        self._lending = Lending()
        self._summaries: dict[Key, PassSummary] = {}
        self._warmup_outcomes = metrics.warmups

    def close(self) -> None:
        """Stop warm-ups, touches and readings."""
        self._warmups.close()
        self._refreshes.close()
        if self._prometheus is not None:
            self._prometheus.close()
        self._readers.shutdown(wait=False, cancel_futures=True)

    def summaries(self) -> dict[Key, PassSummary]:
        """What the latest pass over each group found."""
        return self._summaries.copy()

    def run(self, key: Key, now: datetime) -> timedelta | None:
        """One pass: observe, decide, act. Returns when to look again, None when the group is gone.

        Raises:
            ClusterError: the API server could not be asked or refused; the pass is to be tried again.
        """
        world = self.observe(key, now)
        if world is None:
            self._warmups.want(key, (), now)
            self._lending.forget(key)
            self._summaries.pop(key, None)
            return None  # deleted; owner references clean up
        todo = plan.decide(world, now)
        try:
            self.act(world, todo, now)
            self._remember(world, todo, now)
        except ClusterError as error:
            if error.status in REFUSED:
                self._report_refusal(world, error, now)
            raise
        return todo.requeue_after

    def _remember(self, world: World, todo: Plan, now: datetime) -> None:
        """For the next pass, and for who asks what this one found."""
        key = world.group.key
        if todo.size is None:
            self._summaries.pop(key, None)
        else:
            self._summaries[key] = summarize(todo.size, world.hit_rate, world.load, self._summaries.get(key), now)

    def _report_refusal(self, world: World, error: ClusterError, now: datetime) -> None:
        """The API server does not take an object (a template it finds invalid, an admission policy): say so."""
        told = plan.decide(replace(world, prompt=Problem("ObjectRefused", str(error))), now)
        self._write_status(world, told, now)

    # --- observe -------------------------------------------------------------------------------------------

    def observe(self, key: Key, now: datetime) -> World | None:
        """A snapshot of the group's world; None when the group is gone."""
        seen = self._cluster.observe(key)
        if seen is None:
            return None
        text = prompt.resolve(seen.group.spec.prompt, seen.values)
        dialect = DIALECTS[seen.group.spec.engine.type]
        traffic = self._router_traffic(seen, now)
        readings = self._read(key, seen.revisions, dialect, now)
        self._engine_history.forget(now)
        self._refreshes.forget(now)
        containers = [pod.container_id for each in seen.revisions for pod in each.pods if pod.container_id]
        load = self._load(seen, dialect, now)
        target = text.fingerprint if isinstance(text, PromptText) else ""
        return World(
            group=seen.group,
            prompt=text,
            revisions=tuple(self._with_readings(each, readings, now) for each in seen.revisions),
            siblings=seen.siblings,
            live={**seen.live, **self._name_collisions(seen, text)},
            traffic=traffic,
            load=load,
            pool=self._lending.others(seen.group, lending.member(seen.group, seen.revisions, target, load), now),
            hit_rate=self._engine_history.rate(containers),
            peers_key=self._cluster.get_cached(key, "Secret", names.SECRET_PEERS) is not None,
            refresh_every=self._touch_every,
            sizing=self._summaries[key].size.history if key in self._summaries else NEW,
        )

    def _router_traffic(self, seen: ClusterState, now: datetime) -> Traffic | None:
        """What the routers counted, while more than one revision has replicas."""
        key = seen.group.key
        self._router_history.forget(now)
        released = sum(each.alive > 0 for each in seen.revisions) > 1
        if released or seen.group.spec.sizing is not None:
            period = RELEASE_PERIOD if released else PERIOD
            self._router_scraper.read({key.namespace, *self._router_namespaces}, now, period)
        if not released:
            return None
        step = sorted(
            (each.fingerprint, each.progress.step, each.progress.since is not None)
            for each in seen.revisions
            if each.progress is not None
        )
        self._router_history.begin(key, step)
        return self._router_history.traffic(key, now)

    def _load(self, seen: ClusterState, dialect: Dialect, now: datetime) -> GroupLoad | None:
        """Of the revision that has most of the traffic; None before there is one, and where nobody asks for it."""
        if seen.group.spec.sizing is None:
            return None
        serving = max(seen.revisions, key=lambda each: (each.weight, each.ready), default=None)
        if serving is None or not serving.ready:
            return None
        return self._source.load(load_subject(seen.group.key, serving, dialect.metrics), now)

    def _name_collisions(self, seen: ClusterState, text: object) -> dict[tuple[str, str], Manifest]:
        """Objects under the names that the target wants, which do not carry the group's label."""
        if not isinstance(text, PromptText):
            return {}
        name = desired.name(seen.group, text.fingerprint)
        found = {}
        for kind in ("Deployment", "PodDisruptionBudget", "Secret" if text.secret else "ConfigMap"):
            if (kind, name) not in seen.live:
                raw = self._cluster.get_cached(seen.group.key, kind, name, seconds=0)
                if raw is not None:
                    found[kind, name] = raw
        return found

    def _read(
        self, key: Key, revisions: Iterable[RevisionState], dialect: Dialect, now: datetime
    ) -> dict[str, Reading]:
        """Container → reading, for engines that drain or whose counters are due."""
        due = [
            pod
            for revision in revisions
            for pod in revision.pods
            if pod.is_warm
            and not self._refreshes.runs(pod.container_id)
            and (pod.draining_since is not None or self._engine_history.due(pod.container_id, now))
        ]
        readings = {}
        for pod, reading in zip(due, self._readers.map(lambda pod: self._reading(pod, dialect), due), strict=True):
            if reading is not None:
                self._engine_history.add(pod.container_id, reading, now, (key, pod.fingerprint))
                readings[pod.container_id] = reading
        return readings

    def _reading(self, pod: Pod, dialect: Dialect) -> Reading | None:
        try:
            return self._engines.read(pod.address, dialect)
        except EngineError as error:
            logger.debug("pod %s: %s", pod.name, error)
            return None

    def _with_readings(self, revision: RevisionState, readings: Mapping[str, Reading], now: datetime) -> RevisionState:
        pods = tuple(self._with_reading(pod, readings.get(pod.container_id), now) for pod in revision.pods)
        quiet = self._engine_history.quiet_since(pod.container_id for pod in pods)
        return replace(revision, pods=pods, quiet_since=quiet)

    def _with_reading(self, pod: Pod, reading: Reading | None, now: datetime) -> Pod:
        busy = reading.busy if reading is not None else None
        return replace(pod, in_flight=busy, last_seen=self._refreshes.read(pod, reading, now))

    # --- act -----------------------------------------------------------------------------------------------

    def act(self, world: World, todo: Plan, now: datetime) -> None:
        """Perform the plan's effects in order; an error ends the pass, and the next one begins from what stands."""
        key = world.group.key
        changes = {change.uid: change for change in todo.conditions}
        with_mark = {mark.uid: changes.pop(mark.uid, None) for mark in todo.pod_updates}
        for change in changes.values():
            self._cluster.set_condition(key.namespace, change, warm=change.outcome.warm, now=now)
        for manifest in plan.unwritten(world, todo):
            self._cluster.apply(manifest, plan.live(world, manifest))
        for mark in todo.pod_updates:
            self._cluster.update_pod(key.namespace, mark, with_mark[mark.uid], now)
        if todo.route is not None and plan.route_unwritten(world, todo):
            self._cluster.apply(todo.route, plan.live(world, todo.route))
        for deletion in todo.deletions:
            self._cluster.delete(key.namespace, deletion)
        self._warmups.want(key, todo.warmups, now)
        self._refreshes.start(key, todo.refreshes)
        if todo.peers_key:
            self._create_peers_key(key.namespace)
        self._write_status(world, todo, now)

    def _create_peers_key(self, namespace: str) -> None:
        """Give the namespace's routers their key. Traffic does without it, so a refusal ends no pass."""
        try:
            self._cluster.create(desired.peers_secret(namespace, secrets.token_bytes(desired.PEERS_KEY_BYTES)))
        except ClusterError as error:
            logger.warning("%s: the routers get no key to know each other by: %s", namespace, error)

    def _write_status(self, world: World, todo: Plan, now: datetime) -> None:
        if todo.status is not None and todo.status != world.group.status:
            key = world.group.key
            self._cluster.write_status(key, todo.status)
            for event in todo.events:
                try:
                    self._cluster.emit_event(world.group, event, now)
                except ClusterError as error:
                    # the status has it all; a namespace on its way out takes no more events
                    logger.info("%s/%s: event %s: %s", key.namespace, key.name, event.reason, error)

    def _spend(self, container: str, spent: Spent) -> None:
        self._engine_history.spend(container, spent, datetime.now(UTC))

    def _report(self, key: Key, job: Warmup, outcome: Outcome) -> None:
        """Write on the pod what its warm-up found; then look at the group."""
        serves = outcome.warm or outcome.reason is WarmReason.PROCEEDED
        self._warmup_outcomes.labels(outcome.reason).inc()
        logger.info("pod %s/%s: %s: %s", key.namespace, job.pod, outcome.reason, outcome.message)
        try:
            change = ConditionChange(job.pod, job.uid, outcome)
            container = job.container_id if serves else ""
            self._cluster.set_condition(key.namespace, change, warm=serves, now=datetime.now(UTC), container=container)
        except ClusterError as error:
            logger.warning("pod %s/%s: %s", key.namespace, job.pod, error)
        self._queue.add(key, ahead=True)  # a replica that could serve waits for nothing but its slot

    def _report_refresh(self, key: Key, touch: Refresh, outcome: Outcome) -> None:
        """Write what a touch found into the pod's condition, which stays True; then look at the group."""
        logger.info("pod %s/%s: %s: %s", key.namespace, touch.pod, outcome.reason, outcome.message)
        change = ConditionChange(touch.pod, touch.uid, outcome)
        try:
            self._cluster.set_condition(key.namespace, change, warm=True, now=touch.said.since or datetime.now(UTC))
        except ClusterError as error:
            logger.warning("pod %s/%s: %s", key.namespace, touch.pod, error)
        self._queue.add(key)
