"""Read objects that are not watched by name, through a cache."""

import base64
from collections.abc import Callable, Mapping
from http import HTTPStatus
from time import monotonic
from typing import Any

from promptgroup_contract import names
from promptgroup_operator.base.errors import ClusterError, UnreadError
from promptgroup_operator.kube.api_server import KubeClient, collection_path, list_objects, object_path
from promptgroup_operator.observe.decode import router_of
from promptgroup_operator.observe.get_cache import GetCache
from promptgroup_operator.plan import status
from promptgroup_operator.plan.prompt import BINARY, NOT_TEXT, Texts
from promptgroup_operator.world.snapshot import LEADER_WORKER_SET, ContainerId, Key, Manifest, Problem
from promptgroup_operator.world.trimmed import whole

LABEL_NAME = "app.kubernetes.io/name"
"""Kubernetes' recommended label, by which the routers' pods are selected."""
REFUSAL = "refusal"
"""Key of the placeholder for an object that the operator cannot read → status of the API server's response: one of
OPTIONAL in a cluster without the kind, or an InferencePool that the operator's role leaves out."""
OPTIONAL = frozenset({"InferencePool", LEADER_WORKER_SET})
"""Kinds of other projects, which a cluster may not have."""

OWN_SECONDS = 600.0
"""Maximum age in seconds of a copy of an object that the operator wrote: prompt objects are immutable, and the deletion
of one affects only new routers."""
REFERENCED_SECONDS = 10.0
"""Maximum age in seconds for objects of users: the next pass of an idle group (plan.REFERENCED) must detect an edit."""


class UnwatchedObjects:
    """The reads by name, for one operator process. Safe to use from many threads.

    Args:
        client: client of the API server.
        clock: monotonic time in seconds, for the age of copies.
    """

    def __init__(self, client: KubeClient, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self.cache = GetCache(self._read, clock, self.is_away)

    def get(self, key: Key, kind: str, name: str, seconds: float = OWN_SECONDS) -> Manifest | None:
        """Return an object of the group's namespace, read at most `seconds` ago; None if there is none.

        Raises:
            UnreadError: it cannot be read, and there is no copy.
            ClusterError: the API server does not respond.
        """
        return self.cache.get(key, kind, name, seconds)

    def get_if_readable(self, key: Key, kind: str, name: str, seconds: float = OWN_SECONDS) -> Manifest | None:
        """Return an object as `get` does; None also if it is unknown whether it exists."""
        try:
            return self.get(key, kind, name, seconds)
        except UnreadError:
            return None

    def values(self, key: Key, kind: str, name: str) -> Texts | None:
        """Return the data of a ConfigMap or Secret of users as text; None if there is none.

        Raises:
            UnreadError: it cannot be read, and there is no copy.
            ClusterError: the API server does not respond.
        """
        manifest = self.get(key, kind, name, REFERENCED_SECONDS)
        return texts(manifest) if manifest is not None else None

    def problem(self, key: Key) -> Problem | None:
        """Return the problem of failed reads in this pass, with the API server's message; None if there were none."""
        words = self.cache.problem(key)
        return Problem(status.UNREAD, words) if words else None

    def is_away(self, key: Key) -> bool:
        """Return True if the API server does not respond to a read of a group, or cannot serve it now."""
        try:
            self._read("PromptGroup", key.namespace, key.name)
        except ClusterError as error:
            return error.may_be_outage
        return False

    def list_routers(self, namespace: str) -> dict[ContainerId, str]:
        """Return the routers and pickers that run in a namespace: container → address of the admin port.

        Raises:
            ClusterError: the API server did not respond, or rejected the request.
        """
        query = {"labelSelector": f"{LABEL_NAME} in ({names.ROUTER},{names.PICKER})"}
        routers, _ = list_objects(self._client, collection_path("Pod", namespace), query, router_of)
        return dict(router for router in routers if router is not None)

    def _read(self, kind: str, namespace: str, name: str) -> Manifest | None:
        if kind == "PromptGroup":
            # Read with a list request, for which the watch needs permission anyway.
            query = {"fieldSelector": f"metadata.name={name}"}
            groups, _ = list_objects(self._client, collection_path(kind, namespace), query)
            return whole(groups[0], kind) if groups else None
        try:
            return whole(self._client.request("GET", object_path(kind, namespace, name)), kind)
        except ClusterError as error:
            left_out = kind == "InferencePool" and error.status == HTTPStatus.FORBIDDEN
            if left_out or (kind in OPTIONAL and error.unknown_kind):
                return {"metadata": {"namespace": namespace, "name": name}, REFUSAL: error.status}
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise


def texts(manifest: Mapping[str, Any]) -> Texts:
    """Return the data of a ConfigMap or Secret as text, with the keys whose values are no text."""
    if manifest["kind"] == "ConfigMap":
        return Texts(manifest.get("data") or {}, dict.fromkeys(manifest.get("binaryData") or {}, BINARY))
    decoded, unreadable = {}, {}
    for key, value in (manifest.get("data") or {}).items():
        try:
            decoded[key] = base64.b64decode(value).decode()
        except ValueError:
            unreadable[key] = NOT_TEXT
    return Texts(decoded, unreadable)
