"""HTTP to the API server. The only module that holds the Kubernetes client.

Every request has a time limit; every failure becomes ClusterError here and nowhere else. Nothing is tried twice here:
who asked knows whether the question still stands.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from kubernetes import client, config
from kubernetes.config import incluster_config

from promptgroup_operator.errors import ClusterError
from promptgroup_operator.settings import Settings
from promptgroup_router.contract import names

REQUEST_SECONDS = 15.0
"""Longest wait for the API server: its own limit for a request that is no watch is 60 s, a pass should not take it."""

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


def collection(kind: str, namespace: str) -> str:
    """Path of a kind's objects in a namespace; in all of them when it is empty."""
    prefix, plural = _KINDS[kind]
    return f"{prefix}/namespaces/{quote(namespace)}/{plural}" if namespace else f"{prefix}/{plural}"


def connect(settings: Settings) -> client.ApiClient:
    """A client for the cluster: a kubeconfig when there is one, else the pod's service account.

    Raises:
        config.ConfigException: neither is there.
    """
    configuration: Any = client.Configuration()
    token = settings.service_account_dir / "token"
    if os.environ.get("KUBECONFIG") or not token.exists():
        config.load_kube_config(client_configuration=configuration)
    else:
        incluster_config.InClusterConfigLoader(
            token_filename=str(token),
            cert_filename=str(settings.service_account_dir / "ca.crt"),
            try_refresh_token=False,
        ).load_and_set(configuration)
        configuration.refresh_api_key_hook = lambda each: _read_token(each, token)
    configuration.connection_pool_maxsize = settings.workers + settings.warmups
    return client.ApiClient(configuration)


def _read_token(configuration: Any, file: Path) -> None:
    """Use the token that stands in the file; it is replaced within the hour, or at once when the node says so.

    Called for each request: to read a small file in memory takes 20 µs, and a refused token is never tried again.
    """
    configuration.api_key["BearerToken"] = f"bearer {file.read_text()}"


class ApiServer:
    """The API server, for one operator process. Safe to use from many threads."""

    def __init__(self, api_client: client.ApiClient) -> None:
        self._api = api_client

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
        headers = {"Accept": accept} | ({"Content-Type": content_type} if content_type else {})
        url = f"{self._api.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        seconds = REQUEST_SECONDS if limit is None else min(limit, REQUEST_SECONDS)
        try:
            self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
            response = self._api.rest_client.pool_manager.request(
                method,
                url,
                body=json.dumps(body).encode() if body is not None else None,
                headers=headers,
                timeout=urllib3.Timeout(total=seconds),
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterError(f"{method} {path}: {type(error).__name__}") from error
        if response.status < 300:
            answer: dict[str, Any] = json.loads(response.data)
            return answer
        raise ClusterError(
            f"{method} {path}: {response.status} {_message(response.data)}",
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
