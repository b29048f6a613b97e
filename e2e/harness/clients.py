"""Pods that are clients: sessions without end while something is done, or so many and then an end.

They stand on the control plane's node, which no test takes away, and are read there, in the log that the kubelet keeps:
that needs no API server.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harness.cluster import CLIENT_IMAGE, Cluster
from harness.group import MODEL, routed
from harness.images import Images
from harness.outcomes import Outcome, Seen, parse, seen
from promptgroup_local.kubectl import Kubectl, wait_for

NAMESPACE = "e2e-clients"
PROGRAM = Path(__file__).with_name("client.py")
SETTLE = 2
"""Turns that each session has after what was done, on average: what it broke shows in them."""
BLOCK = 16
"""Tokens that the stand-in engine caches at a time: so many less than the prefix may be found."""
DEADLINE = 170.0
"""Longest wait for answers, in seconds; kubectl is given up a little later."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What clients do."""

    urls: tuple[str, ...]
    """Base URLs, taken in turn, a request each."""
    model: str = MODEL
    """The model, or the group by name."""
    system: str = ""
    """The system prompt that they bring; none when they name the group."""
    dated: bool = False
    """Whether each session has a line of its own on top of it, as with a date or a name."""
    sessions: int = 0
    """Sessions in all; 0: without end."""
    at_once: int = 12
    """Sessions at a time."""
    first: int = 0
    """First turn that is sent; those before it are made up."""
    last: int = 12
    """Turns of a session."""
    pause: float = 0.6
    """Seconds between an answer and the next turn: twenty requests a second leave a small machine room for the rest."""
    rate: float = 0
    """Requests a second, at a steady rate, of sessions enough; 0: each session sends when its pause is over."""
    tokens: int = 24
    """Length of an answer."""
    streamed: bool | None = None
    """True for streams, False for whole answers; None for streams in every second session."""
    seed: int = field(default=1)
    """Another seed gives other sessions."""


class Clients:
    """A pod of clients."""

    def __init__(self, cluster: Cluster, name: str, uid: str, group: tuple[Kubectl, str]) -> None:
        self._cluster = cluster
        self._log = f"/var/log/pods/{NAMESPACE}_{name}_{uid}/client/0.log"
        self._group = group

    def outcomes(self) -> list[Outcome]:
        """What became of all requests so far, in the order of their ends."""
        return parse(self._cluster.on(self._cluster.control_plane, "cat", self._log, check=False))

    def count(self) -> int:
        """Requests that ended so far."""
        counted = self._cluster.on(self._cluster.control_plane, "wc", "-l", self._log, check=False)
        return int(counted.split()[0]) if counted.strip() else 0

    def more(self, count: int) -> None:
        """Wait for so many more answers."""
        desired = self.count() + count
        wait_for(
            lambda: True if self.count() >= desired else None,
            f"{count} more answers",
            lambda: [str(outcome) for outcome in self.outcomes()[-count:]],
            seconds=DEADLINE,
        )

    @contextmanager
    def watched(self, settle: int) -> Iterator[Seen]:
        """What becomes of the requests that end during the block, and of `settle` more."""
        kubectl, group = self._group
        before, sizes, result = self.count(), tier1(kubectl, group), Seen()
        yield result
        self.more(settle)
        sizes |= tier1(kubectl, group)
        seen(result, self.outcomes(), before, {key: max(1, tokens - BLOCK) for key, tokens in sizes.items()})


def tier1(kubectl: Kubectl, group: str) -> dict[str, int]:
    """Revision → tokens of its declared prefix, as its replicas' proof counted them."""
    return {item["fingerprint"][:8]: item.get("tokens", 0) for item in routed(kubectl, group)}


def service(namespace: str) -> str:
    """Base URL of a team's routers, as its clients are told."""
    return f"http://promptgroup-router.{namespace}"


@contextmanager
def clients(cluster: Cluster, images: Images, kubectl: Kubectl, group: str, plan: Plan) -> Iterator[Clients]:
    """Clients of a group until the block ends; they have begun when it begins."""
    own = cluster.kubectl(NAMESPACE)
    name = f"{kubectl.namespace}-{group}-{plan.seed}"
    own.run("delete", "pod", name, "--ignore-not-found", "--grace-period=1")
    own.apply(*_objects(name, images, plan))
    own.run("wait", "pod", name, "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
    pod = own.get("pod", name)
    assert pod is not None
    running = Clients(cluster, name, pod["metadata"]["uid"], (kubectl, group))
    try:
        running.more(plan.at_once)
        yield running
    finally:
        own.run("delete", "pod", name, "--grace-period=1", "--wait=false", check=False)


def ask(cluster: Cluster, images: Images, plan: Plan) -> list[Outcome]:
    """Send a plan's sessions, and wait for their end."""
    own = cluster.kubectl(NAMESPACE)
    name = f"asks-{os.getpid()}"
    own.run("delete", "pod", name, "--ignore-not-found", "--grace-period=1")
    own.apply(*_objects(name, images, plan))
    own.run("wait", "pod", name, "--for=jsonpath={.status.phase}=Succeeded", f"--timeout={DEADLINE:.0f}s")
    outcomes = parse(own.run("logs", name, "--timestamps").stdout)
    own.run("delete", "pod", name, "--grace-period=1", "--wait=false")
    return outcomes


def _objects(name: str, images: Images, plan: Plan) -> list[dict[str, object]]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    container = {
        "name": "client",
        "image": images.name(CLIENT_IMAGE),
        "command": ["/opt/promptgroup/bin/python", "/program/client.py"],
        "env": [{"name": "PLAN", "value": json.dumps(asdict(plan))}],
        "volumeMounts": [{"name": "program", "mountPath": "/program", "readOnly": True}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "program", "configMap": {"name": "program"}}],
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "program", "namespace": NAMESPACE},
            "data": {PROGRAM.name: PROGRAM.read_text()},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    ]
