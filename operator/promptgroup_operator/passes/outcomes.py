"""Write on its pod what became of a warm-up or a refresh, and queue a pass of its group.

An outcome that cannot be written is the next pass's to write: what was proven is not proven again. The pods of a guest
are its host's, so that its outcomes go into its PromptRoute (`passes.guest_proofs`).
"""

import logging
from datetime import UTC, datetime
from functools import partial

from prometheus_client import Counter

from promptgroup_operator.act.group_writer import GroupWriter
from promptgroup_operator.act.pass_writes import PassWrites
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.passes.guest_proofs import GuestProofs
from promptgroup_operator.passes.work_queue import WorkQueue
from promptgroup_operator.world.effects import ConditionChange
from promptgroup_operator.world.snapshot import NO_CONTAINER, ContainerId, Key, World
from promptgroup_operator.world.warming import Outcome, Refresh, WarmReason, Warmup

logger = logging.getLogger(__name__)


class Outcomes:
    """The outcomes of warm-ups and refreshes. Safe to use from many threads.

    Args:
        writer: writes them.
        guest_proofs: keep those of guests.
        queue: of passes.
        counter: of warm-ups by reason.
    """

    def __init__(self, writer: GroupWriter, guest_proofs: GuestProofs, queue: WorkQueue, counter: Counter) -> None:
        self._writer = writer
        self._guest_proofs = guest_proofs
        self._queue = queue
        self._counter = counter
        self._late: dict[Key, dict[ContainerId, tuple[ConditionChange, bool]]] = {}
        """Warm-ups whose outcome could not be written on their pod yet."""

    def forget(self, key: Key) -> None:
        """Delete the state of a group that does not exist any more."""
        self._late.pop(key, None)
        self._guest_proofs.forget(key)

    def report_warmup(self, key: Key, job: Warmup, outcome: Outcome) -> None:
        """Write the outcome of a warm-up on its pod, and queue a pass of the group."""
        serves = outcome.warm or outcome.reason is WarmReason.PROCEEDED
        self._late.get(key, {}).pop(job.container_id, None)
        self._counter.labels(outcome.reason).inc()
        logger.info("pod %s/%s: %s: %s", key.namespace, job.pod, outcome.reason, outcome.message)
        if job.shared:
            subject = job.container_id, job.prompt.fingerprint
            self._guest_proofs.put(key, *subject, outcome, serves=serves, now=datetime.now(UTC))
            self._queue.add(key, ahead=serves)
            return
        change = ConditionChange(job.pod, job.uid, outcome)
        container = job.container_id if serves else NO_CONTAINER
        try:
            self._writer.set_condition(key.namespace, change, warm=serves, now=datetime.now(UTC), container=container)
        except ClusterError as error:
            logger.warning("pod %s/%s: %s", key.namespace, job.pod, error)
            if serves:  # the next pass writes it; a warm-up that failed is repeated
                self._late.setdefault(key, {})[job.container_id] = change, serves
        self._queue.add(key, ahead=serves)  # a replica that serves lacks only its slot

    def report_refresh(self, key: Key, refresh: Refresh, outcome: Outcome) -> None:
        """Write the outcome of a refresh into the pod's condition, which stays True, and queue a pass of the group."""
        logger.info("pod %s/%s: %s: %s", key.namespace, refresh.pod, outcome.reason, outcome.message)
        if refresh.shared:
            subject = refresh.container_id, refresh.fingerprint
            since = refresh.condition.since or datetime.now(UTC)
            self._guest_proofs.put(key, *subject, outcome, serves=True, now=since)
            self._queue.add(key)
            return
        change = ConditionChange(refresh.pod, refresh.uid, outcome)
        try:
            self._writer.set_condition(
                key.namespace, change, warm=True, now=refresh.condition.since or datetime.now(UTC)
            )
        except ClusterError as error:
            logger.warning("pod %s/%s: %s", key.namespace, refresh.pod, error)
        self._queue.add(key)

    def write_late(self, world: World, writes: PassWrites, now: datetime) -> set[ContainerId]:
        """Write the outcomes that warm-ups could not write, and return the containers of which that still fails."""
        key = world.group.key
        running = {pod.container_id for revision in world.revisions for pod in revision.pods}
        left = set()
        for container, (change, warm) in list(self._late.get(key, {}).items()):
            say = partial(self._writer.set_condition, key.namespace, change, warm=warm, now=now, container=container)
            if container in running and writes.attempt(f"Pod {change.pod}", change, say) is not None:
                left.add(container)
            else:
                self._late[key].pop(container, None)
        return left
