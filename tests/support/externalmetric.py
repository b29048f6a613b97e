"""The external metrics API with numbers of a test, as an adapter of metrics serves it to HorizontalPodAutoscaler.

The API server reaches it through an APIService. That names a Service of type ExternalName, which is the one kind that
needs no data plane.
"""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from promptgroup_contract import names
from promptgroup_local.cluster.certs import Authority
from promptgroup_local.kubectl import Kubectl, wait_for

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
METRIC = "requests"


class Number:
    """What every metric says, until another value is set: a number, or a function of the metric's name.

    The function returns None for a metric without series.
    """

    def __init__(self, value: int | Callable[[str], int | None]) -> None:
        self.value = value

    def answer(self, path: str) -> dict[str, Any]:
        """The API's answer: its discovery, or the metric."""
        if not path.startswith(f"/apis/{GROUP}/{VERSION}/namespaces/"):
            resource = {"name": METRIC, "singularName": "", "namespaced": True, "verbs": ["get"]}
            kind = {"kind": "ExternalMetricValueList"}
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": [resource | kind],
            }
        name = path.partition("?")[0].rpartition("/")[2]
        value = self.value(name) if callable(self.value) else self.value
        item = {
            "metricName": name,
            "metricLabels": {},
            "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        return {
            "kind": "ExternalMetricValueList",
            "apiVersion": f"{GROUP}/{VERSION}",
            "metadata": {},
            "items": [item | {"value": str(value)}] if value is not None else [],
        }


@contextmanager
def external_metric(kube: Kubectl, folder: Path, value: int | Callable[[str], int | None]) -> Iterator[Number]:
    """A metric that the cluster's autoscaler can read; the API is gone with the context."""
    number = Number(value)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(number.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    pair = Authority(folder).server("metrics", ["localhost"], ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    name = f"{VERSION}.{GROUP}"
    try:
        kube.apply(*_registration(kube.namespace, server.server_address[1]))
        wait_for(lambda: _available(kube, name), "the metrics API", lambda: kube.get("apiservice", name))
        yield number
    finally:
        kube.run("delete", "apiservice", name, "--ignore-not-found")
        server.shutdown()
        serving.join()
        server.server_close()


def _available(kube: Kubectl, name: str) -> bool | None:
    conditions = (kube.get("apiservice", name) or {}).get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == ("Available", "True") for each in conditions) or None


def _registration(namespace: str, port: int) -> tuple[dict[str, Any], dict[str, Any]]:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "metrics", "namespace": namespace},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    registration = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "metrics", "namespace": namespace, "port": port},
        },
    }
    return service, registration


def autoscaler(group: str, average: int) -> dict[str, Any]:
    """A HorizontalPodAutoscaler that gives a PromptGroup a replica for so much of the metric, and waits for nothing."""
    target = {"apiVersion": f"{names.API_GROUP}/{names.API_VERSION}", "kind": "PromptGroup", "name": group}
    metric = {"metric": {"name": METRIC}, "target": {"type": "AverageValue", "averageValue": str(average)}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": group},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 1,
            "maxReplicas": 4,
            "metrics": [{"type": "External", "external": metric}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }
