"""A whole local cluster: control plane and nodes, started from one thread, ended with it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from promptgroup_local.cluster import binaries, process
from promptgroup_local.cluster.controlplane import ControlPlane, NotReady
from promptgroup_local.cluster.images import Images
from promptgroup_local.cluster.nodeagent.command import folder_name
from promptgroup_local.kubectl import Kubectl, wait_for

AGENT_RIGHTS = Path(__file__).parent / "nodeagent/rbac.yaml"
"""Rights of the agents."""


class LocalCluster:
    """Use as a context manager; `folder` must be fresh or empty.

    Args:
        folder: state of the cluster: store, keys, pods, logs.
        nodes: number of nodes.
        gpus: `nvidia.com/gpu` that each node pretends to have.
        hollow: the nodes run stand-in engines without processes, thousands of them (`nodeagent/hollow.py`).
        api_flags: more flags of kube-apiserver.
        images: more images than the built-in ones: repository → argv prefix with `{pod_ip}`.
        say: called with progress, a line at a time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        gpus: int = 64,
        hollow: bool = False,
        api_flags: Sequence[str] = (),
        images: Images | None = None,
        say: binaries.Say = lambda _: None,
    ) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._programs = binaries.find(say)
        self._say = say
        self._gpus = gpus
        self._hollow = hollow
        self._names = [f"local-{number}" for number in range(nodes)]
        self._images = self.folder / "images.json"
        self._images.write_text(json.dumps(dict(images or {})))
        self.plane = ControlPlane(self._programs, self.folder, api_flags)
        self._agents: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of a cluster admin."""
        return self.plane.kubeconfig

    def kubectl(self, namespace: str = "default") -> Kubectl:
        """Kubectl for a namespace, as cluster admin."""
        return Kubectl(self.kubeconfig, namespace, binaries.kubectl(self._programs))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything; returns when the nodes are ready and pods can be created.

        Raises:
            NotReady: a process ended, or is not ready in time; the message names it and its log.
        """
        self._say("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler")
        self.plane.start()
        kubectl = self.kubectl()
        kubectl.run("apply", "-f", str(AGENT_RIGHTS))
        self._say(f"starting {len(self._names)} node(s)")
        for name in self._names:
            self.start_node(name)
        wait_for(lambda: True if self._ready(kubectl) else None, "nodes to be ready and unrestricted")
        wait_for(lambda: kubectl.get("serviceaccount", "default"), "the default service account")

    def _ready(self, kubectl: Kubectl) -> bool:
        self.plane.check()
        for name, agent in self._agents.items():
            if agent.poll() is not None:
                raise NotReady(f"{name} ended with status {agent.returncode}: see {self._agent_log(name)}")
        nodes = kubectl.list("nodes")
        return len(nodes) == len(self._names) and all(
            not node["spec"].get("taints")
            and any(
                (condition["type"], condition["status"]) == ("Ready", "True")
                for condition in node["status"]["conditions"]
            )
            for node in nodes
        )

    def start_node(self, name: str) -> None:
        """Start a node's agent."""
        argv = [
            sys.executable,
            "-m",
            "promptgroup_local.cluster.nodeagent",
            f"--kubeconfig={self.plane.agent_kubeconfig}",
            f"--certificate={self.plane.agent_serving.certificate}",
            f"--key={self.plane.agent_serving.key}",
            f"--node={name}",
            f"--state={self.folder / name}",
            f"--gpus={self._gpus}",
            f"--images={self._images}",
            *(["--hollow"] if self._hollow else []),
        ]
        self._agents[name] = process.start(argv, self._agent_log(name))

    def agent_pid(self, name: str) -> int:
        """The process of a node's agent."""
        return self._agents[name].pid

    def stop_node(self, name: str) -> None:
        """Stop a node's agent and all its processes abruptly, without a report to the API server."""
        agent = self._agents.pop(name)
        agent.kill()
        agent.wait()
        process.end_all_in(self._pods(name))

    def stop(self) -> None:
        """Stop everything."""
        for name, agent in self._agents.items():
            process.stop(agent)
            process.end_all_in(self._pods(name))
        self._agents.clear()
        self.plane.stop()

    def kill_pod(self, namespace: str, name: str, container: str = "engine") -> None:
        """Kill a container's process, as a crash would.

        Raises:
            LookupError: there is no such pod, or its container does not run.
        """
        pod = self.kubectl(namespace).get("pod", name)
        if pod is None:
            raise LookupError(f"no pod {namespace}/{name}")
        file = self._pods(pod["spec"]["nodeName"]) / folder_name(pod["metadata"]) / f"{container}.pid"
        if not file.exists():
            raise LookupError(f"container {container} of pod {namespace}/{name} does not run")
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)

    def logs(self, namespace: str, name: str) -> str:
        """Return the output of the pod's containers."""
        return "\n".join(file.read_text(errors="replace") for file in log_files(self.folder, namespace, name))

    def _pods(self, node: str) -> Path:
        return self.folder / node / "pods"

    def _agent_log(self, node: str) -> Path:
        return self.folder / "logs" / f"{node}.log"


def log_files(folder: Path, namespace: str, name: str) -> list[Path]:
    """Files with the output of a pod's containers, of a cluster in `folder`."""
    return sorted(folder.glob(f"*/logs/{namespace}_{name}_*.log"))
