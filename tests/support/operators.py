"""The operator in a local cluster, or as a process of a test."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3

from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.cluster.process import start
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.ports import free_ports
from support import quickoperator

SYSTEM = "promptgroup-system"
NAME = "promptgroup-operator"
REPLICAS = 2
"""As the manifests say."""


def set_operators(cluster: LocalCluster, count: int) -> None:
    """Scale the operator, and wait until so many of it are ready and no other is left."""
    system = cluster.kubectl(SYSTEM)
    system.scale("deployment", NAME, count)
    wait_for(
        lambda: True if sum(map(is_ready, system.list("pods"))) == count == len(system.list("pods")) else None,
        f"{count} operator pods",
    )


def is_ready(pod: dict) -> bool:
    return any((each["type"], each["status"]) == ("Ready", "True") for each in pod["status"].get("conditions", []))


def holder(kube: Kubectl) -> str:
    """Identity of the process that leads in a namespace; empty when none does."""
    found = kube.get("lease", NAME) or {"spec": {}}
    return found["spec"].get("holderIdentity") or ""


def leader(kube: Kubectl) -> str:
    """Name of the pod that leads, once one does that is ready: a lease may still be that of a pod that has gone."""

    def leads() -> str | None:
        name = holder(kube).partition("_")[0]
        return name if name in {pod["metadata"]["name"] for pod in kube.list("pods") if is_ready(pod)} else None

    return wait_for(leads, "an operator to lead", lambda: holder(kube))


def metrics(kube: Kubectl) -> dict[str, str]:
    """Pod of the operator in a namespace → what it tells Prometheus."""
    pods = kube.list("pods", f"app.kubernetes.io/name={NAME}")
    urls = {pod["metadata"]["name"]: f"http://{pod['status']['podIP']}:8082/metrics" for pod in pods}
    return {name: urllib3.request("GET", url, timeout=30, retries=False).data.decode() for name, url in urls.items()}


@contextmanager
def operator_process(
    cluster: LocalCluster, namespace: str, *flags: str, kubeconfig: Path | None = None, quick: bool = False
) -> Iterator[tuple[subprocess.Popen, str]]:
    """An operator of the namespace, killed at the end; also the URL of its health. A quick one has shorter windows.

    A test that fails shows how the operator ended, if it did, and what it said last.
    """
    [port] = free_ports(1)
    program = (quickoperator.__file__,) if quick else ("-m", "promptgroup_operator")
    argv = [sys.executable, *program, "run", f"--namespaces={namespace}", "--host=127.0.0.1"]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig or cluster.kubeconfig)}
    said = cluster.folder / "logs" / f"operator-{namespace}.log"
    process = start([*argv, f"--health-port={port}", "--metrics-port=0", *flags], said, environment)
    try:
        yield process, f"http://127.0.0.1:{port}/healthz"
    except BaseException as error:
        last = said.read_text(errors="replace")[-4000:]
        error.add_note(f"the operator's exit status: {process.poll()}; it said last:\n{last}")
        raise
    finally:
        process.kill()
        process.wait()


@contextmanager
def stopped(process: subprocess.Popen) -> Iterator[None]:
    """A process that does nothing while the context lasts."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
