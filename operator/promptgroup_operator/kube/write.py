"""Write what a pass decided, guarded by leadership and by the version or uid of the object that was seen."""

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any

from promptgroup_contract import names
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.printable import in_line
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.kube.api_server import KubeClient, collection_path, object_path
from promptgroup_operator.kube.events import EventAggregator
from promptgroup_operator.kube.get_cache import GetCache
from promptgroup_operator.kube.leader_election import Term
from promptgroup_operator.kube.store import Store
from promptgroup_operator.world import engine_facts
from promptgroup_operator.world.effects import ConditionChange, Deletion, Event, PodUpdate
from promptgroup_operator.world.kept import SHORTENED, kept, whole
from promptgroup_operator.world.snapshot import NO_CONTAINER, ContainerId, GroupObject, Key, Manifest

FIELD_MANAGER = "promptgroup-operator"
"""The one field manager of everything that the operator writes."""

CONFLICTS = 3
"""Times that an object is applied anew at once: what changes more often than that is left to the next pass."""

ANNOTATION_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' annotation: a ReplicaSet that shrinks deletes the pod with the lowest cost first."""

_APPLY = "application/apply-patch+yaml"
_STRATEGIC = "application/strategic-merge-patch+json"


class ClusterWriter:
    """The writes to the cluster by passes, for one operator process. Safe to use from many threads.

    Args:
        client: client of the API server.
        term: this process may write while it is the leader.
        stores: kind → store, for the kinds that are watched; they learn of each write at once.
        cache: copies of objects that are not watched, which learn of each write, too.
    """

    def __init__(self, client: KubeClient, term: Term, stores: Mapping[str, Store], cache: GetCache) -> None:
        self._client = client
        self._term = term
        self._stores = stores
        self._cache = cache
        self._events = EventAggregator()
        self._counting = threading.Lock()

    def apply(self, manifest: Manifest, seen: Manifest | None) -> None:
        """Apply an object on the server's side (KEP-555): the operator owns the fields that it names, and no others.

        An object that was not seen is applied without force, so that one that somebody else created meanwhile is a
        conflict and is not taken over.

        Args:
            manifest: the wanted object.
            seen: the object that the decision was made from; None if there was none.

        Raises:
            ClusterError: also if another version exists now (409); the next pass begins from that.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        try:
            answer = self._apply_again(manifest, seen)
        except ClusterError:
            self._cache.drop(kind, metadata["namespace"], metadata["name"])  # it may be out of date
            raise
        self._record(kind, answer)

    def _apply_again(self, manifest: Manifest, seen: Manifest | None) -> dict[str, Any]:
        """Apply an object, and again where nothing has changed since it was seen but its status.

        The controllers write that of a Deployment several times a second while its pods come up.
        """
        for _ in range(CONFLICTS):
            try:
                return self._apply(manifest, seen)
            except ClusterError as error:
                if error.status != HTTPStatus.CONFLICT or seen is None or manifest["kind"] != "Deployment":
                    raise
                seen = self._with_other_status(seen)
                if seen is None:
                    raise
        return self._apply(manifest, seen)

    def _apply(self, manifest: Manifest, seen: Manifest | None) -> dict[str, Any]:
        metadata = manifest["metadata"]
        query = {"fieldManager": FIELD_MANAGER}
        if seen is not None:
            manifest = {**manifest, "metadata": {**metadata, "resourceVersion": seen["metadata"]["resourceVersion"]}}
            query["force"] = "true"
        path = object_path(manifest["kind"], metadata["namespace"], metadata["name"])
        return self._request("PATCH", path, manifest, _APPLY, query)

    def _with_other_status(self, seen: Manifest) -> Manifest | None:
        """Return a Deployment as it is now, if nothing of it has changed but its status; None otherwise."""
        metadata = seen["metadata"]
        try:
            request = self._client.request("GET", object_path("Deployment", metadata["namespace"], metadata["name"]))
        except ClusterError:
            return None
        current = kept(request, "Deployment")
        before, now = ({**item["metadata"], "resourceVersion": ""} for item in (seen, current))
        return current if before == now else None

    def create(self, manifest: Manifest) -> None:
        """Create an object, unless one of its name exists, which is left as it is."""
        path = collection_path(manifest["kind"], manifest["metadata"]["namespace"])
        try:
            self._request("POST", path, manifest, "application/json", {"fieldManager": FIELD_MANAGER})
        except ClusterError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise

    def delete(self, namespace: str, deletion: Deletion) -> None:
        """Delete the object that was seen, and no other that has its name since."""
        path = object_path(deletion.kind, namespace, deletion.name)
        body = {"preconditions": {"uid": deletion.uid}, "propagationPolicy": "Background"}
        self._request("DELETE", path, body, "application/json", gone_is_fine=True)
        self._cache.drop(deletion.kind, namespace, deletion.name)

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
        self._patch_pod(namespace, update.pod, metadata, conditions)

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
        record = {
            names.ANNOTATION_WARMED: container,
            names.ANNOTATION_ENGINE: engine_facts.encode(
                engine_facts.completed(change.outcome.measured, self._measured(namespace, change.pod, container))
            ),
        }
        metadata = {"uid": change.uid} | ({"annotations": record} if container else {})
        self._patch_pod(namespace, change.pod, metadata, [_condition(change, warm=warm, now=now)])

    def _measured(self, namespace: str, pod: str, container: ContainerId) -> engine_facts.Measured:
        """Return what is recorded of a container: a second warm-up finds it warm, and measures no prefill."""
        result = self._stores["Pod"].get(namespace, pod) or {}
        annotations = result.get("metadata", {}).get("annotations", {})
        if annotations.get(names.ANNOTATION_WARMED) != container:
            return engine_facts.UNKNOWN
        return engine_facts.decode(annotations.get(names.ANNOTATION_ENGINE, ""))

    def _patch_pod(
        self, namespace: str, pod: str, metadata: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]]
    ) -> None:
        """Patch the pod that was seen; the uid in the body makes the write fail on another pod of that name.

        One write does both: with a pod's status the API server takes its labels and annotations, too (its strategy for
        status restores spec, deletion and owners only). Null removes a field.
        """
        body = {"metadata": metadata} | ({"status": {"conditions": conditions}} if conditions else {})
        url = f"{object_path('Pod', namespace, pod)}/status"
        query = {"fieldManager": FIELD_MANAGER}
        self._record("Pod", self._request("PATCH", url, body, _STRATEGIC, query, gone_is_fine=True))

    def write_status(self, key: Key, status: Mapping[str, Any]) -> None:
        """Apply the group's status; nothing happens if the group is gone."""
        body = {
            "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
            "kind": "PromptGroup",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "status": status,
        }
        path = f"{object_path('PromptGroup', key.namespace, key.name)}/status"
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        self._record("PromptGroup", self._request("PATCH", path, body, _APPLY, query, gone_is_fine=True))

    def emit_event(self, group: GroupObject, event: Event, now: datetime) -> None:
        """Create an Event on the group, unless the same was created lately: then it is counted (see `kube.events`)."""
        with self._counting:
            counted = self._events.add(group.uid, event, now)
        if counted is None:
            return
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{group.key.name}.", "namespace": group.key.namespace},
            "involvedObject": {
                "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
                "kind": "PromptGroup",
                "name": group.key.name,
                "namespace": group.key.namespace,
                "uid": group.uid,
            },
            "type": event.type,
            "reason": event.reason,
            "message": in_line(event.message)[:1024],
            "source": {"component": FIELD_MANAGER},
            "firstTimestamp": rfc3339(counted.first),
            "lastTimestamp": rfc3339(now),
            "count": counted.count,
        }
        self._request("POST", collection_path("Event", group.key.namespace), body, "application/json")

    def _record(self, kind: str, answer: dict[str, Any]) -> None:
        """Let no later pass read what was there before the write."""
        if not answer:
            return  # the object was gone
        part = kept(answer, kind) if kind in self._stores else None
        if part is None or SHORTENED in part:
            self._cache.record_write(kind, whole(answer, kind))
        if part is not None:
            self._stores[kind].put(part)

    def _request(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any],
        content_type: str,
        query: Mapping[str, str] | None = None,
        *,
        gone_is_fine: bool = False,
    ) -> dict[str, Any]:
        """Send a write while this process is the leader; it is not waited for beyond the term.

        Raises:
            NotLeadingError: the term is over.
            ClusterError: there was no answer, or a refusal.
        """
        try:
            return self._client.request(method, url, body, content_type, query, limit=self._term.seconds_left())
        except ClusterError as error:
            if gone_is_fine and error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                return {}
            raise


def _condition(change: ConditionChange, *, warm: bool, now: datetime) -> dict[str, str]:
    return {
        "type": names.CONDITION_PREFIX_WARM,
        "status": "True" if warm else "False",
        "reason": change.outcome.reason.value,
        "message": in_line(change.outcome.message),
        "lastTransitionTime": rfc3339(now),
    }
