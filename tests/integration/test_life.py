"""What clients meet while a group is changed, hurt and left without its operator: nothing.

One group of three under a steady load of sessions; each test does one thing to it. Answers in one piece must all come.
Streams must as well where the end of a replica is announced; a crash cuts those that it finds in their midst.
"""

import json
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster, log_files
from promptgroup_local.engine.core import COLD
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Target
from promptgroup_local.load.workload import Task
from promptgroup_router.contract import names
from support.controlplane import pod, shell
from support.groups import PROMPTS, group
from support.load import SESSIONS, Load, Seen

pytestmark = pytest.mark.integration

GROUP = "lives"
NAMESPACE = "life"
REPLICAS = 3
GPUS = 64
"""Of a node."""


@dataclass(frozen=True, slots=True)
class Life:
    """The group, its cluster and the load on it."""

    cluster: LocalCluster
    kube: Kubectl
    load: Load

    def revision(self) -> str:
        """Name of the revision that the group wants to serve."""
        return str((self.kube.get("promptgroup", GROUP) or {})["status"]["revision"])

    def pods(self) -> dict[str, str]:
        """Slot as the router names it → pod."""
        prefix = f"{NAMESPACE}/{GROUP}/{self.revision()}"
        return {
            f"{prefix}/{each['metadata']['labels'][names.LABEL_SLOT]}": each["metadata"]["name"]
            for each in self._engines()
            if names.LABEL_SLOT in each["metadata"]["labels"]
        }

    def nodes(self) -> set[str]:
        """Nodes on which replicas are."""
        return {each["spec"].get("nodeName", "") for each in self._engines()}

    def proof(self, name: str) -> str:
        """Container of a pod that was proven warm."""
        found = self.kube.get("pod", name) or {}
        return str(found["metadata"]["annotations"][names.ANNOTATION_WARMED])

    def _engines(self) -> list[dict]:
        selector = f"{names.LABEL_GROUP}={GROUP},{names.LABEL_REVISION}={self.revision()}"
        return [each for each in self.kube.list("pods", selector) if "deletionTimestamp" not in each["metadata"]]

    def replaced(self, slot: str, name: str) -> None:
        """Wait until another pod holds the slot and all are warm."""
        wait_for(lambda: True if self.pods().get(slot, name) != name else None, f"another pod in {slot}", self.pods)
        self.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")

    def rolled(self) -> None:
        """Wait until a change has reached all replicas."""
        self.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
        self.kube.run("rollout", "status", f"deployment/{GROUP}-{self.revision()}", "--timeout=90s")
        self.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")

    def gone(self, pods: Collection[str]) -> None:
        """Wait until pods are no more, however long they take to end."""
        left = lambda: {each["metadata"]["name"] for each in self.kube.list("pods")} & set(pods)  # noqa: E731
        wait_for(lambda: True if not left() else None, "pods to go", left)

    def evict(self, name: str) -> None:
        """Ask for a pod's eviction, as a drain does."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
        self.kube.run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

    def kill_operators(self) -> None:
        """Kill the operators' processes; kubelets start them again, sooner or later."""
        for each in self.cluster.kubectl("promptgroup-system").list("pods"):
            self.cluster.kill_pod("promptgroup-system", each["metadata"]["name"], "operator")


def cold(folder: Path) -> int:
    """Requests that met a cold Tier 1 on engines of the namespace, those that are gone included."""
    files = log_files(folder, NAMESPACE, f"{GROUP}-*")
    return sum(file.read_text(errors="replace").count(COLD) for file in files)


def lives(**engine: object) -> dict:
    """The group as it begins, but for what is given of its engine."""
    made = group(GROUP, PROMPTS["g"], replicas=REPLICAS)
    made["spec"]["engine"] |= engine
    return made


def budget() -> dict:
    """One replica at a time: evictions wait for each other's replacement to be warm."""
    selector = {"matchLabels": {names.LABEL_GROUP: GROUP}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": GROUP},
        "spec": {"maxUnavailable": 1, "selector": selector},
    }


@pytest.fixture(scope="module")
def running(cluster: LocalCluster) -> Iterator[Life]:
    lab.install_operator(cluster.kubectl())
    kube = cluster.kubectl(NAMESPACE)
    kube.run("create", "namespace", NAMESPACE)
    lab.install_router(kube)
    kube.apply(lives(), budget())
    kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
    target = Target([lab.router_url(kube)], "tiny", groups={"life": GROUP})
    with Load(target, Task("life", PROMPTS["g"]), lambda: cold(cluster.folder)) as load:
        yield Life(cluster, kube, load)
    kube.run("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def life(running: Life) -> Life:
    """The group at rest, whatever the test before made of it."""
    running.kube.apply(lives())
    running.rolled()
    return running


def unharmed(seen: Seen) -> bool:
    """Every request was answered in full by a replica that was warm for the prompt."""
    assert seen.requests > 0
    assert (seen.failed, seen.cut, seen.cold) == ([], [], 0)
    return True


# --- changes --------------------------------------------------------------------------------------------------------


def test_an_update_of_all_replicas_fails_nothing_and_moves_no_session(life: Life) -> None:
    before = life.pods()
    with life.load.watched() as seen:
        life.kube.apply(lives(args=["--max-num-batched-tokens=4096"]))
        life.rolled()
    after = life.pods()
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())
    assert unharmed(seen)
    assert seen.moved() == 0


def test_scaling_3_to_6_to_2_fails_nothing_and_moves_only_who_must(life: Life) -> None:
    three = set(life.pods())
    with life.load.watched() as grown:
        life.kube.run("scale", "promptgroup", GROUP, "--replicas=6")
        life.kube.wait_warm(GROUP, "6/6")
    six = life.pods()
    with life.load.watched() as shrunk:
        life.kube.run("scale", "promptgroup", GROUP, "--replicas=2")
        life.gone([six[slot] for slot in sorted(six)[2:]])
        life.kube.wait_warm(GROUP, "2/2")
    assert unharmed(grown)
    assert len(six.keys() - three) == 3
    assert grown.moved() <= 1.1 * SESSIONS * 3 / 6
    assert unharmed(shrunk)
    two = life.pods()
    assert two == {slot: six[slot] for slot in sorted(six)[:2]}
    assert shrunk.moved(besides=six.keys() - two) == 0


# --- harm -----------------------------------------------------------------------------------------------------------


def test_an_evicted_pods_sessions_are_served_elsewhere_and_come_back(life: Life) -> None:
    slot, pod = min(life.pods().items())
    with life.load.watched() as seen:
        life.evict(pod)
        life.replaced(slot, pod)
    assert unharmed(seen)


def test_a_crash_fails_no_request_for_a_whole_answer(life: Life) -> None:
    pod = min(life.pods().values())
    before = life.proof(pod)
    with life.load.watched() as seen:
        life.cluster.kill_pod(NAMESPACE, pod)
        wait_for(lambda: True if life.proof(pod) != before else None, "the new container to be warm")
        life.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
    assert (seen.failed, seen.cold) == ([], 0)


@pytest.fixture
def other_node(life: Life) -> Iterator[str]:
    """Another node, with all of the group's pods on it and room for them on the first."""
    name, kubectl = "local-life", life.cluster.kubectl()
    life.cluster.start_node(name)
    try:
        kubectl.run("wait", "--for=create", f"node/{name}", "--timeout=30s")
        kubectl.run("wait", "--for=condition=Ready", f"node/{name}", "--timeout=30s")
        kubectl.run("cordon", "local-0")
        life.kube.apply(lives(args=["--max-num-seqs=200"]))
        life.rolled()
        kubectl.run("uncordon", "local-0")
        assert life.nodes() == {name}
        yield name
        drain(kubectl, name)
    finally:
        kubectl.run("uncordon", "local-0")
        life.cluster.stop_node(name)
        kubectl.delete("node", name)


def drain(kubectl: Kubectl, node: str) -> None:
    """Move all pods off a node, as for its maintenance."""
    kubectl.run("drain", node, "--delete-emptydir-data", "--force", "--timeout=120s")


def test_a_drained_node_takes_no_request_with_it(life: Life, other_node: str) -> None:
    with life.load.watched() as seen:
        drain(life.cluster.kubectl(), other_node)
        life.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
    assert unharmed(seen)
    assert life.nodes() == {"local-0"}


def test_a_replica_that_gives_way_to_a_more_urgent_pod_takes_no_request_with_it(life: Life, other_node: str) -> None:
    before = life.pods()
    scheduling = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    life.kube.apply({**scheduling, "metadata": {"name": "urgent"}, "value": 1000})
    urgent = pod("urgent", shell("sleep 600", resources={"limits": {"nvidia.com/gpu": GPUS - REPLICAS + 1}}))
    urgent["spec"] |= {"priorityClassName": "urgent", "nodeSelector": {"kubernetes.io/hostname": other_node}}
    with life.load.watched() as seen:
        life.kube.apply(urgent)
        wait_for(lambda: True if life.nodes() == {other_node, "local-0"} else None, "a replica to give way", life.pods)
        life.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
    life.kube.delete("pod", "urgent", "--grace-period=1")
    assert len(set(before.values()) - set(life.pods().values())) == 1
    assert unharmed(seen)


# --- outages --------------------------------------------------------------------------------------------------------


def test_an_operator_that_dies_in_the_midst_of_an_update_harms_nobody(life: Life) -> None:
    before = life.pods()
    with life.load.watched() as seen:
        life.kube.apply(lives(args=["--max-num-batched-tokens=2048"]))
        life.kill_operators()
        wait_for(lambda: True if set(life.pods().values()) - set(before.values()) else None, "progress", life.pods)
        life.kill_operators()
        life.rolled()
    assert not set(before.values()) & set(life.pods().values())
    assert unharmed(seen)


def test_an_eviction_without_an_operator_harms_nobody(life: Life) -> None:
    slot, evicted = min(life.pods().items())
    operators = life.cluster.kubectl("promptgroup-system")
    count = operators.get("deployment", "promptgroup-operator")["spec"]["replicas"]
    with life.load.watched() as seen:
        operators.run("scale", "deployment/promptgroup-operator", "--replicas=0")
        wait_for(lambda: True if operators.list("pods") == [] else None, "the operators to go")
        life.evict(evicted)
        life.gone([evicted])
        with life.load.watched():
            pass  # the router finds by itself that nobody is there
        operators.run("scale", "deployment/promptgroup-operator", f"--replicas={count}")
        life.replaced(slot, evicted)
    assert unharmed(seen)


def test_a_new_prompt_is_for_new_sessions_and_running_ones_stay_where_they_are(life: Life) -> None:
    old = life.revision()
    changed = lives()
    changed["spec"]["prompt"]["system"] = PROMPTS["h"]
    with life.load.watched() as seen:
        life.kube.apply(changed)
        wait_for(lambda: True if life.revision() != old else None, "the release")
        life.rolled()
        new = life.revision()
        wait_for(lambda: True if life.load.served(f"/{new}/") else None, "a session on the new prompt")
    assert unharmed(seen)
    assert seen.moved() == 0


def test_an_outage_of_the_api_server_for_a_minute_harms_nobody(life: Life) -> None:
    before = life.pods()
    with life.load.watched() as seen:
        life.cluster.plane.stop_apiserver()
        try:
            time.sleep(60)
        finally:
            life.cluster.plane.start_apiserver()
            life.cluster.plane.restart_controllers()
        life.kube.run("scale", "promptgroup", GROUP, "--replicas=4")
        life.kube.wait_warm(GROUP, "4/4")
    assert unharmed(seen)
    assert before.items() <= life.pods().items()
    assert seen.moved() <= 1.1 * SESSIONS / 4
