"""Kubernetes: read a group's world, apply what it wants."""

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any
from urllib.parse import quote

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.api_server import KubeClient, collection_path
from promptgroup_operator.kube.decode import (
    ANNOTATION_DRAINING,
    fingerprint_of,
    group_of,
    pod_of,
    prompt_ref,
    revision_of,
    router_of,
)
from promptgroup_operator.kube.get_cache import GetCache
from promptgroup_operator.kube.leader_election import Term
from promptgroup_operator.kube.store import Store, normalized
from promptgroup_operator.plan import prompt, prompt_route, validate
from promptgroup_operator.rollout import annotations as records
from promptgroup_operator.world import engine_facts
from promptgroup_operator.world.effects import ConditionChange, Deletion, Event, PodUpdate
from promptgroup_operator.world.snapshot import GroupObject, Key, Manifest, Pod, RevisionState, Sibling
from promptgroup_router.contract import names
from promptgroup_router.contract.table import SYSTEM_KEY, TOOLS_KEY, Prompt

logger = logging.getLogger(__name__)

FIELD_MANAGER = "promptgroup-operator"
"""The one field manager of everything that the operator writes."""

LABEL_NAME = "app.kubernetes.io/name"
"""Kubernetes' own: by it the routers' pods are found."""

OWN_SECONDS = 600.0
"""Age up to which a copy of an object of our own is used: nobody edits it (prompt objects are immutable), and one that
somebody deleted is missed by new routers only."""
REFERENCED_SECONDS = 10.0
"""The same for objects of users, whose edits are to be noticed at the next regular look (plan.REFERENCED)."""

ANNOTATION_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' own: of the pods of a ReplicaSet the one with the lowest cost goes first."""

_APPLY = "application/apply-patch+yaml"
_STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What the API server holds for one group, before its engines are asked."""

    group: GroupObject
    values: prompt.Values
    revisions: tuple[RevisionState, ...]
    siblings: tuple[Sibling, ...]
    live: Mapping[tuple[str, str], Manifest]


class Cluster:
    """What passes read and write, for one operator process. Safe to use from many threads.

    Args:
        server: the API server.
        term: while it lasts this process may write.
        stores: kind → what the watches tell, for the kinds that are watched.
        clock: by which copies of what is not watched grow old.
    """

    def __init__(
        self,
        server: KubeClient,
        term: Term,
        stores: Mapping[str, Store],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._server = server
        self._term = term
        self._stores = stores
        self._cache = GetCache(self._get, clock)

    # --- observe -------------------------------------------------------------------------------------------

    def observe(self, key: Key) -> ClusterState | None:
        """What stands for the group; None when it is gone or going.

        Raises:
            ClusterError: the API server could not be asked.
        """
        raw = self._stores["PromptGroup"].get(key.namespace, key.name)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            self._cache.forget(key)
            return None
        self._cache.turn(key, raw)
        group = group_of(key, raw)
        live: dict[tuple[str, str], Manifest] = {}
        for kind in ("Deployment", "PodDisruptionBudget", "PromptRoute"):
            for each in self._stores[kind].list_group(key):
                live[kind, each["metadata"]["name"]] = each
        pods = [pod_of(each, group.spec.engine.port) for each in self._stores["Pod"].list_group(key)]
        standing = prompt_route.standing(live.get(("PromptRoute", key.name)))
        revisions = []
        for deployment in self._stores["Deployment"].list_group(key):
            goes = "deletionTimestamp" in deployment["metadata"]
            if not goes and validate.is_owned(group, deployment) and fingerprint_of(deployment):
                revisions.append(self._revision(group, deployment, pods, standing, live))
        values = {
            (kind, object_name): self._values(key, kind, object_name)
            for kind, object_name in prompt.references(group.spec.prompt)
        }
        return ClusterState(group, values, tuple(revisions), self._rivals(group), live)

    def has_group(self, key: Key) -> bool:
        """Return True if there is a PromptGroup of this name."""
        return self._stores["PromptGroup"].get(key.namespace, key.name) is not None

    def get_cached(self, key: Key, kind: str, name: str, seconds: float = OWN_SECONDS) -> Manifest | None:
        """One object of the group's namespace as it stood no longer ago than that; None when there is none."""
        return self._cache.get(key, kind, name, seconds)

    def _revision(
        self,
        group: GroupObject,
        deployment: Manifest,
        pods: list[Pod],
        standing: Mapping[str, tuple[int, frozenset[int]]],
        live: dict[tuple[str, str], Manifest],
    ) -> RevisionState:
        source = prompt_ref(deployment)
        holder = self.get_cached(group.key, source.kind, source.name)
        if holder is not None:
            live[source.kind, source.name] = holder
        data = _decoded(holder) if holder is not None else {}
        text = Prompt(data[SYSTEM_KEY], data.get(TOOLS_KEY, "")) if SYSTEM_KEY in data else None
        return revision_of(deployment, text, pods, standing)

    def _values(self, key: Key, kind: str, name: str) -> Mapping[str, str] | None:
        found = self._cache.get(key, kind, name, REFERENCED_SECONDS)
        return _decoded(found) if found is not None else None

    def _rivals(self, group: GroupObject) -> tuple[Sibling, ...]:
        others = self._stores["PromptGroup"].list_namespace(group.key.namespace)
        return tuple(
            Sibling(
                name=each["metadata"]["name"],
                created=each["metadata"]["creationTimestamp"],
                fingerprint=each.get("status", {}).get("fingerprint", ""),
            )
            for each in others
            if each["metadata"]["name"] != group.key.name
            and each["spec"].get("model") == group.spec.model
            and "deletionTimestamp" not in each["metadata"]
        )

    def list_routers(self, namespace: str) -> dict[str, str]:
        """Container → address of the admin port, of every router that runs in a namespace."""
        pods = self._list("Pod", namespace, f"{LABEL_NAME}={names.ROUTER}")
        return dict(found for found in map(router_of, pods) if found is not None)

    # --- act -----------------------------------------------------------------------------------------------

    def apply(self, manifest: Manifest, seen: Manifest | None) -> None:
        """Server-side apply (KEP-555): the operator owns the fields that it names, and no others.

        Args:
            manifest: the wanted object.
            seen: the object that the decision was made from; None when there was none.

        Raises:
            ClusterError: also when another one stands by now (409): the pass is to begin from that.
        """
        metadata = manifest["metadata"]
        if seen is not None:
            manifest = {**manifest, "metadata": {**metadata, "resourceVersion": seen["metadata"]["resourceVersion"]}}
        elif self._get(manifest["kind"], metadata["namespace"], metadata["name"]) is not None:
            raise ClusterError(f"{manifest['kind']} {metadata['name']} was created meanwhile", status=409)
        path = f"{collection_path(manifest['kind'], metadata['namespace'])}/{quote(metadata['name'])}"
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        try:
            self._wrote(manifest["kind"], self._request("PATCH", path, manifest, _APPLY, query))
        except ClusterError:
            self._cache.drop(manifest["kind"], metadata["namespace"], metadata["name"])  # it may be what is out of date
            raise

    def create(self, manifest: Manifest) -> None:
        """Create an object, unless one of its name stands: that one is left as it is."""
        path = collection_path(manifest["kind"], manifest["metadata"]["namespace"])
        try:
            self._request("POST", path, manifest, "application/json", {"fieldManager": FIELD_MANAGER})
        except ClusterError as error:
            if error.status != 409:
                raise

    def delete(self, namespace: str, deletion: Deletion) -> None:
        """Delete the object that was seen, not one that took its name since."""
        path = f"{collection_path(deletion.kind, namespace)}/{quote(deletion.name)}"
        body = {"preconditions": {"uid": deletion.uid}, "propagationPolicy": "Background"}
        self._request("DELETE", path, body, "application/json", gone_is_fine=True)
        self._cache.drop(deletion.kind, namespace, deletion.name)

    def update_pod(self, namespace: str, mark: PodUpdate, change: ConditionChange | None, now: datetime) -> None:
        """Write a pod's slot, and whether it drains; in the same write that its gate is shut, if that is to be said."""
        since = mark.draining_since
        metadata = {
            "uid": mark.uid,
            "labels": {names.LABEL_SLOT: str(mark.slot) if mark.slot is not None else None},
            "annotations": {
                ANNOTATION_DRAINING: records.rfc3339(since) if since is not None else None,
                ANNOTATION_DELETION_COST: str(mark.deletion_cost) if since is not None else None,
            },
        }
        conditions = [_condition(change, warm=False, now=now)] if change is not None else []
        self._patch_pod(namespace, mark.pod, metadata, conditions)

    def set_condition(
        self,
        namespace: str,
        change: ConditionChange,
        *,
        warm: bool,
        now: datetime,
        container: str = "",
    ) -> None:
        """Write the readiness gate's condition; the kubelet's own conditions stand beside it.

        Args:
            namespace: of the pod.
            change: what is found.
            warm: whether the gate opens.
            now: the time of the change.
            container: put on record as the one whose warmth was proven (or let through), with what was measured of it.
        """
        record = {
            names.ANNOTATION_WARMED: container,
            names.ANNOTATION_ENGINE: engine_facts.encode(
                engine_facts.completed(change.outcome.measured, self._measured(namespace, change.pod, container))
            ),
        }
        metadata = {"uid": change.uid} | ({"annotations": record} if container else {})
        self._patch_pod(namespace, change.pod, metadata, [_condition(change, warm=warm, now=now)])

    def _measured(self, namespace: str, pod: str, container: str) -> engine_facts.Measured:
        """What stands on record of a container by now: a second warm-up finds it warm, and measures no prefill."""
        found = self._stores["Pod"].get(namespace, pod) or {}
        annotations = found.get("metadata", {}).get("annotations", {})
        if annotations.get(names.ANNOTATION_WARMED) != container:
            return engine_facts.UNKNOWN
        return engine_facts.decode(annotations.get(names.ANNOTATION_ENGINE, ""))

    def _patch_pod(
        self, namespace: str, pod: str, metadata: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]]
    ) -> None:
        """Patch the pod that was seen; the uid in the body makes it fail on another of its name.

        One write for both: with a pod's status the API server takes its labels and annotations too (of the rest its
        strategy for status restores spec, deletion and owners). Null removes.
        """
        body = {"metadata": metadata} | ({"status": {"conditions": conditions}} if conditions else {})
        url = f"{collection_path('Pod', namespace)}/{pod}/status"
        query = {"fieldManager": FIELD_MANAGER}
        self._wrote("Pod", self._request("PATCH", url, body, _STRATEGIC, query, gone_is_fine=True))

    def write_status(self, key: Key, status: Mapping[str, Any]) -> None:
        """Replace the group's status."""
        body = {
            "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
            "kind": "PromptGroup",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "status": status,
        }
        path = f"{collection_path('PromptGroup', key.namespace)}/{quote(key.name)}/status"
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        self._wrote("PromptGroup", self._request("PATCH", path, body, _APPLY, query, gone_is_fine=True))

    def emit_event(self, group: GroupObject, event: Event, now: datetime) -> None:
        """Create an event on the group."""
        stamp = records.rfc3339(now)
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
            "message": event.message[:1024],
            "source": {"component": FIELD_MANAGER},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        self._request("POST", collection_path("Event", group.key.namespace), body, "application/json")

    def _wrote(self, kind: str, answer: dict[str, Any]) -> None:
        """Let no later pass see what stood before the write."""
        if not answer:
            return  # it was gone
        if kind in self._stores:
            self._stores[kind].record_write(normalized(answer, kind))
        else:
            self._cache.record_write(kind, normalized(answer, kind))

    # --- HTTP ----------------------------------------------------------------------------------------------

    def _get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        try:
            return normalized(self._request("GET", f"{collection_path(kind, namespace)}/{quote(name)}"), kind)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def _list(self, kind: str, namespace: str, selector: str) -> list[Manifest]:
        items = self._request("GET", collection_path(kind, namespace), query={"labelSelector": selector}).get(
            "items", []
        )
        return [normalized(each, kind) for each in items]

    def _request(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None = None,
        content_type: str | None = None,
        query: Mapping[str, str] | None = None,
        *,
        gone_is_fine: bool = False,
    ) -> dict[str, Any]:
        """Send a request; what is not a reading one is sent while the term lasts, and not waited for beyond it.

        Raises:
            NotLeadingError: the term is over.
            ClusterError: no answer, or a refusal.
        """
        limit = None if method == "GET" else self._term.seconds_left()
        try:
            return self._server.request(method, url, body, content_type, query, limit=limit)
        except ClusterError as error:
            if gone_is_fine and error.status in (404, 409):
                return {}
            raise


def _condition(change: ConditionChange, *, warm: bool, now: datetime) -> dict[str, str]:
    return {
        "type": names.CONDITION_PREFIX_WARM,
        "status": "True" if warm else "False",
        "reason": change.outcome.reason.value,
        "message": change.outcome.message,
        "lastTransitionTime": records.rfc3339(now),
    }


def _decoded(raw: Manifest) -> dict[str, str]:
    """The data of a ConfigMap or Secret as text; values that are not UTF-8 are left out."""
    if raw["kind"] == "ConfigMap":
        return dict(raw.get("data") or {})
    decoded = {}
    for key, value in (raw.get("data") or {}).items():
        try:
            decoded[key] = base64.b64decode(value).decode()
        except ValueError:
            logger.warning("key %s of Secret %s is not UTF-8 text", key, raw["metadata"]["name"])
    return decoded
