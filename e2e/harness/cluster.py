"""A kind cluster: nodes are containers of Docker, so a node can be killed and a control plane taken away."""

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from promptgroup_local.kubectl import Kubectl, wait_for

NAME = "promptgroup-e2e"
FOLDER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "promptgroup" / "e2e"
"""Kubeconfig of the cluster, and the locks of those who use it."""
CONFIG = Path(__file__).parents[1] / "kind.yaml"
GPUS = 8
"""Fake GPUs of a worker: one a replica."""
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint by which an administrator says that a machine is off (KEP-2268): its pods are given up at once."""
APISERVER_MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
"""The kubelet runs what lies in this folder (static pods), and stops what is taken out of it."""
CLIENT_IMAGE = "standin-engine"
"""The image whose Python clients use; an image takes some ten seconds of CPU on each node."""
START_SECONDS = 240
"""Longest start of a cluster: four nodes on a machine with two cores take about a minute."""


def shell(*command: str, check: bool = True, seconds: float = 600, cwd: Path | None = None) -> str:
    """Standard output of a program.

    Raises:
        RuntimeError: it failed; the message has what it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, cwd=cwd)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-2000:]}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that runs."""

    kubeconfig: Path

    def kubectl(self, namespace: str = "") -> Kubectl:
        """kubectl in a namespace; in each object's own where none is given."""
        return Kubectl(self.kubeconfig, namespace)

    @property
    def control_plane(self) -> str:
        """Its node, and that node's container."""
        return f"{NAME}-control-plane"

    def workers(self) -> list[str]:
        """Nodes that run what is tested."""
        return sorted(set(shell("kind", "get", "nodes", "--name", NAME).split()) - {self.control_plane})

    def on(self, node: str, *command: str, check: bool = True) -> str:
        """Run a program on a node; needs no API server."""
        return shell("docker", "exec", node, *command, check=check)

    def equip(self, node: str) -> None:
        """Give a worker its fake GPUs. A kubelet that starts forgets them."""
        capacity = {"nvidia.com/gpu": str(GPUS)}
        patch = json.dumps({"status": {"capacity": capacity, "allocatable": capacity}})
        self.kubectl().run("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)

    def kill_container(self, pod: dict[str, object], container: str) -> None:
        """End a container as a crash does: no signal that it could answer, and the kubelet starts another."""
        match pod:
            case {"spec": {"nodeName": str(node)}, "status": {"containerStatuses": list(statuses)}}:
                [name] = [
                    status["containerID"].rpartition("/")[2] for status in statuses if status["name"] == container
                ]
                self.on(node, "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", name)
            case _:
                raise ValueError("the pod has no running container")

    def kill_node(self, node: str) -> None:
        """A machine that loses its power."""
        shell("docker", "kill", node)

    def start_node(self, node: str) -> None:
        """Its return. Its Node object is made anew when it was deleted."""
        shell("docker", "start", node)
        kubectl = self.kubectl()
        kubectl.run("wait", "--for=create", f"node/{node}", "--timeout=120s")
        # the object may still say what was true before: Ready counts once the kubelet of this start has said so
        kubectl.run("wait", "--for=condition=Ready", f"node/{node}", "--timeout=120s")
        self.equip(node)

    @contextmanager
    def without_apiserver(self) -> Iterator[None]:
        """The API server is gone during the block; what runs on the nodes runs on."""
        away = "/etc/kubernetes/kube-apiserver.yaml"
        self.on(self.control_plane, "mv", APISERVER_MANIFEST, away)
        try:
            wait_for(lambda: True if not self.answers() else None, "the API server to go")
            yield
        finally:
            self.on(self.control_plane, "mv", away, APISERVER_MANIFEST)
            wait_for(lambda: self.answers() or None, "the API server to come back", seconds=START_SECONDS)

    def answers(self) -> bool:
        """Whether the API server is there."""
        return self.kubectl().run("get", "--raw=/readyz", "--request-timeout=5s", check=False).returncode == 0


@contextmanager
def locked(name: str, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock among the processes of this machine, alone or with all others that share it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def create() -> Cluster:
    """The cluster of an earlier run where there is one that answers, else a new one: its nodes may not be ready yet."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(FOLDER / "kubeconfig")
    cluster.kubeconfig.touch(0o600)
    cluster.kubeconfig.write_text(shell("kind", "get", "kubeconfig", "--name", NAME, check=False))
    if not cluster.answers():  # there is none, or a restart of Docker has left its nodes dead
        delete()
        image = os.environ.get("KIND_NODE_IMAGE")
        command = ["kind", "create", "cluster", "--name", NAME, "--config", str(CONFIG)]
        shell(*command, "--kubeconfig", str(cluster.kubeconfig), *(["--image", image] if image else []))
    return cluster


def equip(cluster: Cluster) -> None:
    """Wait until all nodes are ready, and give the workers their fake GPUs."""
    for node in (cluster.control_plane, *cluster.workers()):
        cluster.kubectl().run("wait", "--for=condition=Ready", f"node/{node}", f"--timeout={START_SECONDS}s")
    for worker in cluster.workers():
        cluster.equip(worker)


def delete() -> None:
    """Remove the cluster with all that is in it."""
    shell("kind", "delete", "cluster", "--name", NAME)


def load(cluster: Cluster, images: Sequence[str]) -> None:
    """Put images on the nodes that lack them: on workers all, on the control plane that of clients."""
    desired = {worker: list(images) for worker in cluster.workers()}
    desired[cluster.control_plane] = [image for image in images if f"/{CLIENT_IMAGE}:" in image]
    lacking: dict[tuple[str, ...], list[str]] = {}
    for node, names in desired.items():
        held = cluster.on(node, "ctr", "-n", "k8s.io", "images", "ls", "-q").split()
        lacking.setdefault(tuple(name for name in names if name not in held), []).append(node)
    for missing, nodes in lacking.items():
        if missing:
            shell("kind", "load", "docker-image", "--name", NAME, f"--nodes={','.join(nodes)}", *missing)
