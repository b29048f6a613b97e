"""README: caches survive. A replaced pod inherits its slot and its sessions, whoever remembers them."""

import pytest

from harness.clients import Plan, ask, clients, service
from harness.cluster import Cluster
from harness.group import group, prompt, revision, routers, slots
from harness.images import Images
from harness.outcomes import unharmed
from promptgroup_local.kubectl import Kubectl, wait_for

NAME = "stays"


@pytest.fixture(scope="module")
def three(kubectl: Kubectl, images: Images) -> str:
    kubectl.apply(group(NAME, images, prompt("a"), replicas=3))
    kubectl.wait_warm(NAME, "3/3")
    return NAME


def replace_all(kubectl: Kubectl, name: str) -> None:
    """Another pod in every slot, one after the other."""
    deployment = f"deployment/{name}-{revision(kubectl, name)}"
    kubectl.run("rollout", "restart", deployment)
    kubectl.run("rollout", "status", deployment, "--timeout=170s")
    kubectl.wait_warm(name, "3/3")


def test_pods_are_replaced_under_load_and_no_session_moves_for_good(
    cluster: Cluster, kubectl: Kubectl, images: Images, three: str
) -> None:
    before = slots(kubectl, three)
    with (
        clients(cluster, images, kubectl, three, Plan((service(kubectl.namespace),), three)) as running,
        running.watched(settle=36) as seen,
    ):
        replace_all(kubectl, three)
    after = slots(kubectl, three)
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())
    assert unharmed(seen)


def test_sessions_find_home_when_pods_are_new_and_no_router_remembers(
    cluster: Cluster, kubectl: Kubectl, images: Images, three: str
) -> None:
    # one after the other, and late enough for each router to know that the replica is idle again: all go home
    # sessions that no router has seen under the load before
    plan = {
        "urls": (service(kubectl.namespace),),
        "model": three,
        "sessions": 30,
        "at_once": 1,
        "pause": 0.3,
        "seed": 2,
    }
    before = {each.session: each.served for each in ask(cluster, images, Plan(**plan, last=1))}
    replace_all(kubectl, three)
    kubectl.run("scale", "deployment/promptgroup-router", "--replicas=0")
    wait_for(
        lambda: True if not kubectl.list("pods", "app.kubernetes.io/name=promptgroup-router") else None, "no router"
    )
    kubectl.run("scale", "deployment/promptgroup-router", "--replicas=2")
    kubectl.run("rollout", "status", "deployment/promptgroup-router", "--timeout=170s")
    assert len(routers(kubectl)) == 2
    after = {each.session: each.served for each in ask(cluster, images, Plan(**plan, first=1, last=2))}
    assert len(set(before.values())) == 3
    assert before == after
