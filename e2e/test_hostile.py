"""docs/security.md: what one team's engines answer, or one client sends, hurts nobody else."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients import NAMESPACE, Plan, clients, service
from harness.cluster import Cluster
from harness.group import group, pods, prompt, revision, routers
from harness.images import Images
from harness.install import SYSTEM, team
from harness.outcomes import p99, unharmed
from promptgroup_local.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.alone

PROGRAM = Path(__file__).parent / "harness" / "hostile.py"
PYTHON = "/opt/promptgroup/bin/python"
KINDS = ("drip", "endless", "huge", "backtrack")
REPLICAS = 4
UNITS = {"Mi": 2**20, "Gi": 2**30}
SLOWER = 2.0
"""How much longer a team's changes may take beside sixteen hostile engines that share two cores with it."""
RATE = 50.0
"""Honest requests a second, while hostile ones come and before."""
ALONE = 1000
"""Honest requests before the hostile ones: 20 seconds of them."""
REFUSALS = 12
"""Answers to hostile requests that are waited for: each kind of body has come three times."""
SLACK_SECONDS = 20.0
"""Time of a pass that came at a bad moment."""


def program(namespace: str) -> dict[str, Any]:
    metadata = {"name": "hostile", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {PROGRAM.name: PROGRAM.read_text()}}


def hostile_group(kind: str, images: Images) -> dict[str, Any]:
    """A group whose engines are healthy, and answer nothing as an engine does.

    Nobody can tell whether requests run on them, so that their pods leave at the drain time: a short one.
    """
    found = group(kind, images, prompt(kind[0]), replicas=REPLICAS, rollout={"drainTimeout": "10s"})
    container = {
        "name": "engine",
        "command": [PYTHON, f"/program/{PROGRAM.name}", "engine", kind],
        "volumeMounts": [{"name": "program", "mountPath": "/program", "readOnly": True}],
    }
    spec = {"containers": [container], "volumes": [{"name": "program", "configMap": {"name": "hostile"}}]}
    found["spec"]["engine"] |= {"template": {"spec": spec}, "resources": {"requests": {"cpu": "10m"}}}
    return found


def changes(kubectl: Kubectl, images: Images, name: str) -> float:
    """Seconds in which a team's group is created, gets a new prompt and another replica."""
    began = time.monotonic()
    kubectl.apply(group(name, images, prompt("a")))
    kubectl.wait_warm(name, "2/2")
    before = revision(kubectl, name)
    kubectl.apply(group(name, images, prompt("b")))
    wait_for(lambda: revision(kubectl, name) != before or None, "the new prompt to be accepted")
    kubectl.wait_warm(name, "2/2")
    kubectl.apply(group(name, images, prompt("b"), replicas=3))
    kubectl.wait_warm(name, "3/3")
    seconds = time.monotonic() - began
    kubectl.delete("promptgroup", name)
    wait_for(lambda: not pods(kubectl, name) or None, "its pods to go", seconds=120)
    return seconds


def memory(kubectl: Kubectl, pod: dict[str, Any]) -> tuple[int, int]:
    """The most memory that a pod's process ever had, and its limit, in bytes; a pod that restarted fails."""
    name, limit = pod["metadata"]["name"], pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
    assert [each["restartCount"] for each in pod["status"]["containerStatuses"]] == [0]
    status = kubectl.run("exec", name, "--", PYTHON, "-c", "print(open('/proc/1/status').read())").stdout
    [peak] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peak) * 1024, int(limit[:-2]) * UNITS[limit[-2:]]


@pytest.fixture
def hostile(cluster: Cluster, images: Images) -> Iterator[Kubectl]:
    """Another team's namespace, for engines that mean harm."""
    own = cluster.kubectl("e2e-hostile-engines")
    own.run("delete", "namespace", own.namespace, "--ignore-not-found")
    team(own)
    own.apply(program(own.namespace))
    yield own
    own.delete("namespace", own.namespace, wait=False)


def test_hostile_engines_of_one_team_cost_another_nothing(
    cluster: Cluster, kubectl: Kubectl, hostile: Kubectl, images: Images
) -> None:
    system = kubectl.within(SYSTEM)
    transitions = [each["spec"].get("leaseTransitions") for each in system.list("leases")]
    alone = changes(kubectl, images, "alone")
    hostile.apply(*(hostile_group(kind, images) for kind in KINDS))

    def running() -> bool | None:
        found = [pod for kind in KINDS for pod in pods(hostile, kind)]
        up = [pod for pod in found if pod["status"].get("phase") == "Running"]
        return True if len(up) == len(KINDS) * REPLICAS else None

    wait_for(running, "the hostile engines to run", lambda: hostile.run("get", "pods").stdout, seconds=180)
    beside = changes(kubectl, images, "beside")
    assert beside <= SLOWER * alone + SLACK_SECONDS
    for kind in KINDS:
        assert hostile.condition(kind, "Ready")["status"] == "False"
    for pod in system.list("pods", "app.kubernetes.io/name=promptgroup-operator"):
        peak, limit = memory(system, pod)
        assert peak < limit
    assert [each["spec"].get("leaseTransitions") for each in system.list("leases")] == transitions


def test_hostile_requests_fail_no_honest_one_and_the_router_keeps_its_memory(
    cluster: Cluster, kubectl: Kubectl, images: Images, record_property: Callable[[str, object], None]
) -> None:
    kubectl.apply(group("honest", images, prompt("a"), replicas=3))
    kubectl.wait_warm("honest", "3/3")
    plan = Plan((service(kubectl.namespace),), "honest", at_once=60, last=4, pause=0, rate=RATE, tokens=8)
    with clients(cluster, images, kubectl, "honest", plan) as running:
        running.more(ALONE)
        alone = running.outcomes()[plan.at_once :]
        with running.watched(settle=60) as seen:
            harass(cluster, images, kubectl)
        beside = running.outcomes()[plan.at_once + len(alone) :]
    times = {"alone": p99(alone), "beside hostile requests": p99(beside)}
    # said, not asserted: nodes, routers and the hostile client share the machine's cores
    record_property("p99 of honest requests, seconds", f"{times}, of {len(alone)} and {len(beside)} requests")
    assert unharmed(seen)
    for pod in routers(kubectl):
        peak, limit = memory(kubectl, pod)
        assert peak < limit


def harass(cluster: Cluster, images: Images, kubectl: Kubectl) -> None:
    """Send hostile requests until the routers have refused enough of them."""
    attacker = attacking(cluster, images, kubectl.namespace)

    def answered() -> bool | None:
        return True if attacker.run("logs", "attacker").stdout.count("HTTP/1.1 4") >= REFUSALS else None

    try:
        wait_for(answered, "the router to refuse them", lambda: attacker.run("logs", "attacker").stdout[-500:])
    finally:
        attacker.run("delete", "pod", "attacker", "--grace-period=1", "--wait=false")


def attacking(cluster: Cluster, images: Images, namespace: str) -> Kubectl:
    """Start a pod that asks a team's router as no client should; it is called `attacker`."""
    container = {
        "name": "attacker",
        "image": images.name("standin-engine"),
        "command": [PYTHON, f"/program/{PROGRAM.name}", "client", f"promptgroup-router.{namespace}"],
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
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "program", "configMap": {"name": "hostile"}}],
    }
    attacker = cluster.kubectl(NAMESPACE)
    metadata = {"name": "attacker", "namespace": NAMESPACE}
    attacker.apply(program(NAMESPACE), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    attacker.run("wait", "pod", "attacker", "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
    return attacker
