"""A real Prometheus in a pod, with the rules of manifests/monitoring; it scrapes what the PodMonitors there select.

Prometheus Operator is not installed: what it makes of a PodMonitor, a target for each port of the name of each pod that
is selected, is made here. The program is the one that other tests use, too; it is copied to the control plane's node.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import yaml

from harness.cluster import NAME as CLUSTER
from harness.cluster import Cluster, shell
from harness.images import ROOT, Images
from promptgroup_local.kubectl import Kubectl

NAMESPACE = "monitoring"
"""The namespace from which the manifests' policies let Prometheus in."""
FOLDER = "/var/lib/promptgroup-e2e"
"""On the control plane's node: the program, its configuration and its targets."""
MONITORS = ROOT / "manifests/monitoring/podmonitors.yaml"
RULES = ROOT / "manifests/monitoring/rules.yaml"
PORT = 9090
EVALUATION = "5s"


def rules(held: str) -> dict[str, Any]:
    """Return the groups of rules, each alert of which fires once its expression has held for this long."""
    made: dict[str, Any] = yaml.safe_load(RULES.read_text())["spec"]
    for rule in (rule for group in made["groups"] for rule in group["rules"]):
        rule.update({"for": held} if "for" in rule else {})
    return made


def targets(kubectl: Kubectl) -> list[dict[str, Any]]:
    """Return what the PodMonitors have Prometheus scrape at this moment, in the form of its file discovery."""
    made = []
    pods = json.loads(kubectl.run("get", "pods", "--all-namespaces", "-o", "json").stdout)["items"]
    for monitor in yaml.safe_load_all(MONITORS.read_text()):
        for pod in pods:
            for endpoint in monitor["spec"]["podMetricsEndpoints"] if _selects(monitor, pod) else ():
                made += _targets(pod, endpoint)
    return made


def _selects(monitor: dict[str, Any], pod: dict[str, Any]) -> bool:
    spaces, selector = monitor["spec"]["namespaceSelector"], monitor["spec"]["selector"]
    labels = pod["metadata"].get("labels", {})
    return (
        (spaces.get("any", False) or pod["metadata"]["namespace"] in spaces.get("matchNames", ()))
        and all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
        and all(
            item["key"] in labels and (item["operator"] == "Exists" or labels[item["key"]] in item["values"])
            for item in selector.get("matchExpressions", ())
        )
    )


def _targets(pod: dict[str, Any], endpoint: dict[str, Any]) -> Iterator[dict[str, Any]]:
    address = pod.get("status", {}).get("podIP")
    for container in pod["spec"]["containers"] if address else ():
        dropped = any(rule["action"] == "keep" for rule in endpoint.get("relabelings", ()))  # no TensorRT-LLM is here
        for port in container.get("ports", ()):
            if port.get("name") == endpoint["port"] and not dropped:
                labels = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}
                yield {"targets": [f"{address}:{port['containerPort']}"], "labels": labels}


class Prometheus:
    """The server in its pod."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kubectl = cluster.kubectl(NAMESPACE)

    def aim(self) -> None:
        """Have it scrape the pods that the monitors select now."""
        self.put("targets.json", json.dumps(targets(self._cluster.kubectl())))

    def put(self, name: str, text: str) -> None:
        """Write a file that the server reads."""
        command = ["docker", "exec", "-i", self._cluster.control_plane, "sh", "-c", f"cat > {FOLDER}/{name}.new"]
        subprocess.run(command, input=text, text=True, check=True, timeout=60)
        self._cluster.on(self._cluster.control_plane, "mv", f"{FOLDER}/{name}.new", f"{FOLDER}/{name}")

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Return the result of an instant query, by the API server's proxy."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/prometheus:{PORT}/proxy/api/v1/query?query={quote(query)}"
        answer = json.loads(self._kubectl.run("get", "--raw", path).stdout)
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def firing(self) -> set[tuple[str, str]]:
        """Return the alerts that fire: their name, and that of the group that they are about."""
        fire = self.ask('ALERTS{alertstate="firing"}')
        return {(series["metric"]["alertname"], series["metric"].get("name", "")) for series in fire}


@contextmanager
def prometheus(cluster: Cluster, images: Images, program: str, held: str) -> Iterator[Prometheus]:
    """Run the server until the block ends.

    Args:
        cluster: where.
        images: any of them serves: the program needs nothing but a container.
        program: path of a statically linked Prometheus on this machine.
        held: how long an alert's expression holds before it fires, in place of its rule's own minutes.
    """
    server = Prometheus(cluster)
    node = cluster.control_plane
    cluster.on(node, "mkdir", "-p", FOLDER)
    shell("docker", "cp", program, f"{CLUSTER}-control-plane:{FOLDER}/prometheus")
    config = {
        "global": {"scrape_interval": "5s", "evaluation_interval": EVALUATION},
        "rule_files": [f"{FOLDER}/rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "pods",
                "honor_labels": True,
                "file_sd_configs": [{"files": [f"{FOLDER}/targets.json"], "refresh_interval": "5s"}],
            }
        ],
    }
    server.put("prometheus.yml", yaml.safe_dump(config))
    server.put("rules.yaml", yaml.safe_dump(rules(held)))
    server.put("targets.json", "[]")
    kubectl = cluster.kubectl(NAMESPACE)
    kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found")
    kubectl.apply(*_objects(node, images))
    try:
        kubectl.run("wait", "pod/prometheus", "--for=condition=Ready", "--timeout=90s")
        yield server
    finally:
        kubectl.run("delete", "namespace", NAMESPACE, "--wait=false", check=False)


def _objects(node: str, images: Images) -> list[dict[str, Any]]:
    flags = [f"--config.file={FOLDER}/prometheus.yml", "--storage.tsdb.path=/data", f"--web.listen-address=:{PORT}"]
    container = {
        "name": "prometheus",
        "image": images.name("standin-engine"),
        "imagePullPolicy": "Never",
        "command": [f"{FOLDER}/prometheus", *flags],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "http"}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": "program", "mountPath": FOLDER, "readOnly": True},
            {"name": "data", "mountPath": "/data"},
        ],
    }
    spec = {
        "nodeName": node,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "program", "hostPath": {"path": FOLDER}}, {"name": "data", "emptyDir": {}}],
    }
    metadata = {"name": "prometheus", "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    ]
