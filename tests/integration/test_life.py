"""What clients meet while a group is changed, hurt and left without its operator: nothing.

One group of three under a steady load of sessions; each test does one thing to it. Answers in one piece must all come.
Streams must as well where the end of a replica is announced; a crash cuts those that it finds in their midst.
"""

import json
from collections.abc import Iterator
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
from support.groups import PROMPTS, group
from support.load import Load, Seen

pytestmark = pytest.mark.integration

GROUP = "lives"
NAMESPACE = "life"
REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Life:
    """The group, its cluster and the load on it."""

    cluster: LocalCluster
    kube: Kubectl
    load: Load

    def pods(self) -> dict[str, str]:
        """Slot as the router names it → pod."""
        revision = (self.kube.get("promptgroup", GROUP) or {})["status"]["revision"]
        return {
            f"{NAMESPACE}/{GROUP}/{revision}/{pod['metadata']['labels'][names.LABEL_SLOT]}": pod["metadata"]["name"]
            for pod in lab.engine_pods(self.kube, GROUP)
            if names.LABEL_SLOT in pod["metadata"]["labels"]
        }

    def replaced(self, slot: str, pod: str) -> None:
        """Wait until another pod holds the slot and all are warm."""
        wait_for(lambda: True if self.pods().get(slot, pod) != pod else None, f"another pod in {slot}", self.pods)
        self.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")

    def rolled(self) -> None:
        """Wait until an update has reached all replicas."""
        self.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
        name = (self.kube.get("promptgroup", GROUP) or {})["status"]["revision"]
        self.kube.run("rollout", "status", f"deployment/{GROUP}-{name}", "--timeout=90s")
        self.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")


def cold(folder: Path) -> int:
    """Requests that met a cold Tier 1 on engines of the namespace, those that are gone included."""
    files = log_files(folder, NAMESPACE, f"{GROUP}-*")
    return sum(file.read_text(errors="replace").count(COLD) for file in files)


def lives(**engine: object) -> dict:
    """The group as it begins, but for what is given of its engine."""
    made = group(GROUP, PROMPTS["g"], replicas=REPLICAS)
    made["spec"]["engine"] |= engine
    return made


@pytest.fixture(scope="module")
def running(cluster: LocalCluster) -> Iterator[Life]:
    lab.install_operator(cluster.kubectl())
    kube = cluster.kubectl(NAMESPACE)
    kube.run("create", "namespace", NAMESPACE)
    lab.install_router(kube)
    kube.apply(lives())
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


def test_an_evicted_pods_sessions_are_served_elsewhere_and_come_back(life: Life) -> None:
    slot, pod = min(life.pods().items())
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    with life.load.watched() as seen:
        life.kube.run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
        life.replaced(slot, pod)
    assert unharmed(seen)
    assert seen.moved(besides=slot) == 0


def test_a_crash_fails_no_request_for_a_whole_answer(life: Life) -> None:
    slot, pod = min(life.pods().items())
    proof = "promptgroup.dev/warmed-container"
    before = life.kube.get("pod", pod)["metadata"]["annotations"][proof]
    with life.load.watched() as seen:
        life.cluster.kill_pod(NAMESPACE, pod)
        wait_for(
            lambda: True if life.kube.get("pod", pod)["metadata"]["annotations"][proof] != before else None,
            "the new container to be warm",
        )
        life.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
    assert (seen.failed, seen.cold) == ([], 0)
    assert seen.moved(besides=slot) == 0


def test_scaling_3_to_6_to_2_fails_nothing(life: Life) -> None:
    with life.load.watched() as seen:
        life.kube.run("scale", "promptgroup", GROUP, "--replicas=6")
        life.kube.wait_warm(GROUP, "6/6")
        life.kube.run("scale", "promptgroup", GROUP, "--replicas=2")
        wait_for(
            lambda: True if len(life.kube.list("pods", f"{names.LABEL_GROUP}={GROUP}")) == 2 else None,
            "four pods to go",
        )
        life.kube.wait_warm(GROUP, "2/2")
    assert unharmed(seen)
