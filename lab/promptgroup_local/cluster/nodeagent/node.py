"""The objects of a node, as its kubelet would write them. Does no I/O."""

import os
import platform
from datetime import datetime
from typing import Any

from promptgroup_local.cluster.nodeagent.addresses import KUBELET_PORT
from promptgroup_local.cluster.nodeagent.pods.status import stamp

PODS = 200
"""Pods that fit on the node: as many processes as a laptop can run with idle stand-ins."""
HOLLOW_PODS = 12_000
"""Pods that fit on the node when none of them is a process."""
CPUS = 64
MEMORY = "256Gi"
"""Resources for the scheduler; more than the machine has, since requests are written for real engines."""
LEASE_SECONDS = 40
"""As a kubelet's."""

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Machine as Linux names it → as Kubernetes does."""


def node(name: str, address: str, *, release: str, gpus: int, pods: int, now: datetime) -> dict[str, Any]:
    """The Node, ready. Its GPUs and `pods` are numbers for the scheduler; `release` is that of Kubernetes."""
    resources = {"cpu": str(CPUS), "memory": MEMORY, "pods": str(pods), "ephemeral-storage": "100Gi"}
    if gpus:
        resources["nvidia.com/gpu"] = str(gpus)
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": architecture}
    facts = [
        ("Ready", "True", "AgentReady", "the node agent runs"),
        ("MemoryPressure", "False", "Sufficient", "not observed on a local node"),
        ("DiskPressure", "False", "Sufficient", "not observed on a local node"),
        ("PIDPressure", "False", "Sufficient", "not observed on a local node"),
    ]
    moment = stamp(now)
    conditions = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        | {"lastHeartbeatTime": moment, "lastTransitionTime": moment}
        for kind, status, reason, message in facts
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
            "nodeInfo": {
                "kubeletVersion": f"{release}-local",
                "containerRuntimeVersion": "local://processes",
                "operatingSystem": "linux",
                "architecture": architecture,
                "osImage": platform.system(),
                "kernelVersion": platform.release(),
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kubeProxyVersion": "",
            },
        },
    }


def lease(name: str, now: datetime) -> dict[str, Any]:
    """The node's heartbeat."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": f"{name}-{os.getpid()}",
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micro(now),
        },
    }


def micro(now: datetime) -> str:
    """RFC 3339 with microseconds (MicroTime)."""
    return f"{now:%Y-%m-%dT%H:%M:%S.%fZ}"
