"""README: losing the operator or the API server does not touch traffic; a router restarts from the copy on its disk."""

import pytest

from harness.clients import Plan, clients, service
from harness.cluster import Cluster
from harness.group import group, prompt, routers
from harness.images import Images
from harness.install import ROLLOUT, SYSTEM
from harness.outcomes import unharmed
from promptgroup_local.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.alone

NAME = "alone"


@pytest.fixture(scope="module")
def two(kubectl: Kubectl, images: Images) -> str:
    kubectl.apply(group(NAME, images, prompt("a"), replicas=2))
    kubectl.wait_warm(NAME, "2/2")
    return NAME


def test_without_operator_traffic_goes_on_and_scaling_waits_for_it(
    cluster: Cluster, kubectl: Kubectl, images: Images, two: str
) -> None:
    system = cluster.kubectl(SYSTEM)
    plan = Plan((service(kubectl.namespace),), two)
    with clients(cluster, images, kubectl, two, plan) as running, running.watched(settle=24) as seen:
        system.scale("deployment", "promptgroup-operator", 0)
        wait_for(lambda: True if not system.list("pods") else None, "the operators to go")
        running.more(120)
        kubectl.scale("promptgroup", two, 3)
        system.scale("deployment", "promptgroup-operator", 2)
        system.run("rollout", "status", "deployment/promptgroup-operator", ROLLOUT)
        kubectl.wait_warm(two, "3/3")
    assert unharmed(seen)


def test_without_api_server_traffic_goes_on_and_a_router_restarts_from_its_copy(
    cluster: Cluster, kubectl: Kubectl, images: Images, two: str
) -> None:
    one, other = routers(kubectl)
    # each router by its own address: a Service without an API server does not learn that one is away for a moment
    address = {"one": f"http://{one['status']['podIP']}:8080", "other": f"http://{other['status']['podIP']}:8080"}
    with (
        clients(cluster, images, kubectl, two, Plan((address["one"],), two, seed=1)) as kept,
        clients(cluster, images, kubectl, two, Plan((address["other"],), two, seed=2)) as hurt,
        kept.watched(settle=24) as seen,
        hurt.watched(settle=24) as seen_hurt,
        cluster.without_apiserver(),
    ):
        kept.more(120)
        hurt.more(24)
        cluster.kill_container(other, "router")
        wait_for(lambda: True if any(each.error for each in hurt.outcomes()) else None, "the router to be away")
        wait_for(
            lambda: True if not any(each.error for each in hurt.outcomes()[-24:]) else None,
            "the router to serve again",
            seconds=180,
        )
    assert unharmed(seen)
    assert seen_hurt.failed or seen_hurt.cut  # it was away
    assert seen_hurt.cold == []
    name = other["metadata"]["name"]
    wait_for(
        lambda: True if (kubectl.get("pod", name) or {})["status"]["containerStatuses"][0]["restartCount"] else None,
        "the kubelet to tell of the restart",
    )
