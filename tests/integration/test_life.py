"""What clients meet while a group is changed and hurt: nothing.

Each test does one thing to a group of three under load. Answers in one piece must all come. Streams must as well where
the end of a replica is announced; a crash cuts those that it finds in their midst.
"""

from collections.abc import Iterator

import pytest

from promptgroup_local.kubectl import Kubectl, wait_for
from support.controlplane import pod, shell
from support.evictions import wait_evicted
from support.life import GROUP, REPLICAS, Life, lives, unharmed
from support.load import SESSIONS

pytestmark = pytest.mark.integration

GPUS = 64
"""Of a node."""


def test_an_update_of_all_replicas_fails_nothing_and_moves_no_session(life: Life) -> None:
    before, rings = life.pods(), life.rings()
    with life.load.watched() as seen:
        life.kube.apply(lives(args=("--max-num-batched-tokens=4096",)))
        life.rolled()
    after = life.pods()
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())
    assert unharmed(seen)
    assert life.rings() == rings
    assert seen.stayed()


def test_scaling_3_to_6_to_2_fails_nothing_and_moves_only_who_must(life: Life) -> None:
    three, before = set(life.pods()), life.rings()
    with life.load.watched() as grown:
        life.kube.scale("promptgroup", GROUP, 6)
        life.kube.wait_warm(GROUP, "6/6")
    six, between = life.pods(), life.rings()
    with life.load.watched() as shrunk:
        life.kube.scale("promptgroup", GROUP, 2)
        wait_for(lambda: True if len(life.pods()) == 2 else None, "four pods to go", life.pods)
        life.kube.wait_warm(GROUP, "2/2")
    assert unharmed(grown)
    assert len(six.keys() - three) == 3
    assert grown.stayed(forced=SESSIONS * 3 / 6)
    assert unharmed(shrunk)
    two = life.pods()
    assert two.items() <= six.items()
    assert shrunk.stayed(besides=six.keys() - two)
    after = life.rings()
    for session, ring in between.items():
        assert [slot for slot in ring if slot in three] == before[session]
        assert [slot for slot in ring if slot in two] == after[session]


# --- harm -----------------------------------------------------------------------------------------------------------


def test_an_evicted_pods_sessions_are_served_elsewhere_and_come_back(life: Life) -> None:
    slot, pod = min(life.pods().items())
    with life.load.watched() as seen:
        wait_evicted(life.kube, pod)
        life.replaced(slot, pod)
    assert unharmed(seen)


def test_a_crash_fails_no_request_for_a_whole_answer(life: Life) -> None:
    pod = min(life.pods().values())
    before = life.proof(pod)
    with life.load.watched() as seen:
        life.cluster.kill_pod(life.kube.namespace, pod)
        wait_for(lambda: True if life.proof(pod) != before else None, "the new container to be warm")
        life.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
    assert (seen.failed, seen.cold) == ([], 0)


@pytest.fixture
def other_node(life: Life) -> Iterator[str]:
    """Another node, with all of the group's pods on it and room for them on the first."""
    name, kubectl = "local-life", life.cluster.kubectl()
    life.cluster.start_node(name)
    try:
        kubectl.run("wait", "--for=create", f"node/{name}", "--timeout=90s")
        kubectl.run("wait", "--for=condition=Ready", f"node/{name}", "--timeout=90s")
        kubectl.run("cordon", "local-0")
        life.kube.apply(lives(args=("--max-num-seqs=200",)))
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
