"""README: replicas of two nodes are scaled, released and lost as whole replicas.

The controller of LeaderWorkerSets is another project's: where it has not been built (`make lws`) the file is skipped.
"""

from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from harness.clients import Plan, clients, service
from harness.cluster import HOST, OUT_OF_SERVICE, Cluster
from harness.group import GROUP, apart, group, pods, prompt, routers
from harness.images import Images
from harness.lws import install_leader_worker_sets
from harness.outcomes import unharmed
from promptgroup_local.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.alone

NAME = "several"
NODES, REPLICAS = 2, 2
SET = "leaderworkerset.sigs.k8s.io/name"


ONE_A_MACHINE = {
    "topologySpreadConstraints": [apart(NAME)],
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": HOST,
                    "labelSelector": {},
                    "matchLabelKeys": ["leaderworkerset.sigs.k8s.io/group-key"],
                }
            ]
        }
    },
}
"""Leaders stand apart, and workers beside their leader: a machine that dies takes one whole replica."""


@pytest.fixture(autouse=True)
def controller(cluster: Cluster) -> None:
    install_leader_worker_sets(cluster)


def several(images: Images, text: str, replicas: int = REPLICAS) -> dict[str, Any]:
    rollout = {"retireAfter": "1s", "retireDeadline": "5s"}
    wanted = group(NAME, images, text, replicas=replicas, rollout=rollout)
    wanted["spec"]["engine"] |= {"nodes": NODES, "args": ["--tensor-parallel-size=2"]}
    return wanted


def uids(kubectl: Kubectl, selector: str) -> set[str]:
    """Pods that do not terminate."""
    living = (pod["metadata"] for pod in kubectl.list("pods", selector))
    return {metadata["uid"] for metadata in living if "deletionTimestamp" not in metadata}


def settled(kubectl: Kubectl, replicas: int, without: AbstractSet[str] = frozenset()) -> set[str]:
    """Wait until there are so many whole replicas, all warm and none of those given; returns their leaders."""

    def leaders() -> set[str] | None:
        found = uids(kubectl, f"{GROUP}={NAME}")
        whole = len(found) == replicas and len(uids(kubectl, SET)) == replicas * NODES
        return found if whole and not found & without else None

    found = wait_for(leaders, f"{replicas} whole replicas", lambda: kubectl.get("promptgroup", NAME), seconds=240)
    kubectl.wait_warm(NAME, f"{replicas}/{replicas}")
    return found


def test_replicas_of_two_nodes_grow_shrink_change_and_are_lost_as_a_whole(
    cluster: Cluster, kubectl: Kubectl, images: Images
) -> None:
    kubectl.apply(several(images, prompt("a")))
    before = settled(kubectl, REPLICAS)
    with (
        clients(cluster, images, kubectl, NAME, Plan((service(kubectl.namespace),), NAME)) as running,
        running.watched(settle=36) as seen,
    ):
        kubectl.apply(several(images, prompt("a"), replicas=3))
        settled(kubectl, 3)
        kubectl.apply(several(images, prompt("a")))
        assert settled(kubectl, REPLICAS) == before
        worker = next(pod["metadata"]["name"] for pod in kubectl.list("pods", f"{SET},!{GROUP}"))
        leader = kubectl.get("pod", worker.rpartition("-")[0]) or {}
        kubectl.delete("pod", worker, wait=False)
        settled(kubectl, REPLICAS, {leader["metadata"]["uid"]})
    assert unharmed(seen)
    kubectl.apply(several(images, prompt("b")))
    settled(kubectl, REPLICAS, before)


def test_a_machine_that_dies_costs_the_replica_that_was_on_it(
    cluster: Cluster, kubectl: Kubectl, images: Images
) -> None:
    wanted = several(images, prompt("a"), replicas=3)
    wanted["spec"]["engine"]["template"]["spec"] |= ONE_A_MACHINE
    kubectl.apply(wanted)
    settled(kubectl, 3)
    standing = pods(kubectl, NAME)
    serving = {pod["spec"]["nodeName"] for pod in routers(kubectl)}
    [lost] = [pod for pod in standing if pod["spec"]["nodeName"] not in serving][:1]
    machine = lost["spec"]["nodeName"]
    plan = Plan((service(kubectl.namespace),), NAME)
    try:
        with clients(cluster, images, kubectl, NAME, plan) as running:
            with running.watched(settle=36) as first:
                cluster.kill_node(machine)
            with running.watched(settle=36) as later:
                kubectl.run("wait", f"node/{machine}", "--for=condition=Ready=Unknown", "--timeout=170s")
                kubectl.run("taint", "node", machine, f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")
                settled(kubectl, 3, {lost["metadata"]["uid"]})
        assert (first.failed, first.cold) == ([], [])
        assert len(first.cut) <= plan.at_once // 2
        assert (later.failed, later.cut, later.cold) == ([], [], [])
    finally:
        cluster.start_node(machine)
        kubectl.run("taint", "node", machine, f"{OUT_OF_SERVICE}-", check=False)
