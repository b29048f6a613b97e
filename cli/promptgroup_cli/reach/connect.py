"""How commands reach a cluster and its routers. Whatever fails is one line that names what, and a way out."""

import argparse
from collections.abc import Callable, Mapping
from typing import Self

import urllib3
from prometheus_client import Counter

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.kube.decode import admin_port
from promptgroup_operator.world.snapshot import Manifest
from promptgroup_router.contract import names

SECONDS = 15.0
"""Longest wait for a router whose address was given."""

Router = Callable[[str, bytes | None], bytes]
"""Path on a router's admin port, and what to post there (None: to get) → its answer. Raises ReachError."""


class ReachError(Exception):
    """Something is not there, does not answer, or may not be asked."""


def add_namespace(parser: argparse._ActionsContainer) -> None:
    """Add the flag that kubectl has."""
    parser.add_argument("-n", "--namespace", metavar="NS", help="default: that of the kubeconfig's context")


def add_router(parser: argparse._ActionsContainer) -> None:
    """Add the flag that names a router."""
    parser.add_argument(
        "--router",
        metavar="URL",
        help="admin port of one router, as in http://127.0.0.1:9090 (default: the namespace's, through the API server)",
    )


class ClusterConnection:
    """The cluster that the kubeconfig names, for the time of a `with`.

    Raises:
        ReachError: there is none; so does each method.
    """

    def __init__(self, namespace: str | None) -> None:
        # the client takes half a second to import, which other commands should not wait for
        from promptgroup_operator.kube import api_server  # noqa: PLC0415

        settings = Settings()
        try:
            api = api_server.connect(settings)
        except ClusterError as error:
            raise ReachError(f"{error}: set KUBECONFIG to a kubeconfig, or run inside a pod") from None
        # counted for nobody
        self._server = api_server.KubeClient(api, Counter("requests", "Requests.", ["verb", "code"], registry=None))
        self.namespace = namespace or api_server.default_namespace(settings)
        self._collection = api_server.collection_path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def list(self, kind: str, namespace: str, *, labels: str = "", name: str = "") -> list[Manifest]:
        """Objects of a kind in a namespace, in all of them when it is empty; those with these labels, of this name."""
        query = {"labelSelector": labels, "fieldSelector": f"metadata.name={name}" if name else ""}
        query = {key: value for key, value in query.items() if value}
        try:
            found: list[Manifest] = self._server.request("GET", self._collection(kind, namespace), query=query)["items"]
        except ClusterError as error:
            raise ReachError(_plain(error, kind)) from None
        return found

    def routers(self, namespace: str) -> Mapping[str, Router]:
        """The routers of a namespace that are ready, by the name of their pod."""
        pods = self.list("Pod", namespace, labels=f"app.kubernetes.io/name={names.ROUTER}")
        found = {each["metadata"]["name"]: self._router(each) for each in pods if _ready(each)}
        if not found:
            raise ReachError(
                f"no router is ready in namespace {namespace}: name another one with -n, or a router by --router URL; "
                f"`kubectl apply -k manifests/router -n {namespace}` installs one"
            )
        return found

    def _router(self, pod: Manifest) -> Router:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        port = admin_port(pod)

        def ask(path: str, body: bytes | None) -> bytes:
            try:
                return self._server.proxy_to_pod(namespace, name, port, path, body)
            except ClusterError as error:
                raise ReachError(
                    f"router {namespace}/{name} does not answer through the API server: {error}; instead: "
                    f"`kubectl port-forward -n {namespace} {name} {port}` and --router http://127.0.0.1:{port}"
                ) from None

        return ask


def router_at(url: str) -> Router:
    """The router whose admin port is there."""

    def ask(path: str, body: bytes | None) -> bytes:
        method = "GET" if body is None else "POST"
        try:
            with urllib3.PoolManager(retries=False, timeout=SECONDS) as pool:
                response = pool.request(method, url.rstrip("/") + path, body=body)
        except urllib3.exceptions.HTTPError as error:
            raise ReachError(f"--router {url} does not answer: {type(error).__name__}") from None
        if response.status != 200:
            raise ReachError(f"--router {url} answers {response.status} to {path}: is it an admin port (9090)?")
        return response.data

    return ask


def _ready(pod: Manifest) -> bool:
    conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def _plain(error: ClusterError, kind: str) -> str:
    match error.status:
        case None:
            return f"the API server does not answer ({error}): is the cluster up, and does KUBECONFIG name it?"
        case 401:
            return "the API server does not accept the kubeconfig's credentials: log in again"
        case 403:
            return f"{error}: ask for a role that may get and list it"
        case 404:
            return f"the cluster has no kind {kind}: `kubectl apply -k crds` installs the CRDs"
        case _:
            return str(error)
