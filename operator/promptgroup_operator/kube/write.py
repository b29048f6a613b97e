"""Write objects, guarded by leadership and by the version or uid of the object that was seen."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from promptgroup_contract import names
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.api_server import KubeClient, collection_path, object_path
from promptgroup_operator.kube.leader_election import Term
from promptgroup_operator.kube.store import Store
from promptgroup_operator.world.effects import Deletion
from promptgroup_operator.world.lookup import KINDS
from promptgroup_operator.world.snapshot import WORKLOADS, Key, Manifest
from promptgroup_operator.world.trimmed import SHORTENED, trimmed, whole

FIELD_MANAGER = "promptgroup-operator"
"""The one field manager of everything that the operator writes."""
CONFLICTS = 3
"""Maximum number of immediate retries of a conflicting apply; after that the next pass applies the object."""

_APPLY = "application/apply-patch+yaml"
_STRATEGIC = "application/strategic-merge-patch+json"
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""Statuses of a write to an object that was deleted, or deleted and created again."""


class Copies(Protocol):
    """Cached copies of objects that are not watched, which are updated by each write."""

    def record_write(self, kind: str, answer: Manifest) -> None:
        """Cache the response to a write."""

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """Evict an object that does not exist any more, or may not."""


class ClusterWriter:
    """The writes to the cluster, for one operator process. Safe to use from many threads.

    Args:
        client: client of the API server.
        term: this process may write while it is the leader.
        stores: kind → store, for the watched kinds; each write updates them at once.
        copies: cached copies of objects that are not watched.
    """

    def __init__(self, client: KubeClient, term: Term, stores: Mapping[str, Store], copies: Copies) -> None:
        self._client = client
        self._term = term
        self._stores = stores
        self._copies = copies

    def apply(self, manifest: Manifest, seen: Manifest | None) -> None:
        """Apply an object on the server's side (KEP-555): the operator owns the fields that it names, and no others.

        An object that was not seen is applied without force, so that one that another client created meanwhile is a
        conflict and is not taken over. A workload of which nothing but the status has changed since it was seen is
        applied again at once: the controllers write that several times a second while its pods come up.

        Args:
            manifest: the wanted object.
            seen: the object that the decision was made from; None if there was none.

        Raises:
            ClusterError: also if another version exists now (409); the next pass begins from that.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        try:
            answer = self._apply(manifest, seen, CONFLICTS)
        except ClusterError:
            self._copies.drop(kind, metadata["namespace"], metadata["name"])  # it may be out of date
            raise
        self._record(kind, answer)

    def _apply(self, manifest: Manifest, seen: Manifest | None, again: int) -> dict[str, Any]:
        metadata, query, body = manifest["metadata"], {"fieldManager": FIELD_MANAGER}, manifest
        if seen is not None:
            body = {**manifest, "metadata": {**metadata, "resourceVersion": seen["metadata"]["resourceVersion"]}}
            query["force"] = "true"
        path = object_path(manifest["kind"], metadata["namespace"], metadata["name"])
        try:
            return self._request("PATCH", path, body, _APPLY, query)
        except ClusterError as error:
            if error.status != HTTPStatus.CONFLICT or seen is None or not again or manifest["kind"] not in WORKLOADS:
                raise
            current = self._with_other_status(manifest["kind"], seen)
            if current is None:
                raise
        return self._apply(manifest, current, again - 1)

    def _with_other_status(self, kind: str, seen: Manifest) -> Manifest | None:
        """Return a workload as it is now, if nothing of it has changed but its status; None otherwise."""
        metadata = seen["metadata"]
        try:
            standing = self._client.request("GET", object_path(kind, metadata["namespace"], metadata["name"]))
        except ClusterError:
            return None
        current = trimmed(standing, kind) if kind in KINDS else whole(standing, kind)
        before, now = ({**workload["metadata"], "resourceVersion": ""} for workload in (seen, current))
        return current if before == now else None

    def create(self, manifest: Manifest) -> None:
        """Create an object, unless one of its name exists, which is left as it is."""
        path = collection_path(manifest["kind"], manifest["metadata"]["namespace"])
        query = {"fieldManager": FIELD_MANAGER}
        self._request("POST", path, manifest, "application/json", query, passing=(HTTPStatus.CONFLICT,))

    def delete(self, namespace: str, deletion: Deletion) -> None:
        """Delete the object that was seen, and no other that has its name since."""
        path = object_path(deletion.kind, namespace, deletion.name)
        body = {"preconditions": {"uid": deletion.uid}, "propagationPolicy": "Background"}
        self._request("DELETE", path, body, "application/json", passing=_GONE)
        self._copies.drop(deletion.kind, namespace, deletion.name)

    def patch_pod(
        self, namespace: str, pod: str, metadata: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]]
    ) -> None:
        """Patch a pod; the uid in `metadata` makes the write fail on another pod of that name. Null removes a field.

        One write does both: with a pod's status the API server takes its labels and annotations, too (its strategy for
        status restores spec, deletion and owners only).
        """
        body = {"metadata": metadata} | ({"status": {"conditions": conditions}} if conditions else {})
        path, query = f"{object_path('Pod', namespace, pod)}/status", {"fieldManager": FIELD_MANAGER}
        self._record("Pod", self._request("PATCH", path, body, _STRATEGIC, query, passing=_GONE))

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
        self._record("PromptGroup", self._request("PATCH", path, body, _APPLY, query, passing=_GONE))

    def _record(self, kind: str, answer: dict[str, Any]) -> None:
        """Let no later pass read what was there before the write."""
        if not answer:
            return  # the object was gone
        part = trimmed(answer, kind) if kind in self._stores else None
        if part is None or SHORTENED in part:
            self._copies.record_write(kind, whole(answer, kind))
        if part is not None:
            self._stores[kind].put(part)

    def _request(
        self, method: str, path: str, body: Mapping[str, Any], content_type: str,
        query: Mapping[str, str] | None = None, *, passing: Sequence[int] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """Send a write while this process is the leader; it is not waited for beyond the term.

        Returns:
            The answer; empty for a refusal whose status is in `passing`.

        Raises:
            NotLeadingError: the term is over.
            ClusterError: there was no answer, or a refusal.
        """
        try:
            return self._client.request(method, path, body, content_type, query, limit=self._term.seconds_left())
        except ClusterError as error:
            if error.status in passing:
                return {}
            raise
