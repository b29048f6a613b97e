"""README: at a terminal. The kubectl plugin asks a cluster's API server, and through it the routers."""

import json
import os
import subprocess
from typing import Any

import pytest

from harness import client
from harness.clients import Plan, ask, clients, service
from harness.cluster import Cluster
from harness.group import BY_RING, group, prompt, slots
from harness.images import Images
from promptgroup_local.kubectl import Kubectl, wait_for

NAME = "asked"


@pytest.fixture(scope="module")
def asked(kubectl: Kubectl, images: Images) -> Kubectl:
    kubectl.apply(_api_server_reaches_routers(kubectl))
    # every router gives the same answer where only the ring decides
    kubectl.apply(group(NAME, images, prompt("a"), replicas=3, routing=BY_RING))
    kubectl.wait_warm(NAME, "3/3")
    return kubectl


def _api_server_reaches_routers(kubectl: Kubectl) -> dict[str, Any]:
    """What docs/how-to/install.md asks for where a network enforces policies: here the API server is a node."""
    nodes = kubectl.list("nodes", "node-role.kubernetes.io/control-plane")
    addresses = [
        each["address"] for node in nodes for each in node["status"]["addresses"] if each["type"] == "InternalIP"
    ]
    blocks = [{"ipBlock": {"cidr": f"{address}/{128 if ':' in address else 32}"}} for address in addresses]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "api-server-to-routers"},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "promptgroup-router"}},
            "ingress": [{"from": blocks, "ports": [{"port": "admin", "protocol": "TCP"}]}],
        },
    }


def plugin(kubectl: Kubectl, *words: str, stdin: str = "") -> tuple[int, Any]:
    """`kubectl promptgroup ... -o json`: its exit status, and its answer."""
    command = ["kubectl", "promptgroup", *words, "-n", kubectl.namespace, "-o", "json"]
    environment = {**os.environ, "KUBECONFIG": str(kubectl.kubeconfig)}
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_status_shows_the_slots_and_the_pods_that_hold_them(asked: Kubectl) -> None:
    status, answer = plugin(asked, "status", NAME)
    [found] = answer["groups"]
    [revision] = found["revisions"]
    assert (status, found["ready"], found["warm"], found["waitsFor"]) == (0, True, "3/3", [])
    served = f"{asked.namespace}/{NAME}/{found['revision']}"
    held = {f"{served}/{each['slot']}": each["pod"] for each in revision["slots"]}
    assert held == slots(asked, NAME)


def test_explain_names_the_replica_that_a_request_then_goes_to(
    cluster: Cluster, asked: Kubectl, images: Images
) -> None:
    plan = Plan((service(asked.namespace),), NAME, sessions=6, at_once=1, last=1)
    told = {}
    for session in range(plan.sessions):
        said = client.message({"seed": plan.seed}, session, 0)
        body = {"model": NAME, "messages": [{"role": "user", "content": said}]}
        status, answer = plugin(asked, "explain", stdin=json.dumps(body))
        assert (status, answer["match"]["group"]) == (0, f"{asked.namespace}/{NAME}")
        told[session] = answer["choice"]
    assert told == {each.session: each.served for each in ask(cluster, images, plan)}


def test_top_counts_what_clients_do_on_every_router(cluster: Cluster, asked: Kubectl, images: Images) -> None:
    plan = Plan((service(asked.namespace),), NAME, seed=2)

    def look() -> dict[str, Any] | None:
        _, answer = plugin(asked, "top", "--once", "--interval=1")
        [row] = [each for each in answer["groups"] if each["group"] == f"{asked.namespace}/{NAME}"]
        heard = (answer["routers"], answer["silent"], row["warm"]) == (2, [], "3/3")  # both in time
        return row if heard and row["requestsPerSecond"] and row["hitRate"] else None

    with clients(cluster, images, asked, NAME, plan):
        row = wait_for(look, "requests to be counted")
    assert row["hitRate"] > 0.5
    assert len(row["replicas"]) == 3
