"""Routers read the Secrets that PromptRoutes of their namespace name, and no others: by the API server itself."""

import json

import pytest
import urllib3

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS, group

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OPERATOR = "system:serviceaccount:promptgroup-system:promptgroup-operator"


def secret(name: str, text: str) -> dict:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"system": text}}


def granted(kube: Kubectl) -> list[str]:
    rules = (kube.get("role", names.ROLE_ROUTER_SECRETS) or {}).get("rules") or []
    return [each for rule in rules for each in rule["resourceNames"]]


def copy_of(kube: Kubectl, name: str) -> str:
    """The Secret that the route of a group names."""
    route = kube.get("promptroute", name) or {}
    sources = [each["promptFrom"] for each in route.get("spec", {}).get("revisions", ()) if "promptFrom" in each]
    return sources[0]["name"] if len(sources) == 1 else ""


def test_a_router_reads_the_secrets_of_routes_and_no_others(
    kube: Kubectl, cluster: LocalCluster, operator: None
) -> None:
    kube.run("apply", "--server-side", "-f", str(lab.ROOT / "manifests/router/rbac.yaml"))
    made = group("hidden", replicas=1, rollout={"retireAfter": "1s", "revisionHistoryLimit": 0})
    made["spec"]["prompt"] = {"systemFrom": {"secretKeyRef": {"name": "text", "key": "system"}}}
    kube.apply(secret("text", PROMPTS["a"]), secret("other", "nobody's"), made)

    def granted_is_named() -> str | None:
        name = copy_of(kube, "hidden")
        return name if name and granted(kube) == [name] else None

    first = wait_for(granted_is_named, "the route's Secret to be granted", lambda: f"granted: {granted(kube)}")
    token = kube.run("create", "token", "promptgroup-router").stdout.strip()

    def status(name: str) -> int:
        url = f"{cluster.plane.server}/api/v1/namespaces/{kube.namespace}/secrets/{name}"
        return pool.request("GET", url, headers={"Authorization": f"Bearer {token}"}).status

    with urllib3.PoolManager(ca_certs=str(cluster.plane.ca), timeout=10, retries=False) as pool:
        wait_for(lambda: True if status(first) == 200 else None, "the router to read it", lambda: str(status(first)))
        # the one that users wrote is the operator's to read
        assert [status(name) for name in ("other", "text", "promptgroup-router-peers")] == [403, 403, 403]

    kube.apply(secret("text", PROMPTS["b"]))
    wait_for(
        lambda: True if (name := granted_is_named()) and name != first else None,
        "the next prompt to be granted, and the last one no more",
        lambda: f"granted: {granted(kube)}",
    )
    kube.delete("promptgroup", "hidden")
    wait_for(lambda: True if granted(kube) == [] else None, "nothing to be granted", lambda: f"{granted(kube)}")


def test_the_operator_grants_routers_single_secrets_and_nobody_anything_else(
    kube: Kubectl, cluster: LocalCluster, operator: None
) -> None:
    kube.run("apply", "--server-side", "-f", str(lab.ROOT / "manifests/router/rbac.yaml"))
    kube.run("create", "role", "theirs", "--verb=list", "--resource=pods")

    def patch(role: str, *rules: dict) -> str:
        flags = (f"--as={OPERATOR}", "--type=merge", "--dry-run=server", f"-p={json.dumps({'rules': rules})}")
        return kube.run("patch", "role", role, *flags, check=False).stderr

    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["prompt"]}
    ours, refused = names.ROLE_ROUTER_SECRETS, "lets routers and pickers get Secrets by name"
    wait_for(
        lambda: True if refused in patch(ours, rule | {"resourceNames": []}) else None,
        "the policy to be known",
        lambda: patch(ours, rule | {"resourceNames": []}),
    )
    assert patch(ours, rule) == patch(ours) == ""
    for wrong in (
        {"verbs": ["get", "delete"]},
        {"resources": ["secrets", "configmaps"]},
        {"resources": ["configmaps"]},
    ):
        assert refused in patch(ours, rule | wrong)
    assert "not currently held" in patch(ours, rule | {"verbs": ["list"]})  # the API server's own check comes first
    assert refused in patch(ours, rule, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})
    for verb in ("get", "patch"):
        assert kube.run("auth", "can-i", verb, "roles/theirs", f"--as={OPERATOR}", check=False).returncode == 1
