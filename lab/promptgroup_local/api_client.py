"""The requests that kubectl would send to the API server, over a connection that stays: for a twentieth of the CPU.

A process of kubectl takes 55 to 80 ms of CPU, and discovers the API's kinds before it sends its own request. Tests poll
conditions ten times a second, and each applies a group or two.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson
import urllib3

SECONDS = 10.0
"""Longest wait for an answer."""
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""All resources of all groups in two answers (KEP-3352)."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation with the fields that `kubectl apply` set the last time."""

ESCAPED = str.maketrans({item: f"\\u{ord(item):04x}" for item in "<>&\u2028\u2029"})
"""Characters that Go's JSON escapes: applied objects are compared byte by byte."""


class UnansweredError(Exception):
    """There was no answer, or an unexpected one; kubectl has other ways, and reports its own errors."""


class Resource(NamedTuple):
    """The place of a kind's objects in the API."""

    prefix: str
    plural: str
    namespaced: bool

    def path(self, namespace: str) -> str:
        """Return the path of the collection."""
        return (
            f"{self.prefix}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{self.prefix}/{self.plural}"
        )


@lru_cache(maxsize=8)
def _client(kubeconfig: Path, _changed: int) -> "ApiClient":
    return ApiClient(kubeconfig)


def api_client(kubeconfig: Path) -> "ApiClient":
    """Return the client of a kubeconfig, as long as the file stays as it is.

    Raises:
        UnansweredError: the file cannot be used.
    """
    try:
        return _client(kubeconfig, kubeconfig.stat().st_mtime_ns)
    except OSError as error:
        raise UnansweredError(str(error)) from error


class ApiClient:
    """Sends requests with the credentials of a kubeconfig. Safe to use from many threads.

    Each method raises `UnansweredError` where the API server gave no answer, refused, or has no such kind.
    """

    def __init__(self, kubeconfig: Path) -> None:
        from kubernetes import config  # noqa: PLC0415 - takes a third of a second, which agents of nodes need not wait

        try:
            api = config.new_client_from_config(config_file=str(kubeconfig))
            _, context = config.list_kube_config_contexts(str(kubeconfig))
        except (config.ConfigException, OSError, ValueError, TypeError, KeyError) as error:
            raise UnansweredError(str(error)) from error
        self._host: str = api.configuration.host
        self._pools: urllib3.PoolManager = api.rest_client.pool_manager
        self._headers = {
            auth_setting["key"]: auth_setting["value"] for auth_setting in api.configuration.auth_settings().values()
        }
        self._namespace: str = context["context"].get("namespace", "default")
        self._resources: dict[str, Resource] = {}

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """Return one object as `kubectl get -o json` does, None when there is none."""
        status, result = self._ask("GET", f"{self._path(kind, namespace)}/{name}")
        if status == 404 and result.get("details", {}).get("name") == name:
            return None
        return _shown(self._accepted(status, result))

    def list(self, kinds: str, selector: str, namespace: str) -> list[dict[str, Any]]:
        """Return the objects of one or more kinds as `kubectl get -o json` does."""
        objects: list[dict[str, Any]] = []
        for kind in kinds.split(","):
            query = {"labelSelector": selector} if selector else {}
            accepted = self._accepted(*self._ask("GET", self._path(kind, namespace), query))
            of_list = {"apiVersion": accepted["apiVersion"], "kind": accepted["kind"].removesuffix("List")}
            objects += [_shown(of_list | item) for item in accepted["items"]]
        return objects

    def create(self, desired: Mapping[str, Any], namespace: str) -> None:
        """Create an object as `kubectl apply` does one that is not there."""
        resource = self._resource(_word(desired["apiVersion"], desired["kind"]))
        metadata = {"annotations": {}, **desired["metadata"]}
        if resource.namespaced:
            metadata.setdefault("namespace", namespace or self._namespace)
        applied = (
            orjson.dumps({**desired, "metadata": metadata}, option=orjson.OPT_SORT_KEYS).decode().translate(ESCAPED)
        )
        metadata["annotations"] = {**metadata["annotations"], LAST_APPLIED: applied + "\n"}
        query = {"fieldManager": "kubectl-client-side-apply", "fieldValidation": "Strict"}
        path = resource.path(metadata.get("namespace", ""))
        self._accepted(*self._ask("POST", path, query, {**desired, "metadata": metadata}))

    def apply(self, desired: Mapping[str, Any], namespace: str) -> None:
        """Create or change an object as `kubectl apply --server-side` does."""
        resource, metadata = self._resource(_word(desired["apiVersion"], desired["kind"])), desired["metadata"]
        path = f"{resource.path(metadata.get('namespace') or namespace or self._namespace)}/{metadata['name']}"
        query = {"fieldManager": "kubectl", "fieldValidation": "Strict", "force": "false"}
        self._accepted(*self._ask("PATCH", path, query, desired, kind="application/apply-patch+yaml"))

    def patch(self, kind: str, name: str, body: Mapping[str, Any], namespace: str, subresource: str = "") -> None:
        """Merge a patch into an object as `kubectl patch --type=merge` does."""
        path = f"{self._path(kind, namespace)}/{name}{f'/{subresource}' if subresource else ''}"
        query = {"fieldManager": "kubectl-patch"}
        self._accepted(*self._ask("PATCH", path, query, body, kind="application/merge-patch+json"))

    def delete(self, kind: str, name: str, namespace: str) -> str:
        """Delete an object as `kubectl delete --wait=false` does; returns its uid."""
        path = f"{self._path(kind, namespace)}/{name}"
        accepted = self._accepted(*self._ask("DELETE", path, body={"propagationPolicy": "Background"}))
        uid: str = (accepted.get("details") or accepted["metadata"])["uid"]
        return uid

    def _accepted(self, status: int, result: dict[str, Any]) -> dict[str, Any]:
        if status not in (200, 201, 202):
            if status == 404:  # the kind may have been removed, or be served elsewhere
                self._resources.clear()
            raise UnansweredError(f"status {status}")
        return result

    def _path(self, kind: str, namespace: str) -> str:
        kind = kind.lower()  # a kind's own name in small letters is its resource's in the singular
        return self._resource(kind).path(namespace or self._namespace)

    def _resource(self, word: str) -> Resource:
        if word not in self._resources:
            self._discover()
        if word not in self._resources:
            raise UnansweredError(f"no kind {word}")
        return self._resources[word]

    def _discover(self) -> None:
        """Discover the names of kinds. The core group precedes the others, as it does for kubectl."""
        resources: dict[str, Resource] = {}
        for root in ("/api", "/apis"):
            _, result = self._ask("GET", root, accept=DISCOVERY)
            for group in result.get("items", []):
                name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    of = f"{name}/{version['version']}".lstrip("/")
                    for item in version["resources"]:
                        resource = Resource(f"{root}/{of}", item["resource"], item["scope"] == "Namespaced")
                        kind = _word(of, item["responseKind"]["kind"])
                        for word in (kind, item["resource"], item["singularResource"], *item.get("shortNames", [])):
                            resources.setdefault(word, resource)
        self._resources = resources

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        kind: str = "application/json",
        accept: str = "application/json",
    ) -> tuple[int, dict[str, Any]]:
        try:
            answer = self._pools.request(
                method,
                f"{self._host}{path}{f'?{urlencode(query)}' if query else ''}",
                body=orjson.dumps(body) if body is not None else None,
                headers=self._headers | {"accept": accept, "content-type": kind},
                retries=False,
                timeout=SECONDS,
            )
            result = orjson.loads(answer.data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise UnansweredError(f"{type(error).__name__}: {error}") from error
        return answer.status, result if isinstance(result, dict) else {}


def _word(version: str, kind: str) -> str:
    """Return the one word for a kind of a version: `apps/v1, Deployment`."""
    return f"{version}, {kind}"


def _shown(result: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields that kubectl does not show."""
    result["metadata"].pop("managedFields", None)
    return result
