"""Asks routers' pods through the API server's proxy. The answer is a pod's own: it ends by a deadline and a size."""

import json
from typing import Any, NamedTuple

from promptgroup_operator.base import deadline
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.api_server import cluster_errors, object_path
from promptgroup_router.contract import names

SECONDS = 15.0
"""Deadline for the whole answer."""
ANSWER_BYTES = 64 << 20
"""Limit of an answer: the metrics of a router with a thousand groups have 5 MiB."""


class AdminPort(NamedTuple):
    """The admin port of a router's pod."""

    namespace: str
    pod: str
    number: int


def ask_pod(api: Any, port: AdminPort, path: str, data: bytes | None = None, *, token: str = "") -> bytes:
    """Send a GET, or a POST of JSON `data`, to a router's pod and return the body of the answer.

    Args:
        api: connection of the Kubernetes client, as `kube.api_server.connect` makes it.
        port: where the router listens.
        path: on that port.
        data: the body of a POST.
        token: the admin token, for a change of state.

    Raises:
        ClusterError: there was no answer within the limits, or a refusal by the API server or the pod.
    """
    proxied = f"{object_path('Pod', port.namespace, port.pod)}:{port.number}/proxy{path}"
    method, headers = ("GET", {}) if data is None else ("POST", {"Content-Type": "application/json"})
    headers[names.HEADER_CLIENT] = "api-server-proxy"
    if token:
        headers[names.HEADER_ADMIN_TOKEN] = token
    what = f"{method} {proxied}"
    with cluster_errors(what), deadline.within(SECONDS, ANSWER_BYTES):
        request = api.param_serialize(
            method,
            proxied,
            header_params=headers,
            body=json.loads(data) if data is not None else None,
            auth_settings=["BearerToken"],
        )
        response = api.call_api(*request, _request_timeout=SECONDS)
        answer: bytes = response.response.read(ANSWER_BYTES + 1, decode_content=False)
        if response.status >= 300:
            response.data = answer
            api.response_deserialize(response, {})  # raises it
    if len(answer) > ANSWER_BYTES:
        raise ClusterError(f"{what}: the answer is longer than {ANSWER_BYTES} bytes")
    return answer
