"""Requests to the API server. Only this module and `kube/session.py` use the Kubernetes client library.

The library finds the cluster and its credentials (kubeconfig, exec plugins, proxies, the service account's token), and
`DynamicClient` sends every request, with a time-out and without retries: the caller decides if the request is still
needed. Responses are parsed by `json` alone, since the library's `ResourceInstance` takes five times as long again.
Every failure becomes ClusterError here and nowhere else.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.dynamic import DynamicClient
from prometheus_client import Counter

from promptgroup_contract import names
from promptgroup_operator.base import deadline, nesting, unreachable
from promptgroup_operator.base.errors import ClusterError, ImpossibleNameError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.telemetry.metrics import NO_ANSWER

REQUEST_SECONDS = 15.0
"""Longest wait for the API server. Its own limit for a request is 60 s, which is too long for a pass."""
WRITERS = 32
"""Writes of pods that passes share; as many again for namespaces that have none (`base.fair_pool`)."""
RETRY_AFTER = 300.0
"""Longest pause in seconds that a server may ask for."""
PAGE = 100
"""Objects in a page of a list: users write objects of up to 1.5 MiB."""

_GROUPS = f"/apis/{names.API_GROUP}/{names.API_VERSION}"
_KINDS = {
    "ConfigMap": ("/api/v1", "configmaps"),
    "Secret": ("/api/v1", "secrets"),
    "Service": ("/api/v1", "services"),
    "Pod": ("/api/v1", "pods"),
    "Node": ("/api/v1", "nodes"),
    "Event": ("/api/v1", "events"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "LeaderWorkerSet": ("/apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
    "DaemonSet": ("/apis/apps/v1", "daemonsets"),
    "ReplicaSet": ("/apis/apps/v1", "replicasets"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "InferencePool": (f"/apis/{names.INFERENCE_GROUP}/v1", "inferencepools"),
    "PromptGroup": (_GROUPS, names.GROUP_PLURAL),
    "PromptRoute": (_GROUPS, names.ROUTE_PLURAL),
}
"""Kind → path of its API group and version, and plural. No discovery: it would ask at every start, and the library
keeps what it learned in a file that everybody on the machine may write."""

_BROKEN_CONFIG = (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, LookupError, AttributeError)
"""The errors of the client library for a kubeconfig that is missing, no YAML, a list, a text, or a directory."""


def collection_path(kind: str, namespace: str) -> str:
    """Return the path of a kind's objects in a namespace, or in all namespaces if `namespace` is empty.

    Raises:
        ImpossibleNameError: no namespace can have this name.
    """
    prefix, plural = _KINDS[kind]
    return f"{prefix}/namespaces/{_segment(kind, namespace)}/{plural}" if namespace else f"{prefix}/{plural}"


def object_path(kind: str, namespace: str, name: str) -> str:
    """Return the path of an object. Every request for an object gets its path here.

    Raises:
        ImpossibleNameError: no object can have this name, or no namespace can have its own.
    """
    return f"{collection_path(kind, namespace)}/{_segment(kind, name)}"


def _segment(kind: str, name: str) -> str:
    """Return a name as one segment of a path, which leads to nothing but what has the name."""
    if not names.is_object_name(name):
        raise ImpossibleNameError(kind, name)
    return quote(name, safe="")


def connect(settings: Settings, file: str = "", context: str = "") -> client.ApiClient:
    """Return a client for the cluster of a kubeconfig, or else of the pod's service account.

    Args:
        settings: of the process.
        file: the kubeconfig; empty for what the environment names.
        context: one of its contexts; empty for its current one.

    Raises:
        ClusterError: there is neither, or the kubeconfig cannot be used; the message is one line.
    """
    configuration: Any = client.Configuration()
    configuration.retries = False
    configuration.connection_pool_maxsize = settings.workers + settings.warmups + 2 * WRITERS
    folder, file = settings.service_account_dir, file or os.environ.get("KUBECONFIG", "")
    in_pod = not file and not context and (folder / "token").exists()
    try:
        if in_pod:
            InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt")).load_and_set(configuration)
        else:
            config.load_kube_config(file or None, context or None, client_configuration=configuration)
    except _BROKEN_CONFIG as error:
        subject = f"service account in {folder}" if in_pod else f"kubeconfig {file or '~/.kube/config'}"
        mend = "correct it, set KUBECONFIG to another one, or run inside a pod"
        out = "mount its token, or set KUBECONFIG to a kubeconfig" if in_pod else mend
        raise ClusterError(f"no cluster: {subject} cannot be used: {_why(error)}: {out}") from error
    api = client.ApiClient(configuration)
    # certificates of clusters' own authorities may lack extensions that Python 3.13 requires
    deadline.keep(api.rest_client.pool_manager)
    return api


def _why(error: Exception) -> str:
    """Say in one line why a configuration cannot be used. A file's own text is not repeated: it holds credentials."""
    if isinstance(error, config.ConfigException):
        return " ".join(str(error).split())[:300].rstrip(".")
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"not YAML (line {mark.line + 1}, column {mark.column + 1})"
    return "not YAML" if isinstance(error, yaml.YAMLError) else "not a kubeconfig (expected a mapping, kind: Config)"


class KubeClient:
    """A client of the API server. Safe to use from many threads.

    Args:
        api_client: the connection.
        requests: a counter of requests by verb and code.
    """

    def __init__(self, api_client: client.ApiClient, requests: Counter) -> None:
        self.api = api_client
        self._client = DynamicClient(api_client, discoverer=lambda *_: None)
        self._requests = requests
        self._silent = False
        """True since a request got no answer, until one does."""
        self.on_return: Callable[[], None] = lambda: None
        """Called, in the thread of the request, once the server answers again."""

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str | None = None,
        query: Mapping[str, str] | None = None, *, accept: str = "application/json", limit: float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Send a request and return the answer.

        Args:
            method: HTTP method.
            path: path on the server.
            body: object to send.
            content_type: content type of the body.
            query: query parameters.
            accept: accepted content type of the answer.
            limit: longest wait in seconds; at most REQUEST_SECONDS.

        Raises:
            ClusterError: there was no answer in time, a refusal, or an answer that is not a JSON object.
        """
        subject, code = f"{method} {path}", NO_ANSWER
        try:
            with cluster_errors(subject):
                response = self._client.request(
                    method,
                    path,
                    body=body,
                    content_type=content_type,
                    query_params=list((query or {}).items()),
                    header_params={"Accept": accept},
                    _request_timeout=REQUEST_SECONDS if limit is None else min(limit, REQUEST_SECONDS),
                    serialize=False,
                )
                data, code = response.data, str(response.status)
        except ClusterError as error:
            code = NO_ANSWER if error.status is None else str(error.status)
            raise
        finally:
            self.count(method, code)
        with contextlib.suppress(ValueError):
            answer = nesting.parse(data)
            if isinstance(answer, dict):
                return answer
        raise ClusterError(f"{subject}: the answer is not a JSON object; a proxy may have answered")

    def count(self, verb: str, code: str) -> None:
        """Count a request of this process by its HTTP status or NO_ANSWER, and note whether the server answers."""
        self._requests.labels(verb, code).inc()
        if code == NO_ANSWER:
            self._silent = True
        elif self._silent and int(code) < 500:
            self._silent = False
            self.on_return()


def list_objects(
    kube: KubeClient, path: str, query: Mapping[str, str], keep: Callable[[dict[str, Any]], Any] = lambda item: item,
    *, accept: str = "application/json",
) -> tuple[list[Any], str]:  # fmt: skip
    """List a collection in pages of PAGE objects (limit and continue), so that no answer grows with the cluster.

    Only the result of `keep` is stored for each object, so that one page at most is in memory.

    Returns:
        The results of `keep`, by default the objects, and the resourceVersion of the list.

    Raises:
        ClusterError: there was no answer, a refusal, or an answer that is not a list of objects.
    """
    items: list[Any] = []
    page = {**query, "limit": str(PAGE)}
    while True:
        answer = kube.request("GET", path, query=page, accept=accept)
        try:
            items.extend(keep(item) for item in answer["items"] or ())
            version, following = answer["metadata"]["resourceVersion"], answer["metadata"].get("continue")
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # the response of a proxy
            raise ClusterError(f"GET {path}: the answer is not a list of objects") from error
        if not following:
            return items, version
        page["continue"] = following


@contextlib.contextmanager
def cluster_errors(subject: str) -> Iterator[None]:
    """Raise the errors of the client library for a request, named by method and path, as ClusterError."""
    try:
        yield
    except client.ApiException as error:
        if not error.status:  # the library reports TLS errors in this way
            raise ClusterError(f"{subject}: {unreachable.reason(urllib3.exceptions.SSLError())}") from error
        message, after = _message(error.body), (error.headers or {}).get("Retry-After", "")
        raise ClusterError(
            f"{subject}: {error.status} {message}",
            status=error.status,
            retry_after=min(float(after), RETRY_AFTER) if after.isascii() and after.isdigit() else None,
            unknown_kind=error.status == 404 and not message,
        ) from error
    except (urllib3.exceptions.HTTPError, OSError, config.ConfigException) as error:
        raise ClusterError(f"{subject}: {unreachable.reason(error)}") from error


def _message(body: Any) -> str:
    try:
        return str(json.loads(body).get("message", ""))[:300]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ""  # the page of a proxy, not of the API server
