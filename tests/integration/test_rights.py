"""Roles of the manifests grant what operator and routers ask for, and nothing else: by the API server's audit log."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import urllib3
import yaml

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.inferencepools import inference_pools
from promptgroup_local.kubectl import Kubectl, wait_for
from support import audit
from support.audit import Right
from support.groups import PROMPTS, group
from support.operators import REPLICAS, SYSTEM, leader, set_operators

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TAKEN_BACK = Right("apps", "replicasets", "get")
"""Asked for where a change of the engine that made no replica warm is taken back, when another prompt replaces it."""
SEVERAL_NODES = {
    Right("leaderworkerset.x-k8s.io", "leaderworkersets", verb) for verb in ("create", "delete", "get", "patch")
}
"""Asked for by groups of several nodes alone, whose controller is not here. `test_nodes` has it, and the same role."""
OWNERS = Right("promptgroup.dev", "promptgroups/finalizers", "update")
ADOPTED = Right("promptgroup.dev", "promptroutes", "delete")
"""Both are asked for by an admission plugin, on behalf of who makes an object that blocks its owner's deletion, or
takes an orphan over: no request shows them. `test_objects_with_an_owner_need_the_right_over_its_finalizers` does, and
`test_orphans_of_a_deleted_group_are_adopted_by_its_successor`."""


NAMED = Right("", "secrets", "get")
"""Granted by name while a route has the name. The API server may learn so a moment after the router has the route:
`test_router_secrets` shows that the grant comes."""


@dataclass(frozen=True, slots=True)
class Installed:
    """An operator that has just started, and the roles that it has."""

    kube: Kubectl
    """The namespace of the groups."""
    home: Kubectl
    """The operator's own."""
    roles: tuple[str, ...]
    since: int
    """Where in the audit log it began."""


@pytest.fixture(params=["cluster", "namespace"])
def installed(request: pytest.FixtureRequest, cluster: LocalCluster, kube: Kubectl, no_operator: None) -> Installed:
    """An operator of the whole cluster, or of the namespace, as the manifests install it; it makes its own Lease."""
    since = audit.log(cluster.folder / "audit").stat().st_size
    if request.param == "namespace":
        kube.apply_folder(lab.ROOT / "manifests/operator-namespaced")
        home, roles = kube, ("role/promptgroup-operator", "role/promptgroup-operator-lease")
    else:
        home, roles = cluster.kubectl(SYSTEM), ("clusterrole/promptgroup-operator", "role/promptgroup-operator-lease")
        home.run("delete", "lease", "promptgroup-operator", "--ignore-not-found")
        set_operators(cluster, REPLICAS)
    leader(home)
    lab.install_router(kube)
    return Installed(kube, home, roles, since)


def from_object(name: str, kind: str, prompt: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """An object with a prompt, and a group that refers to it."""
    field = "configMapKeyRef" if kind == "ConfigMap" else "secretKeyRef"
    text = {"data" if kind == "ConfigMap" else "stringData": {"system": prompt}}
    made = group(name, replicas=1, rollout={"retireAfter": "1s", "revisionHistoryLimit": 0})
    made["spec"]["prompt"] = {"systemFrom": {field: {"name": f"{name}-text", "key": "system"}}}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": f"{name}-text"}, **text}, made


def everything(kube: Kubectl) -> None:
    """A life of two groups that takes every right: made, scaled, released, retired, deleted."""
    for name, kind, letter in (("maps", "ConfigMap", "a"), ("secrets", "Secret", "b")):
        kube.apply(*from_object(name, kind, PROMPTS[letter]))
    for name in ("maps", "secrets"):
        kube.wait_warm(name, "1/1")
    weights = {"image": "registry.example.com/models/tiny:1", "prefetch": True}
    where = {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}
    engine = {"weights": weights, "template": where}
    kube.patch("promptgroup", "maps", {"spec": {"replicas": 2, "gateway": {}, "engine": engine}})
    kube.wait_warm("maps", "2/2")
    old = {name: (kube.get("promptgroup", name) or {})["status"]["revision"] for name in ("maps", "secrets")}
    for name, kind, letter in (("maps", "ConfigMap", "c"), ("secrets", "Secret", "d")):
        kube.apply(*from_object(name, kind, PROMPTS[letter]))
    kube.wait_condition("maps", "GatewayProgrammed", "False", "NoParent")
    kube.patch("promptgroup", "maps", {"spec": {"gateway": None, "engine": {"weights": {"prefetch": False}}}})
    gone(kube, "inferencepool", "maps")
    gone(kube, "daemonset", "maps-weights")
    for name, kind in (("maps", "configmap"), ("secrets", "secret")):
        for each in ("deployment", "poddisruptionbudget", kind):
            gone(kube, each, f"{name}-{old[name]}")
    kube.delete("promptgroup", "maps")
    kube.delete("promptgroup", "secrets")


def gone(kube: Kubectl, kind: str, name: str) -> None:
    wait_for(lambda: True if kube.get(kind, name) is None else None, f"{kind} {name} to go")


def test_every_right_is_used_and_none_is_missing(installed: Installed, cluster: LocalCluster) -> None:
    with inference_pools(installed.kube):
        everything(installed.kube)
    asked = list(audit.requests(cluster.folder / "audit", installed.since))
    parties = {
        audit.user(installed.home.namespace, "promptgroup-operator"): audit.granted(installed.home, *installed.roles)
        - SEVERAL_NODES
        - {OWNERS, ADOPTED, TAKEN_BACK},
        audit.user(installed.kube.namespace, "promptgroup-router"): audit.granted(
            installed.kube, "role/promptgroup-router", "role/promptgroup-router-secrets"
        ),
    }
    for user, granted in parties.items():
        of_user = [each for each in asked if each.user == user]
        used = set().union(*(each.used() for each in of_user if each.allowed))
        assert sorted(granted - used) == [], f"{user} has rights that nothing uses"
        refused = {each for each in of_user if not each.allowed and each.right != NAMED}
        assert [each for each in refused if not audit.allows(installed.kube, each)] == []


@pytest.fixture
def no_right_over_finalizers(cluster: LocalCluster, operator: None) -> Iterator[None]:
    """The operator's role without the rule; as it was when the test has ended."""
    everywhere = cluster.kubectl()
    role = everywhere.get("clusterrole", "promptgroup-operator") or {}
    kept = [rule for rule in role["rules"] if OWNERS.resource not in rule["resources"]]
    assert len(kept) == len(role["rules"]) - 1
    everywhere.patch("clusterrole", "promptgroup-operator", {"rules": kept})
    yield
    everywhere.patch("clusterrole", "promptgroup-operator", {"rules": role["rules"]})


def test_objects_with_an_owner_need_the_right_over_its_finalizers(
    kube: Kubectl, no_right_over_finalizers: None
) -> None:
    kube.apply(group("owned", replicas=1))
    found = kube.wait_condition("owned", "Degraded", "True")
    assert "cannot set blockOwnerDeletion" in found["message"], yaml.safe_dump(found)


def test_the_log_tells_a_refusal_from_a_grant(cluster: LocalCluster, kube: Kubectl) -> None:
    kube.run("apply", "-f", str(lab.ROOT / "manifests/router/rbac.yaml"))
    token = kube.run("create", "token", "promptgroup-router").stdout.strip()
    since = audit.log(cluster.folder / "audit").stat().st_size
    with urllib3.PoolManager(ca_certs=str(cluster.plane.ca), timeout=10, retries=False) as pool:
        for path in ("api/v1/namespaces/{}/secrets", "apis/promptgroup.dev/v1alpha1/namespaces/{}/promptroutes"):
            url = f"{cluster.plane.server}/{path.format(kube.namespace)}"
            pool.request("GET", url, headers={"Authorization": f"Bearer {token}"})
    found = {
        each.right: each.allowed
        for each in audit.requests(cluster.folder / "audit", since)
        if each.user == audit.user(kube.namespace, "promptgroup-router")
    }
    assert found == {Right("", "secrets", "list"): False, Right("promptgroup.dev", "promptroutes", "list"): True}
