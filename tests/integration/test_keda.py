"""KEDA's own operator wakes a group and lets it sleep, by the documented triggers and a real Prometheus.

Skipped where `make keda` has not built it, which takes ten minutes: not part of `make test`.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from promptgroup_local import lab
from promptgroup_local.cluster import process
from promptgroup_local.cluster.certs import Authority
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.ports import free_ports
from support.definitions import defined
from support.groups import group
from support.life import cold
from support.operators import NAME as OPERATORS
from support.operators import SYSTEM
from support.prometheus import prometheus

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
OPERATOR = CACHE / "promptgroup" / "keda-operator" / "v2.21.0" / "keda-operator"
pytestmark = [
    pytest.mark.real,
    pytest.mark.integration,
    pytest.mark.skipif(not OPERATOR.exists(), reason="KEDA's operator is not here: make keda builds it"),
]

KEDA = "github.com/kedacore/keda/v2@v2.21.0"
KINDS = (
    *("ClusterTriggerAuthentication", "ScaledJob", "ScaledObject", "TriggerAuthentication"),
    *("CloudEventSource", "ClusterCloudEventSource"),
)
ROOT = Path(__file__).parents[2]
NAME = "legal"
CLIENTS = 20


@contextmanager
def keda(cluster: LocalCluster, kube: Kubectl, folder: Path) -> Iterator[Path]:
    """KEDA's operator for a namespace, as cluster admin; gives its log."""
    health, metrics, grpc = free_ports(3)
    certificates, log = folder / "certs", folder / "keda.log"
    certificates.mkdir()
    authority = Authority(folder)
    pair = authority.server("keda", ["localhost"], ["127.0.0.1"])
    for source, name in ((pair.certificate, "tls.crt"), (pair.key, "tls.key"), (pair.certificate, "ca.crt")):
        (certificates / name).write_bytes(Path(source).read_bytes())
    environment = dict.fromkeys(("WATCH_NAMESPACE", "POD_NAMESPACE", "KEDA_CLUSTER_OBJECT_NAMESPACE"), kube.namespace)
    running = process.start(
        [
            str(OPERATOR),
            f"--kubeconfig={cluster.kubeconfig}",
            f"--cert-dir={certificates}",
            f"--health-probe-bind-address=127.0.0.1:{health}",
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            f"--metrics-service-bind-address=127.0.0.1:{grpc}",
            "--leader-elect=false",
        ],
        log,
        {**os.environ, **environment},
    )
    try:
        yield log
    finally:
        process.stop(running)


def scaled_object(url: str) -> dict[str, Any]:
    """The sample as the guide has it for scaling to zero, with a server of the test's own and short times."""
    [sample] = [
        item
        for item in yaml.safe_load_all((ROOT / "manifests/samples/keda.yaml").read_text())
        if item["kind"] == "ScaledObject"
    ]
    guide = (ROOT / "docs/how-to/autoscalers.md").read_text()
    block = re.search(r"```yaml\n(- type: prometheus\n.*?)```", guide, re.DOTALL)
    assert block is not None
    recommended = sample["spec"]["triggers"][0]
    recommended["metadata"]["activationThreshold"] = "1000"
    triggers = [recommended, *yaml.safe_load(block[1])]
    for trigger in triggers:
        trigger["metadata"]["serverAddress"] = url
        trigger["metadata"]["query"] = trigger["metadata"]["query"].replace("[2m]", "[10s]")
    sample["spec"] |= {"minReplicaCount": 0, "triggers": triggers, "pollingInterval": 1, "cooldownPeriod": 5}
    return sample


def ask(kube: Kubectl, number: int) -> int:
    body = {"model": NAME, "messages": [{"role": "user", "content": f"Question {number}"}], "max_tokens": 2}
    url = f"{lab.router_url(kube)}/v1/chat/completions"
    return urllib3.request("POST", url, json=body, timeout=120, retries=False).status


def replicas(kube: Kubectl) -> int:
    return int((kube.get("promptgroup", NAME) or {})["spec"].get("replicas", -1))


def test_keda_wakes_a_group_for_requests_that_wait_and_lets_it_sleep_again(
    cluster: LocalCluster, kube: Kubectl, operator: None, tmp_path: Path
) -> None:
    lab.install_router(kube)
    made = group(NAME, replicas=0, routing={"wakeTimeout": "110s"})
    kube.apply(made)
    kube.wait_condition(NAME, "Ready", "False", "ScaledToZero")
    known = f"{lab.router_url(kube)}/v1/models"
    wait_for(lambda: NAME in urllib3.request("GET", known).data.decode() or None, "the router to know it")
    [port] = free_ports(1)
    admin = lab.router_admin_url(kube).removeprefix("http://")
    pods = cluster.kubectl(SYSTEM).list("pods", f"app.kubernetes.io/name={OPERATORS}")
    operators = [f"{pod['status']['podIP']}:8082" for pod in pods]
    with (
        defined(kube, {KEDA: ("config/crd/bases/*.yaml", KINDS)}),
        prometheus(tmp_path, port, {address: {} for address in (admin, *operators)}) as server,
        keda(cluster, kube, tmp_path) as log,
    ):
        kube.apply(scaled_object(server.url))
        try:
            # whether KEDA calls the object ready depends on what the first query finds
            wait_for(lambda: kube.get("hpa", f"keda-hpa-{NAME}"), "KEDA to take the object", log.read_text)
            assert replicas(kube) == 0
            with ThreadPoolExecutor(CLIENTS) as pool:
                statuses = list(pool.map(lambda number: ask(kube, number), range(CLIENTS)))
            assert set(statuses) == {200}
            assert replicas(kube) == 1
            assert cold(cluster.folder, kube.namespace, NAME) == 0
            wait_for(lambda: replicas(kube) == 0 or None, "KEDA to let it sleep", log.read_text)
        finally:
            kube.run("delete", "scaledobject", NAME, "--ignore-not-found")
