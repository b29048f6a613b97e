"""README: a router serves its own namespace. Two teams in two namespaces neither read nor reach each other's groups."""

from collections.abc import Iterator

import pytest

from harness.clients import Plan, ask, service
from harness.cluster import Cluster
from harness.group import group, prompt
from harness.images import Images
from harness.install import install_routers, team
from promptgroup_local.kubectl import Kubectl

ROUTER_ACCOUNT = "system:serviceaccount:{}:promptgroup-router"


def member(name: str) -> list[dict[str, object]]:
    """A user who may do everything with the groups of a namespace, and nothing elsewhere."""
    api = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["promptgroup.dev"], "resources": ["promptgroups", "promptroutes"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["*"]},
    ]
    subject = {"kind": "User", "name": name, "apiGroup": api}
    return [
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": {"name": "team"}, "rules": rules},
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "team"},
            "roleRef": {"apiGroup": api, "kind": "Role", "name": "team"},
            "subjects": [subject],
        },
    ]


@pytest.fixture(scope="module")
def blue(kubectl: Kubectl, images: Images) -> Kubectl:
    """A team whose prompt is a secret."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "prompt"}, "stringData": {"text": prompt("a")}}
    declared = group("support", images, "", replicas=1, routing={})
    declared["spec"]["prompt"] = {"systemFrom": {"secretKeyRef": {"name": "prompt", "key": "text"}}}
    kubectl.apply(secret, declared, *member("ana"))
    kubectl.wait_warm("support", "1/1")
    return kubectl


@pytest.fixture(scope="module")
def green(cluster: Cluster, images: Images, installed: None) -> Iterator[Kubectl]:
    """Another, with a group of the same name and model, and a prompt that begins in the same way."""
    own = cluster.kubectl("e2e-tenants-other")
    own.run("delete", "namespace", own.namespace, "--ignore-not-found")
    team(own)
    install_routers(own, images)
    own.apply(group("support", images, prompt("b"), replicas=1), group("theirs", images, prompt("c"), replicas=1))
    own.apply(*member("ben"))
    own.wait_warm("support", "1/1")
    own.wait_warm("theirs", "1/1")
    yield own
    own.run("delete", "namespace", own.namespace, "--wait=false")


def may(kubectl: Kubectl, user: str, verb: str, what: str) -> bool:
    return kubectl.run("auth", "can-i", verb, what, f"--as={user}", check=False).stdout.strip() == "yes"


def test_a_team_reads_its_own_objects_and_nobody_elses(blue: Kubectl, green: Kubectl) -> None:
    for what in ("promptgroups", "promptroutes", "secrets", "configmaps"):
        assert may(blue, "ana", "get", what)
        assert not may(green, "ana", "get", what)
        assert not may(green, ROUTER_ACCOUNT.format(blue.namespace), "get", what)
    refused = green.run("get", "promptgroup", "support", "--as=ana", check=False)
    assert "Forbidden" in refused.stderr
    assert may(blue, ROUTER_ACCOUNT.format(blue.namespace), "list", "promptroutes")


def test_a_router_leads_to_groups_of_its_own_namespace_only(
    cluster: Cluster, images: Images, blue: Kubectl, green: Kubectl
) -> None:
    one = {"sessions": 1, "at_once": 1, "last": 1}
    for kubectl in (blue, green):
        [answer] = ask(cluster, images, Plan((service(kubectl.namespace),), "support", **one))
        assert answer.served.startswith(f"{kubectl.namespace}/support/")
    [by_name] = ask(cluster, images, Plan((service(blue.namespace),), "theirs", **one))
    assert by_name.status == 404
    [by_path] = ask(cluster, images, Plan((service(blue.namespace),), f"{green.namespace}/theirs", **one))
    assert by_path.status == 404
    # their prompt, word for word, is nobody's here: served as any other, by one's own replicas
    [by_content] = ask(cluster, images, Plan((service(blue.namespace),), system=prompt("c"), **one))
    assert by_content.error == ""
    assert by_content.served == "-"  # no group's
    assert by_content.cached < 100


def test_a_prompt_from_a_secret_is_in_secrets_only(blue: Kubectl) -> None:
    kinds = "promptgroups,promptroutes,configmaps,deployments,replicasets,pods,events"
    assert "You are assistant a." not in blue.run("get", kinds, "-o", "yaml").stdout


def test_policies_are_there_for_a_network_that_enforces_them(blue: Kubectl) -> None:
    names = {each["metadata"]["name"] for each in blue.list("networkpolicies")}
    assert {"promptgroup-router", "promptgroup-engines"} <= names
