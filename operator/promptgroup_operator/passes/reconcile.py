"""One pass for one group: observe, decide, act. Passes are level-triggered: each reads the state, never a change."""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from promptgroup_operator.act.group_writer import GroupWriter
from promptgroup_operator.base.errors import StoredSpecError, UnreadGroupError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.passes.adapter_unloader import AdapterUnloader
from promptgroup_operator.passes.guest_proofs import GuestProofs
from promptgroup_operator.passes.observation import Observer
from promptgroup_operator.passes.outcomes import Outcomes
from promptgroup_operator.passes.performance import Performer
from promptgroup_operator.passes.readings import ReadingsReader
from promptgroup_operator.passes.refresh_runner import RefreshRunner
from promptgroup_operator.passes.warmup_runner import WarmupRunner
from promptgroup_operator.passes.work_queue import WorkQueue
from promptgroup_operator.plan import plan, status
from promptgroup_operator.plan.plan import Plan
from promptgroup_operator.telemetry.collector import PassSummary, summarize
from promptgroup_operator.telemetry.metrics import REFUSED, OperatorMetrics
from promptgroup_operator.telemetry.pass_spans import PassSpans
from promptgroup_operator.world.sizing_history import NEW
from promptgroup_operator.world.snapshot import ContainerId, Key, Spent, World

logger = logging.getLogger(__name__)


class Reconciler:
    """Runs passes. Its memories may be lost: the next process begins with none."""

    def __init__(
        self,
        reader: GroupReader,
        writer: GroupWriter,
        engines: GroupEngines,
        *,
        queue: WorkQueue,
        settings: Settings,
        metrics: OperatorMetrics,
        spans: PassSpans,
    ) -> None:
        self._spans = spans
        self._writer = writer
        self._engines = engines
        history, guest_proofs = EngineHistory(), GuestProofs()

        def spend(container: ContainerId, spent: Spent) -> None:
            history.spend(container, spent, datetime.now(UTC))

        self._outcomes = outcomes = Outcomes(writer, guest_proofs, queue, metrics.warmups)
        self._warmups = WarmupRunner(engines, settings.warmups, outcomes.report_warmup, spend)
        self._refreshes = RefreshRunner(engines, outcomes.report_refresh, spend, metrics.refreshes, history.own_queries)
        readings = ReadingsReader(
            reader,
            engines,
            history=history,
            refreshes=self._refreshes,
            guest_proofs=guest_proofs,
            settings=settings,
        )
        self._observer = Observer(readings, history, self._refreshes, settings)
        self._unloader = AdapterUnloader(engines)
        self._performer = Performer(
            writer,
            reader,
            outcomes,
            warmups=self._warmups,
            refreshes=self._refreshes,
            unloader=self._unloader,
            queue=queue,
        )
        self._summaries: dict[Key, PassSummary] = {}
        self._pass_failures = metrics.pass_failures.labels(REFUSED)

    def close(self) -> None:
        """Stop warm-ups, refreshes, readings, the unloading of adapters, and writes of several pods."""
        for part in (self._warmups, self._refreshes, self._unloader, self._observer, self._performer):
            part.close()

    def summaries(self) -> dict[Key, PassSummary]:
        """Return the summary of the latest pass over each group."""
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
            self._forget(key, now)
            return None  # deleted; owner references clean up
        with self._spans.step("decide"):
            todo = plan.decide(world, now)
        with self._spans.step("act"):
            todo = self.act(world, todo, now)
        if todo.size is None:
            self._summaries.pop(key, None)
        else:
            self._summaries[key] = summarize(todo.size, world, self._summaries.get(key), now)
        return todo.requeue_after

    def observe(self, key: Key, now: datetime) -> World | None:
        """Return a snapshot of the group's world, with what the passes before have decided; None if it is gone.

        Raises:
            ClusterError: the API server did not answer or refused.
        """
        world = self._observer.observe(key, now)
        if world is None:
            return None
        pools, refusal = world.inference_pools, self._performer.pool_refusals.get(key)
        return replace(
            world,
            inference_pools=replace(pools, problem=pools.problem or refusal),
            sizing=self._summaries[key].size.history if key in self._summaries else NEW,
        )

    def act(self, world: World, todo: Plan, now: datetime) -> Plan:
        """Perform a plan, count what fails of the pass, and return what was performed.

        Raises:
            ClusterError: the API server is away, or an object changed since it was seen; the pass must be retried.
        """
        performed, failed = self._performer.perform(world, todo, now)
        if failed or world.unread is not None:
            self._pass_failures.inc()
            self._spans.failed(REFUSED)
        return performed

    def _forget(self, key: Key, now: datetime) -> None:
        self._performer.forget(key, now)
        self._observer.forget(key)
        self._outcomes.forget(key)
        self._engines.authorize(key, {})
        self._summaries.pop(key, None)

    def _report_stored_spec(self, key: Key, error: StoredSpecError, now: datetime) -> timedelta:
        """Write into the status what cannot be read of the group; all that serves is left as it is."""
        lasts = not isinstance(error, UnreadGroupError)
        words = str(error)
        written = (
            status.unreadable(error.status, error.generation, words, now)
            if lasts
            else status.unread(error.status, words, now)
        )
        if written != error.status:
            logger.warning("%s/%s: the group cannot be read: %s", key.namespace, key.name, words)
            self._writer.write_status(key, written)
        return plan.SETTLED if lasts else plan.WAITING
