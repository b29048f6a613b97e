"""A pod that is more urgent than those that a node has."""

from collections.abc import Iterator
from contextlib import contextmanager

from harness.clients import NAMESPACE
from harness.cluster import GPUS, Cluster
from harness.images import Images


@contextmanager
def preempted(cluster: Cluster, images: Images, node: str) -> Iterator[None]:
    """Have a pod of a higher priority take all GPUs of a node during the block, once the replicas there have gone."""
    name, kubectl = "urgent", cluster.kubectl(NAMESPACE)
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    container = {
        "name": name,
        "image": images.name("standin-engine"),
        "command": ["/opt/promptgroup/bin/python", "-c", "import time; time.sleep(3600)"],
        "resources": {"limits": {"nvidia.com/gpu": GPUS}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "priorityClassName": name,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    try:
        kubectl.apply({**priority, "value": 1000}, pod)
        kubectl.run("wait", "pod", name, "--for=condition=Ready", "--timeout=170s")
        yield
    finally:
        kubectl.run("delete", "pod", name, "--ignore-not-found")
        kubectl.run("delete", "priorityclass", name, "--ignore-not-found")
