"""HTTP to the API server. The only module that holds the Kubernetes client.

Every request has a time limit; every failure becomes ClusterError here and nowhere else. Nothing is tried twice here:
who asked knows whether the question still stands.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from kubernetes import client, config
from kubernetes.config import incluster_config
from prometheus_client import Counter

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.telemetry.metrics import NO_ANSWER, WATCH
from promptgroup_router.contract import names

REQUEST_SECONDS = 15.0
"""Longest wait for the API server: its own limit for a request that is no watch is 60 s, a pass should not take it."""

CHUNK = 65_536
"""Most bytes of a watch read at once: several events at a time under load."""

_GROUPS = f"/apis/{names.API_GROUP}/{names.API_VERSION}"
_KINDS = {
    "ConfigMap": ("/api/v1", "configmaps"),
    "Secret": ("/api/v1", "secrets"),
    "Pod": ("/api/v1", "pods"),
    "Event": ("/api/v1", "events"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "PromptGroup": (_GROUPS, names.GROUP_PLURAL),
    "PromptRoute": (_GROUPS, names.ROUTE_PLURAL),
}


def collection_path(kind: str, namespace: str) -> str:
    """Path of a kind's objects in a namespace; in all of them when it is empty."""
    prefix, plural = _KINDS[kind]
    return f"{prefix}/namespaces/{quote(namespace)}/{plural}" if namespace else f"{prefix}/{plural}"


def connect(settings: Settings) -> client.ApiClient:
    """A client for the cluster: a kubeconfig when there is one, else the pod's service account.

    Raises:
        ClusterError: neither is there.
    """
    configuration: Any = client.Configuration()
    token = settings.service_account_dir / "token"
    if os.environ.get("KUBECONFIG") or not token.exists():
        try:
            config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=configuration)
        except config.ConfigException as error:
            raise ClusterError(f"no cluster: {error}") from error
    else:
        incluster_config.InClusterConfigLoader(
            token_filename=str(token),
            cert_filename=str(settings.service_account_dir / "ca.crt"),
            try_refresh_token=False,
        ).load_and_set(configuration)
        configuration.refresh_api_key_hook = lambda each: _read_token(each, token)
    configuration.connection_pool_maxsize = settings.workers + settings.warmups
    return client.ApiClient(configuration)


def default_namespace(settings: Settings) -> str:
    """The namespace that is meant where none is named: that of the kubeconfig's context, or the pod's own."""
    try:
        _, context = config.list_kube_config_contexts(os.environ.get("KUBECONFIG"))
    except config.ConfigException:
        file = settings.service_account_dir / "namespace"
        return file.read_text() if file.exists() else "default"
    return str(context["context"].get("namespace", "default"))


def _read_token(configuration: Any, file: Path) -> None:
    """Use the token that stands in the file; it is replaced within the hour, or at once when the node says so.

    Called for each request: to read a small file in memory takes 20 µs, and a refused token is never tried again.
    """
    configuration.api_key["BearerToken"] = f"bearer {file.read_text()}"


class KubeClient:
    """The API server, for one operator process. Safe to use from many threads.

    Args:
        api_client: the connection.
        requests: counts them by verb and code.
    """

    def __init__(self, api_client: client.ApiClient, requests: Counter) -> None:
        self._api = api_client
        self._requests = requests

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
            method: of HTTP.
            path: on the server.
            body: what to send.
            content_type: of the body.
            query: parameters.
            accept: form of the answer.
            limit: longest wait in seconds; REQUEST_SECONDS at most.

        Raises:
            ClusterError: no answer, or a refusal.
        """
        seconds = REQUEST_SECONDS if limit is None else min(limit, REQUEST_SECONDS)
        timeout = urllib3.Timeout(total=seconds)
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Accept": accept} | ({"Content-Type": content_type} if content_type else {})
        response = self._send(method, path, query=query, headers=headers, timeout=timeout, data=data)
        answer: dict[str, Any] = json.loads(response.data)
        return answer

    def proxy_to_pod(self, namespace: str, pod: str, port: int, path: str, data: bytes | None = None) -> bytes:
        """What a pod answers, through the API server's proxy: to a GET, or to a POST of JSON.

        Raises:
            ClusterError: no answer, or a refusal, be it the pod's own.
        """
        proxied = f"{collection_path('Pod', namespace)}/{quote(pod)}:{port}/proxy{path}"
        method, headers = ("GET", {}) if data is None else ("POST", {"Content-Type": "application/json"})
        timeout = urllib3.Timeout(total=REQUEST_SECONDS)
        answer: bytes = self._send(method, proxied, query=None, headers=headers, timeout=timeout, data=data).data
        return answer

    def close(self) -> None:
        """Let go of the connections."""
        self._api.rest_client.pool_manager.clear()

    def watch(self, path: str, query: Mapping[str, str], silent: float) -> Iterator[dict[str, Any]]:
        """Events of one watch, until the server ends it.

        Args:
            path: of the collection.
            query: parameters.
            silent: longest time in seconds without any event.

        Raises:
            ClusterError: no answer, a refusal, or silence.
        """
        timeout = urllib3.Timeout(connect=REQUEST_SECONDS, read=silent)
        response = self._send(
            "GET", path, query=query, headers={"Accept": "application/json"}, timeout=timeout, preload=False
        )
        try:
            rest = b""
            for chunk in response.stream(CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ClusterError(f"watch {path}: {type(error).__name__}") from error
        finally:
            response.close()

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        headers: dict[str, str],
        timeout: urllib3.Timeout,
        data: bytes | None = None,
        preload: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        verb = method if preload else WATCH
        url = f"{self._api.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
            response: urllib3.BaseHTTPResponse = self._api.rest_client.pool_manager.request(
                method, url, body=data, headers=headers, timeout=timeout, retries=False, preload_content=preload
            )
            refusal = response.data if response.status >= 300 else b""
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._requests.labels(verb, NO_ANSWER).inc()
            raise ClusterError(f"{method} {path}: {type(error).__name__}") from error
        self._requests.labels(verb, str(response.status)).inc()
        if response.status < 300:
            return response
        raise ClusterError(
            f"{method} {path}: {response.status} {_message(refusal)}",
            status=response.status,
            retry_after=_seconds(response.headers.get("Retry-After")),
        )


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data).get("message", ""))[:300]
    except (ValueError, AttributeError):
        return ""  # not the API server's: a proxy's page


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isdigit() else None
