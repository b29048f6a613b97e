"""README: caches survive. A replaced pod inherits its slot and its sessions, whoever remembers them."""

from typing import Any

from harness.clients import Plan, ask, clients, service
from harness.cluster import Cluster
from harness.group import BY_RING, DEDICATED, group, prompt, revision, routers, slots
from harness.images import Images
from harness.outcomes import unharmed
from promptgroup_local.kubectl import Kubectl, wait_for

NAME = "stays"
RING = "rings"


def three(kubectl: Kubectl, images: Images, name: str, routing: dict[str, Any] = DEDICATED) -> None:
    """Apply a group of three and wait until it is warm."""
    kubectl.apply(group(name, images, prompt(name), replicas=3, routing=routing))
    kubectl.wait_warm(name, "3/3")


def replace_all(kubectl: Kubectl, name: str) -> None:
    """Another pod in every slot, one after the other."""
    deployment = f"deployment/{name}-{revision(kubectl, name)}"
    kubectl.run("rollout", "restart", deployment)
    kubectl.run("rollout", "status", deployment, "--timeout=170s")
    kubectl.wait_warm(name, "3/3")


def test_pods_are_replaced_under_load_and_no_request_fails(cluster: Cluster, kubectl: Kubectl, images: Images) -> None:
    three(kubectl, images, NAME)
    before = slots(kubectl, NAME)
    with (
        clients(cluster, images, kubectl, NAME, Plan((service(kubectl.namespace),), NAME)) as running,
        running.watched(settle=36) as seen,
    ):
        replace_all(kubectl, NAME)
    after = slots(kubectl, NAME)
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())
    assert unharmed(seen)


def test_sessions_find_home_when_pods_are_new_and_no_router_remembers(
    cluster: Cluster, kubectl: Kubectl, images: Images
) -> None:
    three(kubectl, images, RING, BY_RING)
    plan = {"urls": (service(kubectl.namespace),), "model": RING, "sessions": 30, "at_once": 3, "pause": 0.0}
    before = {each.session: each.served for each in ask(cluster, images, Plan(**plan, last=1))}
    replace_all(kubectl, RING)
    kubectl.scale("deployment", "promptgroup-router", 0)
    wait_for(
        lambda: True if not kubectl.list("pods", "app.kubernetes.io/name=promptgroup-router") else None, "no router"
    )
    kubectl.scale("deployment", "promptgroup-router", 2)
    kubectl.rolled_out("promptgroup-router", 170)
    assert len(routers(kubectl)) == 2
    after = {each.session: each.served for each in ask(cluster, images, Plan(**plan, first=1, last=2))}
    assert len(set(before.values())) == 3
    assert before == after
