"""Write what a plan says of pods and of Events in Kubernetes' words: labels, annotations, conditions, counts."""

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from promptgroup_contract import names
from promptgroup_operator.act.events import EventAggregator
from promptgroup_operator.base.printable import in_line
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.kube.api_server import KubeClient
from promptgroup_operator.kube.leader_election import Term
from promptgroup_operator.kube.store import Store
from promptgroup_operator.kube.write import FIELD_MANAGER, ClusterWriter, Copies
from promptgroup_operator.world import engine_facts
from promptgroup_operator.world.effects import ConditionChange, Event, PodUpdate
from promptgroup_operator.world.snapshot import NO_CONTAINER, ContainerId, GroupObject

ANNOTATION_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' annotation: a ReplicaSet that shrinks deletes the pod with the lowest cost first."""


class GroupWriter(ClusterWriter):
    """The writes of passes, for one operator process. Safe to use from many threads."""

    def __init__(self, client: KubeClient, term: Term, stores: Mapping[str, Store], copies: Copies) -> None:
        super().__init__(client, term, stores, copies)
        self._events = EventAggregator()
        self._counting = threading.Lock()

    def update_pod(self, namespace: str, update: PodUpdate, change: ConditionChange | None, now: datetime) -> None:
        """Write a pod's slot, pool and drain; in the same write, close its readiness gate if `change` says so."""
        since = update.draining_since
        metadata = {
            "uid": update.uid,
            "labels": {
                names.LABEL_SLOT: str(update.slot) if update.slot is not None else None,
                names.LABEL_INFERENCE_POOL: update.inference_pool or None,
            },
            "annotations": {
                names.ANNOTATION_DRAINING: rfc3339(since) if since is not None else None,
                ANNOTATION_DELETION_COST: str(update.deletion_cost) if since is not None else None,
            },
        }
        conditions = [_condition(change, warm=False, now=now)] if change is not None else []
        self.patch_pod(namespace, update.pod, metadata, conditions)

    def set_condition(
        self,
        namespace: str,
        change: ConditionChange,
        *,
        warm: bool,
        now: datetime,
        container: ContainerId = NO_CONTAINER,
    ) -> None:
        """Write the condition of the readiness gate; the kubelet's own conditions stay as they are.

        Args:
            namespace: namespace of the pod.
            change: the condition.
            warm: True if the gate opens.
            now: time of the change.
            container: recorded as the container whose warmth was proven, with the measurements of its engine;
                NO_CONTAINER records none.
        """
        metadata: dict[str, Any] = {"uid": change.uid}
        if container:
            recorded = self._measured(namespace, change.pod, container)
            measured = engine_facts.encode(engine_facts.completed(change.outcome.measured, recorded))
            metadata["annotations"] = {names.ANNOTATION_WARMED: container, names.ANNOTATION_ENGINE: measured}
        self.patch_pod(namespace, change.pod, metadata, [_condition(change, warm=warm, now=now)])

    def _measured(self, namespace: str, pod: str, container: ContainerId) -> engine_facts.Measured:
        """Return what is recorded of a container: a second warm-up finds it warm, and measures no prefill."""
        result = self._stores["Pod"].get(namespace, pod) or {}
        annotations = result.get("metadata", {}).get("annotations", {})
        if annotations.get(names.ANNOTATION_WARMED) != container:
            return engine_facts.UNKNOWN
        return engine_facts.decode(annotations.get(names.ANNOTATION_ENGINE, ""))

    def emit_event(self, group: GroupObject, event: Event, now: datetime) -> None:
        """Create an Event on the group, unless the same was created lately: then it is counted (`act.events`)."""
        with self._counting:
            counted = self._events.add(group.uid, event, now)
        if counted is None:
            return
        key, version = group.key, f"{names.API_GROUP}/{names.API_VERSION}"
        involved = {"apiVersion": version, "kind": "PromptGroup", "name": key.name, "uid": group.uid}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{key.name}.", "namespace": key.namespace},
            "involvedObject": {**involved, "namespace": key.namespace},
            "type": event.type,
            "reason": event.reason,
            "message": in_line(event.message)[:1024],
            "source": {"component": FIELD_MANAGER},
            "firstTimestamp": rfc3339(counted.first),
            "lastTimestamp": rfc3339(now),
            "count": counted.count,
        }
        self.create(body)


def _condition(change: ConditionChange, *, warm: bool, now: datetime) -> dict[str, str]:
    return {
        "type": names.CONDITION_PREFIX_WARM,
        "status": "True" if warm else "False",
        "reason": change.outcome.reason.value,
        "message": in_line(change.outcome.message),
        "lastTransitionTime": rfc3339(now),
    }
