"""Pods for tests of the local cluster, and what a test may expect of processes."""

import os
import sys
from pathlib import Path
from typing import Any

from promptgroup_local.cluster.images import BUILT_IN
from promptgroup_local.kubectl import Kubectl, wait_for

PORT = 8000
ENGINES = ("vllm/vllm-openai", "lmcache/vllm-openai", "lmsysorg/sglang", "nvcr.io/nvidia/tensorrt-llm/release")
"""Images of engines that samples name: stand-ins run in their place."""
IMAGES = {
    "web": [sys.executable, "-m", "http.server", "--bind", "{pod_ip}", str(PORT)],
    **dict.fromkeys(ENGINES, BUILT_IN["promptgroup.invalid/standin-engine"]),
}
"""`web` is an HTTP server on the pod's address, as a tiny application."""


def container(image: str = "web", **fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": image, **fields}


def web(**fields: Any) -> dict[str, Any]:
    """A container that is ready when it serves."""
    return container(readinessProbe={"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1}, **fields)


def shell(script: str, **fields: Any) -> dict[str, Any]:
    return container("busybox", command=["/bin/sh", "-c", script], **fields)


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": list(containers), "terminationGracePeriodSeconds": 5, **spec},
    }


def deployment(name: str, replicas: int, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = pod(name, *containers, **spec)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
    }


def conditions(found: dict[str, Any]) -> dict[str, str]:
    """Type → status."""
    return {each["type"]: each["status"] for each in found["status"].get("conditions", [])}


def wait_pod(kube: Kubectl, name: str, **wanted: str) -> dict[str, Any]:
    """Wait until the pod has these condition states."""

    def holds() -> dict[str, Any] | None:
        found = kube.get("pod", name)
        return found if found and wanted.items() <= conditions(found).items() else None

    return wait_for(holds, f"{name}: {wanted}", lambda: kube.get("pod", name))


def wait_phase(kube: Kubectl, name: str, phase: str) -> dict[str, Any]:
    def holds() -> dict[str, Any] | None:
        found = kube.get("pod", name)
        return found if found and found["status"].get("phase") == phase else None

    return wait_for(holds, f"{name}: {phase}", lambda: kube.get("pod", name))


def wait_gone(kube: Kubectl, name: str) -> None:
    wait_for(lambda: True if kube.get("pod", name) is None else None, f"{name} to go")


def main_status(found: dict[str, Any]) -> dict[str, Any]:
    """Status of the first container."""
    return found["status"]["containerStatuses"][0]


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that belong to a cluster's folder: by argument, environment or working directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
            known = words + (entry / "environ").read_bytes() + os.fsencode((entry / "cwd").readlink())
        except OSError:
            continue
        if os.fsencode(folder) in known:
            found.append(words.replace(b"\0", b" ").decode())
    return found
