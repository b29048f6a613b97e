"""README: a node that dies takes no whole answer with it; its replicas come up warm elsewhere, its sessions go on.

Of requests in flight at that moment, streams whose first byte was sent are cut; whole answers are asked for again.
The node that dies here has no router: a client whose router dies has to ask again itself. It has one replica; a node
with two is a row of tests/integration/test_fault_table.py.
"""

import json
from collections.abc import Iterator

import pytest

from harness.clients import Plan, clients, service
from harness.cluster import OUT_OF_SERVICE, Cluster
from harness.group import apart, group, pods, prompt, routers
from harness.images import Images
from promptgroup_local.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.alone

NAME = "lives"
REPLICAS = 3


@pytest.fixture
def doomed(cluster: Cluster, kubectl: Kubectl, images: Images) -> Iterator[str]:
    """A node with replicas and without a router; it is back at the end."""
    wanted = group(NAME, images, prompt("a"), replicas=REPLICAS)
    wanted["spec"]["engine"]["template"]["spec"]["topologySpreadConstraints"] = [apart(NAME)]
    kubectl.apply(wanted)
    kubectl.wait_warm(NAME, f"{REPLICAS}/{REPLICAS}")
    held = {pod["spec"]["nodeName"] for pod in pods(kubectl, NAME)}
    node = min(held - {pod["spec"]["nodeName"] for pod in routers(kubectl)})
    yield node
    cluster.start_node(node)
    kubectl.run("taint", "node", node, f"{OUT_OF_SERVICE}-", check=False)


def ready(kubectl: Kubectl, node: str) -> bool:
    conditions = (kubectl.get("node", node) or {})["status"]["conditions"]
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def test_a_node_that_dies_fails_no_whole_answer_and_its_replicas_come_up_elsewhere(
    cluster: Cluster, kubectl: Kubectl, images: Images, doomed: str
) -> None:
    lost = {pod["metadata"]["name"] for pod in pods(kubectl, NAME) if pod["spec"]["nodeName"] == doomed}
    plan = Plan((service(kubectl.namespace),), NAME)
    with clients(cluster, images, kubectl, NAME, plan) as running:
        with running.watched(settle=48) as first:
            cluster.kill_node(doomed)
        with running.watched(settle=48) as later:
            wait_for(lambda: True if not ready(kubectl, doomed) else None, "the node to be missed", seconds=180)
            kubectl.run("taint", "node", doomed, f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")
            wait_for(
                lambda: True if not lost & {pod["metadata"]["name"] for pod in pods(kubectl, NAME)} else None,
                "its pods to be given up",
                lambda: json.dumps([pod["metadata"]["name"] for pod in pods(kubectl, NAME)]),
            )
            kubectl.wait_warm(NAME, f"{REPLICAS}/{REPLICAS}", seconds=180)
    assert (first.failed, first.cold) == ([], [])
    assert len(first.cut) <= plan.at_once // 2
    # once they were missed nothing is sent to them any more
    assert (later.failed, later.cut, later.cold) == ([], [], [])
    assert doomed not in {pod["spec"]["nodeName"] for pod in pods(kubectl, NAME)}
