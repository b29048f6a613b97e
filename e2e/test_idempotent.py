"""README: plain Kubernetes. Applied again with nothing changed: no difference, no change, no rollout."""

from typing import Any

from harness.cluster import Cluster
from harness.group import group, prompt
from harness.images import Images
from harness.install import SYSTEM, routers, whole
from promptgroup_local.kubectl import Kubectl
from support.differences import wait_no_difference

KINDS = "deployments,services,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets,promptgroups"


def stand(*namespaces: Kubectl) -> dict[tuple[str, str, str], Any]:
    """(kind, namespace, name) → what a rollout or a change of the spec would raise; pods by their uid."""
    found = {}
    for kubectl in namespaces:
        for each in kubectl.list(KINDS):
            metadata = each["metadata"]
            found[each["kind"], kubectl.namespace, metadata["name"]] = metadata.get(
                "generation", metadata["resourceVersion"]
            )
        for each in kubectl.list("pods"):
            found["Pod", kubectl.namespace, each["metadata"]["name"]] = each["metadata"]["uid"]
    return found


def test_a_second_apply_changes_nothing(cluster: Cluster, kubectl: Kubectl, images: Images) -> None:
    declared = group("same", images, prompt("a"), replicas=2)
    kubectl.apply(declared)
    kubectl.wait_warm("same", "2/2")
    teams = (cluster.kubectl(SYSTEM), kubectl)
    before = stand(*teams)
    with whole(images) as operator, routers(images, kubectl.namespace) as router:
        for own, folder in ((cluster.kubectl(), operator), (kubectl, router)):
            wait_no_difference(own, "--server-side", "-k", folder)
            own.run("apply", "--server-side", "-k", folder)
    assert "unchanged" in kubectl.apply(declared).stdout
    kubectl.wait_warm("same", "2/2")
    assert stand(*teams) == before
