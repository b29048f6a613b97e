"""Objects as `kubectl get -o json` gives them, read over a connection that stays: for a twentieth of the CPU.

Whoever waits for a condition looks ten times a second, and a process of kubectl takes 55 ms of CPU for each look.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import urllib3

SECONDS = 10.0
"""Longest wait for an answer."""
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""All resources of all groups in two answers (KEP-3352)."""


class UnreadError(Exception):
    """The object was not read; kubectl knows more ways, and says why in its own words."""


class Resource(NamedTuple):
    """Where the objects of a kind are."""

    prefix: str
    plural: str
    namespaced: bool

    def path(self, namespace: str) -> str:
        """Return the path of the collection."""
        return (
            f"{self.prefix}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{self.prefix}/{self.plural}"
        )


@lru_cache(maxsize=8)
def _reader(kubeconfig: Path, _changed: int) -> "ApiReader":
    return ApiReader(kubeconfig)


def api_reader(kubeconfig: Path) -> "ApiReader":
    """Return the reader of a kubeconfig, as long as the file stays as it is.

    Raises:
        UnreadError: the file cannot be used.
    """
    try:
        return _reader(kubeconfig, kubeconfig.stat().st_mtime_ns)
    except OSError as error:
        raise UnreadError(str(error)) from error


class ApiReader:
    """Reads objects with the credentials of a kubeconfig. Safe to use from many threads."""

    def __init__(self, kubeconfig: Path) -> None:
        from kubernetes import config  # noqa: PLC0415 - takes a third of a second, which agents of nodes need not wait

        try:
            api = config.new_client_from_config(config_file=str(kubeconfig))
            _, context = config.list_kube_config_contexts(str(kubeconfig))
        except (config.ConfigException, OSError, ValueError, TypeError, KeyError) as error:
            raise UnreadError(str(error)) from error
        self._host: str = api.configuration.host
        self._pools: urllib3.PoolManager = api.rest_client.pool_manager
        self._headers = {each["key"]: each["value"] for each in api.configuration.auth_settings().values()}
        self._namespace: str = context["context"].get("namespace", "default")
        self._resources: dict[str, Resource] = {}

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """Return one object, None when there is none.

        Raises:
            UnreadError: there was no answer, or one that does not say whether there is such an object.
        """
        status, found = self._ask(f"{self._path(kind, namespace)}/{name}")
        if status == 404 and found.get("details", {}).get("name") == name:
            return None
        if status != 200:
            self._resources.clear()
            raise UnreadError(f"status {status}")
        return _shown(found)

    def list(self, kinds: str, selector: str, namespace: str) -> list[dict[str, Any]]:
        """Return the objects of one or more kinds.

        Raises:
            UnreadError: there was no answer, or another one than a list.
        """
        objects: list[dict[str, Any]] = []
        for kind in kinds.split(","):
            status, found = self._ask(self._path(kind, namespace), {"labelSelector": selector} if selector else {})
            if status != 200:
                self._resources.clear()
                raise UnreadError(f"status {status}")
            of_list = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
            objects += [_shown(of_list | each) for each in found["items"]]
        return objects

    def _path(self, kind: str, namespace: str) -> str:
        kind = kind.lower()  # a kind's own name in small letters is its resource's in the singular
        if kind not in self._resources:
            self._discover()
        if kind not in self._resources:
            raise UnreadError(f"no kind {kind}")
        return self._resources[kind].path(namespace or self._namespace)

    def _discover(self) -> None:
        """Learn by which words kinds may be named. The core group goes before others, as it does for kubectl."""
        resources: dict[str, Resource] = {}
        for root in ("/api", "/apis"):
            _, found = self._ask(root, accept=DISCOVERY)
            for group in found.get("items", []):
                name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    prefix = f"{root}/{name}/{version['version']}" if name else f"{root}/{version['version']}"
                    for each in version["resources"]:
                        resource = Resource(prefix, each["resource"], each["scope"] == "Namespaced")
                        for word in (each["resource"], each["singularResource"], *each.get("shortNames", [])):
                            resources.setdefault(word, resource)
        self._resources = resources

    def _ask(
        self, path: str, query: dict[str, str] | None = None, accept: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        try:
            answer = self._pools.request(
                "GET",
                f"{self._host}{path}",
                fields=query,
                headers=self._headers | {"accept": accept},
                retries=False,
                timeout=SECONDS,
            )
            found = orjson.loads(answer.data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise UnreadError(f"{type(error).__name__}: {error}") from error
        return answer.status, found if isinstance(found, dict) else {}


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out what kubectl leaves out."""
    found["metadata"].pop("managedFields", None)
    return found
