"""Nodes pull the weights of a group before its replicas start there, by pods that the operator makes and takes away."""

from typing import Any

import pytest

from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import group

pytestmark = pytest.mark.integration

NAME = "ahead"
DAEMONS = f"{NAME}-weights"
WEIGHTS = "registry.example.com/models/tiny:1"


def status_of(kube: Kubectl) -> dict[str, Any]:
    return dict((kube.get("promptgroup", NAME) or {}).get("status", {}))


def pods(kube: Kubectl) -> list[dict[str, Any]]:
    return kube.list("pods", f"promptgroup.dev/weights={NAME}")


def gone(kube: Kubectl) -> bool | None:
    return True if kube.get("daemonset", DAEMONS) is None and not pods(kube) else None


def ahead(kube: Kubectl) -> dict[str, Any]:
    """A group on the first node, which alone shall pull its weights."""
    made = group(NAME, replicas=1)
    made["spec"]["engine"]["weights"] = {"image": WEIGHTS, "prefetch": True}
    first = kube.list("nodes")[0]["metadata"]["name"]
    made["spec"]["engine"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": first}
    return made


def test_nodes_have_the_weights_while_the_group_wants_it(cluster: LocalCluster, kube: Kubectl, operator: None) -> None:
    cluster.kubectl().run("label", "namespace", kube.namespace, "pod-security.kubernetes.io/enforce=restricted")
    made = ahead(kube)
    kube.apply(made)
    wait_for(lambda: status_of(kube).get("prefetch") == {"nodes": 1, "ready": 1} or None, "the node to have them")
    kube.wait_warm(NAME, "1/1")
    [pod] = pods(kube)
    assert pod["spec"]["volumes"][0]["image"]["reference"] == WEIGHTS
    daemon_set = kube.get("daemonset", DAEMONS) or {}
    assert daemon_set["metadata"]["ownerReferences"][0]["kind"] == "PromptGroup"

    # somebody else's change is taken back, and a deleted one is made again
    kube.patch("daemonset", DAEMONS, {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 40}}}})

    def as_it_was() -> bool | None:
        found = kube.get("daemonset", DAEMONS) or {}
        return found["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 1 or None

    wait_for(as_it_was, "the operator to take the change back")
    kube.delete("daemonset", DAEMONS)
    wait_for(lambda: kube.get("daemonset", DAEMONS), "another one")

    # a node that cannot run replicas need not pull
    made["spec"]["engine"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
    kube.apply(made)
    wait_for(lambda: status_of(kube).get("prefetch") == {"nodes": 0, "ready": 0} or None, "no node to be left")

    kube.patch("promptgroup", NAME, {"spec": {"engine": {"weights": {"prefetch": False}}}})
    wait_for(lambda: gone(kube), "its pods to go")
    wait_for(lambda: "prefetch" not in status_of(kube) or None, "the status to count no nodes")


def test_it_goes_with_the_group(kube: Kubectl, operator: None) -> None:
    kube.apply(ahead(kube))
    wait_for(lambda: pods(kube) or None, "pods")
    kube.delete("promptgroup", NAME)
    wait_for(lambda: gone(kube), "its pods to go")


def test_one_of_somebody_else_is_left_alone(kube: Kubectl, operator: None) -> None:
    labels = {"app": "theirs"}
    container = {"name": "main", "image": "busybox", "command": ["sleep", "1000"]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "nodeSelector": {"no": "node"}}}
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": DAEMONS},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    kube.apply(theirs)
    kube.apply(ahead(kube))
    kube.wait_condition(NAME, "Accepted", "False", "NameTaken")
    standing = kube.get("daemonset", DAEMONS) or {}
    assert standing["spec"]["template"]["metadata"]["labels"] == labels
    kube.delete("daemonset", DAEMONS)
    kube.wait_warm(NAME, "1/1")
