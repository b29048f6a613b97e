"""Decides on the removal of replicas: pods are marked, unrouted and idle before the Deployment is scaled down.

The ReplicaSet chooses the pods to delete: those that are not ready first, then by deletion cost. So the marks with the
deletion cost are written before the number.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from promptgroup_operator.plan import slots
from promptgroup_operator.world.effects import PodUpdate
from promptgroup_operator.world.snapshot import Pod, RevisionState

PROPAGATION = timedelta(seconds=2)
"""Time in which all routers receive the change that a slot drains; only after it an idle pod gets no new request."""

RESOLUTION = timedelta(seconds=1)
"""Resolution of times on objects, which are rounded down to whole seconds: the elapsed time may be less by this."""


def has_drained(pod: Pod, timeout: timedelta, now: datetime) -> bool:
    """Return True if a draining replica may be removed: routers no longer send to it, and it is idle, cold or late.

    Args:
        pod: the replica.
        timeout: maximum wait for its requests; a response that takes longer is cut off.
        now: the time of the pass.
    """
    if pod.deleting:
        return True
    if pod.draining_since is None or now - pod.draining_since < PROPAGATION + RESOLUTION:
        return False
    return not pod.is_warm or pod.in_flight == 0 or now - pod.draining_since >= timeout


def deployment_replicas(
    revision: RevisionState, ring: frozenset[int], held: Mapping[str, int], timeout: timedelta, now: datetime
) -> int:
    """Return the replicas to set in the Deployment: fewer only when every replica to be removed has drained.

    Args:
        revision: the revision.
        ring: its slots.
        held: pod name → slot.
        timeout: longest wait for the requests of a replica.
        now: the time of the pass.
    """
    alive = [pod for pod in revision.pods if not pod.deleting]
    size = len(ring)
    if size == revision.replicas:
        return size
    if size > revision.replicas:
        # The number was raised again before surplus pods were deleted: they drain like any other.
        return max(size, len(alive))
    going = slots.leaving(revision.pods, held, ring, revision.replicas)
    marked = all((pod.draining_since is not None) == (pod.name in going) for pod in alive)
    gone = all(has_drained(pod, timeout, now) for pod in alive if pod.name in going)
    return size if marked and gone else revision.replicas


def pod_updates(
    revision: RevisionState,
    ring: frozenset[int],
    held: Mapping[str, int],
    routed: frozenset[str],
    now: datetime,
    *,
    inference_pool: str = "",
) -> list[PodUpdate]:
    """Return the pods whose labels or annotations must change. Draining begins once no route sends to the pod.

    At the same time the pod is removed from the InferencePool.

    Args:
        revision: the revision.
        ring: its slots.
        held: pod name → slot.
        routed: pods to which routers may send requests, by the current PromptRoute.
        now: the time of the pass.
        inference_pool: the InferencePool that replicas with a slot are in; empty for none.
    """
    going = slots.leaving(revision.pods, held, ring, revision.replicas)
    result = []
    for pod in revision.pods:
        if pod.deleting:
            continue
        # A time in the future is from a different clock: it is replaced, as nothing would drain until then.
        since = min(pod.draining_since, now) if pod.draining_since else (now if pod.name not in routed else None)
        drains = since if pod.name in going else None
        member = inference_pool if pod.name in held and drains is None else ""
        mark = PodUpdate(pod.name, pod.uid, held.get(pod.name), drains, member)
        if (mark.slot, drains, member) != (pod.slot, pod.draining_since, pod.inference_pool):
            result.append(mark)
    return result
