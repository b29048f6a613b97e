"""README: groups that sleep. Two hundred clients at once wake a group with one replica, and none of them fails."""

from harness.clients import BLOCK, Plan, ask, service, tier1
from harness.cluster import Cluster
from harness.group import group, pods, prompt
from harness.images import Images
from promptgroup_local.kubectl import Kubectl, wait_for

NAME = "sleeps"
SIZING = {"minReplicas": 0, "maxReplicas": 1, "idleAfter": "1m"}
CLIENTS = 200


def scalings(kubectl: Kubectl) -> int:
    """Changes of the spec of the group's Deployment."""
    [deployment] = kubectl.list("deployments", f"promptgroup.dev/group={NAME}")
    return int(deployment["metadata"]["generation"])


def test_two_hundred_clients_wake_a_group_once(cluster: Cluster, kubectl: Kubectl, images: Images) -> None:
    made = group(NAME, images, prompt("a"))
    del made["spec"]["replicas"]
    made["spec"] |= {"sizing": SIZING}
    kubectl.apply(made)
    kubectl.wait_warm(NAME, "1/1")
    wait_for(
        lambda: True if kubectl.condition(NAME, "Ready").get("reason") == "Asleep" else None,
        "the group to sleep",
        lambda: kubectl.get("promptgroup", NAME),
        seconds=240,
    )
    wait_for(lambda: True if not pods(kubectl, NAME) else None, "the last pod to go", seconds=120)
    before, needed = scalings(kubectl), tier1(kubectl, NAME)
    plan = Plan((service(kubectl.namespace),), NAME, sessions=CLIENTS, at_once=CLIENTS, last=1, tokens=4)
    outcomes = ask(cluster, images, plan)
    assert len(outcomes) == CLIENTS
    assert [outcome.error for outcome in outcomes if outcome.error] == []
    assert [outcome for outcome in outcomes if outcome.cached < needed[outcome.revision] - BLOCK] == []
    assert scalings(kubectl) == before + 1
    kubectl.wait_warm(NAME, "1/1")
