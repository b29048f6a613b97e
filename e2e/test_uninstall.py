"""docs/how-to/install.md: an uninstall leaves nothing behind, not in the cluster and not in the teams' namespaces."""

import pytest

from harness.cluster import Cluster
from harness.group import GROUP, group, prompt
from harness.images import Images
from harness.install import SYSTEM, routers, uninstall
from promptgroup_local.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.alone

OURS = "promptgroup"


def test_uninstalling_leaves_nothing(cluster: Cluster, kubectl: Kubectl, images: Images) -> None:
    kubectl.apply(group("goes", images, prompt("a"), replicas=2))
    kubectl.wait_warm("goes", "2/2")
    with routers(images, kubectl.namespace) as folder:
        uninstall(cluster.kubectl(), images)
        kubectl.run("delete", "-k", folder)
    # the key that the namespace's routers shared is the namespace's: routers may outlive its last group
    kubectl.delete("secret", "promptgroup-router-peers")

    for kind in ("crd", "clusterroles", "clusterrolebindings"):
        assert [each for each in names(cluster.kubectl(), kind) if OURS in each] == []
    assert not {SYSTEM, OURS} & names(cluster.kubectl(), "namespaces")
    wait_for(lambda: True if not left(kubectl) else None, "the namespace to be empty", lambda: sorted(left(kubectl)))

    def engines() -> str:
        return kubectl.run("get", "pods", "--all-namespaces", f"--selector={GROUP}", "-o", "name").stdout

    # those of namespaces that went before may still end their answers
    wait_for(lambda: True if engines() == "" else None, "all engines to go", engines)


def names(kubectl: Kubectl, kinds: str) -> set[str]:
    return {each["metadata"]["name"] for each in kubectl.list(kinds)}


def left(kubectl: Kubectl) -> set[str]:
    """What is in a namespace, without what every namespace has."""
    kinds = "pods,deployments,replicasets,services,configmaps,secrets,serviceaccounts,roles,rolebindings,leases"
    return names(kubectl, kinds + ",networkpolicies,poddisruptionbudgets,endpointslices") - {
        "kube-root-ca.crt",
        "default",
    }
