"""Perform the effects of a plan in order; a failed effect does not prevent the others."""

import base64
import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from promptgroup_contract import names
from promptgroup_operator.act.group_writer import GroupWriter
from promptgroup_operator.act.pass_writes import FailedWrite, FailedWrites, PassWrites, Write
from promptgroup_operator.act.router_grants import RouterGrants
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.fair_pool import FairPool
from promptgroup_operator.kube.api_server import WRITERS
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.passes.adapter_unloader import AdapterUnloader
from promptgroup_operator.passes.outcomes import Outcomes
from promptgroup_operator.passes.refresh_runner import RefreshRunner
from promptgroup_operator.passes.warmup_runner import WarmupRunner
from promptgroup_operator.passes.work_queue import WorkQueue
from promptgroup_operator.plan import desired, plan, router_secrets, status
from promptgroup_operator.plan.plan import Plan
from promptgroup_operator.world.effects import ConditionChange
from promptgroup_operator.world.snapshot import WORKLOADS, Key, Manifest, Problem, PromptText, World

logger = logging.getLogger(__name__)

UNWRITTEN = Problem(status.FAILED, "an object could not be written")
"""Problem of a plan that cannot be performed, where there are no words for it."""


class Performer:
    """Performs plans. Safe to use from many threads.

    Args:
        writer: writes to the cluster.
        reader: reports if the API server is unavailable, and the Roles of routers.
        outcomes: of warm-ups; those that are late are written here.
        warmups: runs those that a plan wants.
        refreshes: runs those that a plan wants.
        unloader: unloads adapters that no revision has.
        queue: of passes.
    """

    def __init__(
        self,
        writer: GroupWriter,
        reader: GroupReader,
        outcomes: Outcomes,
        *,
        warmups: WarmupRunner,
        refreshes: RefreshRunner,
        unloader: AdapterUnloader,
        queue: WorkQueue,
    ) -> None:
        self._writer = writer
        self._unwatched = unwatched = reader.unwatched
        self._outcomes = outcomes
        self._warmups = warmups
        self._refreshes = refreshes
        self._unloader = unloader
        self._queue = queue
        self._grants = RouterGrants(
            lambda key, name: unwatched.get(key, router_secrets.KIND, name, seconds=0),
            reader.neighbours.routes,
            writer,
        )
        self._writers = FairPool(WRITERS, "write")
        self._failed_writes = FailedWrites(self._writers)
        self.pool_refusals: dict[Key, Problem] = {}
        """Group → why the API server refused its InferencePool."""

    def close(self) -> None:
        """Begin no more writes of several pods; those that run end by their own deadlines."""
        self._writers.close()

    def forget(self, key: Key, now: datetime) -> None:
        """Delete the state of a group that does not exist any more."""
        self._warmups.want(key, (), now)
        self._grants.forget(key)
        self._failed_writes.forget(key)
        self.pool_refusals.pop(key, None)

    def perform(self, world: World, todo: Plan, now: datetime) -> tuple[Plan, bool]:
        """Perform the plan's effects in order. A write that fails ends no other one; the status says what is unwritten.

        Returns:
            The plan that was performed: one that serves on with what stands, where a Deployment cannot be written; and
            True if a write has failed.

        Raises:
            ClusterError: the API server is away, or an object changed since it was seen; the next pass begins from
                what was written.
        """
        key = world.group.key
        writes = self._failed_writes.begin(key, _texts(world), lambda: self._unwatched.is_away(key))
        try:
            performed = self._perform(world, todo, writes, now)
        finally:
            self._failed_writes.end(key, writes)
        soonest = min(todo.requeue_after, writes.due(), self._unwatched.cache.due(key))
        return replace(performed, requeue_after=soonest), writes.tried

    def _perform(self, world: World, todo: Plan, writes: PassWrites, now: datetime) -> Plan:
        key = world.group.key
        space = key.namespace
        changes = {change.uid: change for change in todo.conditions}
        self._close_gates(space, todo, changes, writes, now)
        unwritten = plan.unwritten(world, todo)
        if not self._apply_objects(world, unwritten, writes):
            # a refusal may last for days: replicas that start and end meanwhile are reconciled as usual
            todo = plan.with_failed_writes(world, writes.problem() or UNWRITTEN, now)
            unwritten = plan.unwritten(world, todo)
            self._close_gates(space, todo, changes, writes, now)
            self._apply_objects(world, unwritten, writes, all_of_them=True)
        marks = [(mark, changes.get(mark.uid)) for mark in todo.pod_updates]
        marked = writes.attempt_all(
            [
                Write(f"Pod {mark.pod}", (mark, change), partial(self._writer.update_pod, space, mark, change, now))
                for mark, change in marks
            ]
        )
        placed = any(mark.slot is not None and failed is None for (mark, _), failed in zip(marks, marked, strict=True))
        routes = [route for route in (todo.route, world.live.get(("PromptRoute", key.name))) if route is not None]
        writes.attempt("Role", None, lambda: self._grants.put(key, routes))
        if todo.route is not None and plan.route_unwritten(world, todo):
            self._apply(world, todo.route, writes)
        pending = self._outcomes.write_late(world, writes, now)
        self._warmups.want(key, [job for job in todo.warmups if job.container_id not in pending], now)
        self._refreshes.start(key, todo.refreshes)
        self._unloader.check(world, now)
        if placed and self._queue.is_ahead(key):
            return todo  # another replica has become warm: the pass that begins now for its slot writes the rest
        overfull = [manifest for manifest in unwritten if plan.is_complete(world, manifest)]
        if overfull and placed:
            # controllers write the status of a workload now: the next replica would wait for the conflicts with them
            self._queue.add(key, plan.MOVING)
        else:
            for manifest in overfull:
                self._apply(world, manifest, writes)
        for deletion in todo.deletions:  # after all that serving needs: a policy may refuse one for ever
            subject = f"{deletion.kind} {deletion.name}"
            writes.attempt(subject, deletion, partial(self._writer.delete, space, deletion))
        if todo.peers_key:
            self._create_peers_key(space)
        self._apply_pool(world, todo, writes)
        problem = writes.problem()
        reported = plan.with_failed_writes(world, problem, now) if problem is not None else todo
        self._write_status(world, reported, writes, now)
        return todo

    def _close_gates(
        self, namespace: str, todo: Plan, changes: dict[str, ConditionChange], writes: PassWrites, now: datetime
    ) -> None:
        """Write the changes of conditions that come with no update of their pod, and take them out of `changes`."""
        updated = {mark.uid for mark in todo.pod_updates}
        alone = [change for change in changes.values() if change.uid not in updated]
        for change in alone:
            del changes[change.uid]
        set_condition = partial(self._writer.set_condition, namespace, now=now)
        writes.attempt_all(
            [
                Write(f"Pod {change.pod}", change, partial(set_condition, change, warm=change.outcome.warm))
                for change in alone
            ]
        )

    def _apply(self, world: World, manifest: Manifest, writes: PassWrites) -> FailedWrite | None:
        subject = f"{manifest['kind']} {manifest['metadata']['name']}"
        return writes.attempt(subject, manifest, partial(self._writer.apply, manifest, plan.live(world, manifest)))

    def _apply_objects(
        self, world: World, unwritten: Sequence[Manifest], writes: PassWrites, *, all_of_them: bool = False
    ) -> bool:
        """Apply those objects that lack something. Return False at the first Deployment that cannot be written.

        What failed before comes first, so that no other object follows a plan that is not performed. With `all_of_them`
        the others are applied as well, but for those of a Deployment that does not exist, which is the record of them.
        """

        def failed_before(manifest: Manifest) -> bool:
            return writes.failed_before(f"{manifest['kind']} {manifest['metadata']['name']}")

        whole, missing = True, set()
        incomplete = [manifest for manifest in unwritten if not plan.is_complete(world, manifest)]
        for manifest in sorted(incomplete, key=failed_before, reverse=True):
            name = manifest["metadata"]["name"]
            if name in missing or self._apply(world, manifest, writes) is None or manifest["kind"] not in WORKLOADS:
                continue
            if not all_of_them:
                return False
            whole = False
            if plan.live(world, manifest) is None:
                missing.add(name)
        return whole

    def _apply_pool(self, world: World, todo: Plan, writes: PassWrites) -> None:
        """Write the InferencePool; routers serve without it, so that a refusal is a condition of its own."""
        key = world.group.key
        refused = None
        if todo.pool is not None and plan.pool_unwritten(world, todo):
            failed = self._apply(world, todo.pool, writes)
            if failed is not None and failed.error.is_refusal:
                writes.forgive(failed)
                refused = Problem("PoolRefused", f"InferencePool {key.name}: {failed.words}")
        if (refused is None) == (key not in self.pool_refusals):
            return
        self.pool_refusals.pop(key, None)
        self.pool_refusals |= {key: refused} if refused is not None else {}
        self._queue.add(key)  # its condition reports it

    def _create_peers_key(self, namespace: str) -> None:
        """Create the key with which the namespace's routers authenticate each other; traffic flows without it."""
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
                # The status has the same message, and a namespace that is being deleted accepts no Events.
                logger.info("%s/%s: event %s: %s", key.namespace, key.name, event.reason, error)


def _texts(world: World) -> list[str]:
    """Return the prompts that no message may quote, also as a Secret holds them."""
    prompts = [revision.prompt for revision in world.revisions if revision.prompt is not None]
    prompts += [world.prompt.prompt] if isinstance(world.prompt, PromptText) else []
    parts = dict.fromkeys(part for prompt in prompts for part in (prompt.system, prompt.tools, prompt.messages) if part)
    return [*parts, *(base64.b64encode(part.encode()).decode() for part in parts)]
