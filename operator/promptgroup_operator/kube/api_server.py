"""HTTP to the API server. This is the only module that uses the Kubernetes client library.

The library finds the cluster and its credentials (kubeconfig, exec plugins, in-cluster service account) and keeps the
connections; bodies stay JSON, because the operator writes objects of users' own fields that no model class knows.

Every request has a deadline for its whole answer and a limit in bytes, since objects are what users wrote, and through
the proxy an answer is a pod's own. Every failure becomes ClusterError here and nowhere else. Nothing is retried here:
the caller knows whether the request still matters.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.config import incluster_config
from prometheus_client import Counter

from promptgroup_operator.base import deadline, nesting, unreachable
from promptgroup_operator.base.errors import AnswerTooLongError, ClusterError, ImpossibleNameError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.telemetry.metrics import NO_ANSWER
from promptgroup_router.contract import names

REQUEST_SECONDS = 15.0
"""Longest wait for the API server. Its own limit for a request is 60 s, which is too long for a pass."""

RETRY_AFTER = 300.0
"""Longest pause in seconds that a server may ask for."""

PAGE = 500
"""Most objects in one page of a list, as kubectl asks for them. Fewer are asked for where they are large."""

MAX_ANSWER = 10 << 20
"""Most bytes of an answer: etcd holds objects of up to 1.5 MiB, and the API server writes six bytes for a `<` of them.
Parsed, an answer takes up to six times its size, and all kinds are listed at the same time."""

MAX_PROXIED = 64 << 20
"""Most bytes of a pod's answer: the metrics of a router with a thousand groups have 5 MiB."""

_GROUPS = f"/apis/{names.API_GROUP}/{names.API_VERSION}"
_KINDS = {
    "ConfigMap": ("/api/v1", "configmaps"),
    "Secret": ("/api/v1", "secrets"),
    "Pod": ("/api/v1", "pods"),
    "Event": ("/api/v1", "events"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "ReplicaSet": ("/apis/apps/v1", "replicasets"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "InferencePool": (f"/apis/{names.INFERENCE_GROUP}/v1", "inferencepools"),
    "PromptGroup": (_GROUPS, names.GROUP_PLURAL),
    "PromptRoute": (_GROUPS, names.ROUTE_PLURAL),
}

_BROKEN_CONFIG = (
    config.ConfigException,
    yaml.YAMLError,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
)
"""The errors of the client library for a kubeconfig that is missing, no YAML, a list, a text, or a directory."""


def watched(kinds: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the path of each API group and version that has some of the kinds → plural → kind."""
    by_version: dict[str, dict[str, str]] = {}
    for kind in kinds:
        version, plural = _KINDS[kind]
        by_version.setdefault(version, {})[plural] = kind
    return by_version


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


class KubeconfigChoice(NamedTuple):
    """A kubeconfig and a context of it that somebody named; what is empty is left to the environment and the file."""

    file: str = ""
    context: str = ""

    @property
    def path(self) -> str | None:
        """The kubeconfigs that are named, by a person or by the environment."""
        return self.file or os.environ.get("KUBECONFIG") or None


AMBIENT = KubeconfigChoice()
"""Nothing is named: the environment and the files decide."""


def connect(settings: Settings, named: KubeconfigChoice = AMBIENT) -> client.ApiClient:
    """Return a client for the cluster of the kubeconfig, or else of the pod's service account.

    Raises:
        ClusterError: there is neither, or the kubeconfig cannot be used; the message is one line.
    """
    configuration: Any = client.Configuration()
    token = settings.service_account_dir / "token"
    chosen = named.path
    if chosen or named.context or not token.exists():
        try:
            config.load_kube_config(chosen, named.context or None, client_configuration=configuration)
        except _BROKEN_CONFIG as error:
            file = chosen or "~/.kube/config"
            raise ClusterError(
                f"no cluster: kubeconfig {file} cannot be used: {_why(error)}: correct it, set KUBECONFIG to "
                "another one, or run inside a pod"
            ) from error
    else:
        try:
            incluster_config.InClusterConfigLoader(
                token_filename=str(token),
                cert_filename=str(settings.service_account_dir / "ca.crt"),
                try_refresh_token=False,
            ).load_and_set(configuration)
        except _BROKEN_CONFIG as error:
            folder = settings.service_account_dir
            raise ClusterError(
                f"no cluster: service account in {folder} cannot be used: {_why(error)}: mount its token, or set "
                "KUBECONFIG to a kubeconfig"
            ) from error
        configuration.refresh_api_key_hook = lambda each: _read_token(each, token)
    configuration.connection_pool_maxsize = settings.workers + settings.warmups
    return client.ApiClient(configuration)


def default_namespace(settings: Settings, named: KubeconfigChoice = AMBIENT) -> str:
    """Return the namespace of the kubeconfig's context, or else of the pod, or else `default`."""
    try:
        listed, current = config.list_kube_config_contexts(named.path)
        context = next((each for each in listed if each["name"] == named.context), current)
        return str(context["context"].get("namespace", "default"))
    except _BROKEN_CONFIG:
        file = settings.service_account_dir / "namespace"
        return file.read_text() if file.exists() else "default"


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


def _read_token(configuration: Any, file: Path) -> None:
    """Use the token that is in the file; the kubelet replaces it within the hour, or at once if asked to.

    Called for each request: reading a small file from memory takes 20 µs, and a refused token is never sent again.
    """
    configuration.api_key["BearerToken"] = f"bearer {file.read_text()}"


class KubeClient:
    """A client of the API server. Safe to use from many threads.

    Args:
        api_client: the connection.
        requests: a counter of requests by verb and code.
    """

    def __init__(self, api_client: client.ApiClient, requests: Counter) -> None:
        self._api = api_client
        self._pools = deadline.keep(api_client.rest_client.pool_manager)
        self._requests = requests
        self._silent = False
        """True since a request got no answer, until one does."""
        self.on_return: Callable[[], None] = lambda: None
        """Called, in the thread of the request, once the server answers again."""

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str | None = None,
        query: Mapping[str, str] | None = None,
        *,
        accept: str = "application/json",
        limit: float | None = None,
    ) -> dict[str, Any]:
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
            AnswerTooLongError: the answer has more than MAX_ANSWER bytes.
        """
        seconds = REQUEST_SECONDS if limit is None else min(limit, REQUEST_SECONDS)
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Accept": accept} | ({"Content-Type": content_type} if content_type else {})
        answer = self._whole(method, path, query=query, headers=headers, seconds=seconds, data=data, limit=MAX_ANSWER)
        return _json_object(answer, f"{method} {path}")

    def proxy_to_pod(
        self, namespace: str, pod: str, port: int, path: str, data: bytes | None = None, *, token: str = ""
    ) -> bytes:
        """Send a GET, or a POST of JSON `data`, to a router's pod through the API server's proxy.

        Args:
            namespace: of the pod.
            pod: its name.
            port: its admin port.
            path: on that port.
            data: the body of a POST.
            token: the admin token, for a change of state.

        Returns:
            The body of the answer.

        Raises:
            ClusterError: there was no answer, or a refusal by the API server or the pod.
        """
        proxied = f"{object_path('Pod', namespace, pod)}:{port}/proxy{path}"
        method, headers = ("GET", {}) if data is None else ("POST", {"Content-Type": "application/json"})
        headers[names.HEADER_CLIENT] = "api-server-proxy"
        if token:
            headers[names.HEADER_ADMIN_TOKEN] = token
        return self._whole(method, proxied, headers=headers, seconds=REQUEST_SECONDS, data=data, limit=MAX_PROXIED)

    def close(self) -> None:
        """Close the connections."""
        self._pools.clear()

    def count(self, verb: str, code: str) -> None:
        """Count a request of this process by its HTTP status or NO_ANSWER, and note whether the server answers."""
        self._requests.labels(verb, code).inc()
        if code == NO_ANSWER:
            self._silent = True
        elif self._silent and int(code) < 500:
            self._silent = False
            self.on_return()

    def _whole(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: dict[str, str],
        seconds: float,
        data: bytes | None,
        limit: int,
    ) -> bytes:
        """Send a request and return the answer's body, all of it within `seconds` and `limit` bytes."""
        timeout = urllib3.Timeout(total=seconds)
        with deadline.within(seconds, limit):
            response = self._send(method, path, query=query, headers=headers, timeout=timeout, data=data)
            try:
                answer = _body(response, limit)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                raise ClusterError(f"{method} {path}: {unreachable.reason(error)}") from error
        if answer is None:
            raise AnswerTooLongError(f"{method} {path}", limit)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        headers: dict[str, str],
        timeout: urllib3.Timeout,
        data: bytes | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and return the answer, whose body is not read."""
        url = f"{self._api.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
            response: urllib3.BaseHTTPResponse = self._pools.request(
                method, url, body=data, headers=headers, timeout=timeout, retries=False, preload_content=False
            )
            refusal = _body(response, MAX_ANSWER) if response.status >= 300 else b""
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self.count(method, NO_ANSWER)
            raise ClusterError(f"{method} {path}: {unreachable.reason(error)}") from error
        self.count(method, str(response.status))
        if response.status < 300:
            return response
        message = _message(refusal or b"")
        raise ClusterError(
            f"{method} {path}: {response.status} {message}",
            status=response.status,
            retry_after=_seconds(response.headers.get("Retry-After")),
            unknown_kind=response.status == 404 and not message,
        )


def list_objects(
    kube: KubeClient,
    path: str,
    query: Mapping[str, str],
    keep: Callable[[dict[str, Any]], Any] = lambda item: item,
    *,
    accept: str = "application/json",
) -> tuple[list[Any], str]:
    """List a collection in pages of PAGE objects (limit and continue), so that no answer grows with the cluster.

    A page that is too long, since its objects are large, is asked for again with half as many.

    Args:
        kube: client of the API server.
        path: path of the collection.
        query: query parameters.
        keep: returns the part of an object that is kept, before the next page is read.
        accept: accepted content type of the answers.

    Returns:
        The objects, or what is kept of them, and the resourceVersion of the list.

    Raises:
        ClusterError: there was no answer, a refusal, or an answer that is not a list of objects.
    """
    items: list[Any] = []
    page = {**query, "limit": str(PAGE)}
    while True:
        try:
            answer = kube.request("GET", path, query=page, accept=accept)
        except AnswerTooLongError:
            if page["limit"] == "1":
                raise
            page["limit"] = str(int(page["limit"]) // 2)
            continue
        try:
            items.extend(keep(each) for each in answer["items"] or ())
            version, following = str(answer["metadata"]["resourceVersion"]), answer["metadata"].get("continue")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ClusterError(f"GET {path}: the answer is not a list of objects") from error
        if not following:
            return items, version
        page["continue"] = str(following)


def _body(response: urllib3.BaseHTTPResponse, limit: int) -> bytes | None:
    """Return the body of an answer, None if it has more than `limit` bytes; the connection is kept if it was read."""
    try:
        data = response.read(limit + 1, decode_content=False)
        if len(data) > limit:
            return None
        if not response.read(1, decode_content=False):
            response.release_conn()
        return data
    finally:
        response.close()  # of a connection that was not released: nobody reads what else it sends


def _json_object(data: bytes, what: str) -> dict[str, Any]:
    try:
        answer = nesting.parse(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ClusterError(f"{what}: the answer is not a JSON object; a proxy may have answered for the API server")
    return answer


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data).get("message", ""))[:300]
    except (ValueError, AttributeError, RecursionError):
        return ""  # not written by the API server: a proxy's page


def _seconds(header: str | None) -> float | None:
    if header is None or not (header.isascii() and header.isdigit()):
        return None  # a date, which no Kubernetes API server sends
    return min(float(header), RETRY_AFTER)
