"""README: a router serves its own namespace. Two teams in two namespaces neither read nor reach each other's groups."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients import Plan, ask, service
from harness.cluster import Cluster
from harness.group import group, pods, prompt, routers
from harness.images import Images
from harness.install import install_routers, team
from promptgroup_local.kubectl import Kubectl, wait_for

PYTHON = "/opt/promptgroup/bin/python"
LISTENS = 8099
ENGINE, CLIENTS, ADMIN = 8000, 8080, 9090
"""Ports of engines, and of routers for clients and for the operator."""
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
    own.delete("namespace", own.namespace, wait=False)


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


@pytest.fixture
def impostor(cluster: Cluster, images: Images, installed: None) -> Iterator[Kubectl]:
    """A namespace of somebody who gives their pod the operator's label; another pod there listens at LISTENS."""
    own = cluster.kubectl("e2e-tenants-impostor")
    own.run("delete", "namespace", own.namespace, "--ignore-not-found")
    team(own)
    listens = f"import http.server as s; s.HTTPServer(('', {LISTENS}), s.SimpleHTTPRequestHandler).serve_forever()"
    own.apply(
        python_pod("impostor", images, "import signal; signal.pause()", named("promptgroup-operator")),
        python_pod("listener", images, listens, named("listener")),
    )
    own.run("wait", "pod", "--all", "--for=condition=Ready", "--timeout=60s")
    yield own
    own.delete("namespace", own.namespace, wait=False)


def python_pod(name: str, images: Images, program: str, labels: dict[str, str]) -> dict[str, object]:
    container = {
        "name": name,
        "image": images.name("standin-engine"),
        "command": [PYTHON, "-c", program],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def named(role: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": role}


def reaches(kubectl: Kubectl, pod: dict[str, Any], port: int) -> bool:
    """Whether the impostor gets a connection to a pod's port within three seconds."""
    connect = f"import socket; socket.create_connection(('{pod['status']['podIP']}', {port}), 3)"
    done = kubectl.run("exec", "impostor", "--", PYTHON, "-c", connect, check=False)
    assert done.returncode == 0 or "Traceback" in done.stderr, done.stderr  # the program ran
    return done.returncode == 0


def enforces(kubectl: Kubectl) -> bool:
    """Whether the network closes a pod that a policy closes, within half a minute."""
    listener = kubectl.get("pod", "listener")
    assert listener is not None
    wait_for(lambda: reaches(kubectl, listener, LISTENS) or None, "the listener to be reached")
    closed = {"podSelector": {"matchLabels": named("listener")}, "policyTypes": ["Ingress"]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"}}
    kubectl.apply({**policy, "spec": closed})
    try:
        wait_for(lambda: None if reaches(kubectl, listener, LISTENS) else True, "the listener to be closed", seconds=30)
    except TimeoutError:
        return False
    return True


def test_a_pod_with_the_operators_label_in_another_namespace_reaches_no_engine_and_no_admin_port(
    blue: Kubectl, impostor: Kubectl
) -> None:
    if not enforces(impostor):
        pytest.skip(
            "the network of this cluster enforces no NetworkPolicy: nothing was shown (kind 0.24 and newer does)"
        )
    [engine, *_], [router, *_] = pods(blue, "support"), routers(blue)
    # whoever is no impostor here could not reach it either
    wait_for(lambda: reaches(impostor, router, CLIENTS) or None, "the port for clients to be reached")
    assert not reaches(impostor, router, ADMIN)
    assert not reaches(impostor, engine, ENGINE)
