"""README: whatever takes a replica away, its answers end first: here a node that is drained, and a preemption.

`test_drain` has scale-down, `tests/integration/test_leaving.py` eviction, `kubectl delete pod` and a changed engine. A
node that shuts down by itself cannot be shown: the kubelet asks systemd-logind for time, which kind's nodes do not run.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from harness.clients import Plan, clients, service
from harness.cluster import Cluster
from harness.group import group, pods, prompt, slots
from harness.images import Images
from harness.outcomes import unharmed
from harness.preemption import preempted
from promptgroup_local.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.alone

NAME = "leaves"
REPLICAS = 3
SLOW = {"STANDIN_STEP_MS": "75"}
"""An engine that takes half a minute for 400 tokens: longer than anything but the hook waits for a pod that goes."""
SECONDS = 170


@pytest.fixture(scope="module")
def served(kubectl: Kubectl, images: Images) -> None:
    kubectl.apply(group(NAME, images, prompt("a"), replicas=REPLICAS, env=SLOW))
    kubectl.wait_warm(NAME, f"{REPLICAS}/{REPLICAS}")


@contextmanager
def drained(cluster: Cluster, _images: Images, node: str) -> Iterator[None]:
    """Have a node emptied, as before its maintenance."""
    kubectl = cluster.kubectl()
    try:
        kubectl.run("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={SECONDS}s")
        yield
    finally:
        kubectl.run("uncordon", node)


@pytest.mark.parametrize("leaves", [drained, preempted], ids=["drain", "preemption"])
def test_a_replica_that_its_node_loses_ends_its_long_answers_first(
    cluster: Cluster, kubectl: Kubectl, images: Images, served: None, leaves: Callable
) -> None:
    on: dict[str, set[str]] = {}
    for pod in pods(kubectl, NAME):
        on.setdefault(pod["spec"]["nodeName"], set()).add(pod["metadata"]["name"])
    node = min(on, key=lambda name: (len(on[name]), name))
    going = [slot for slot, pod in slots(kubectl, NAME).items() if pod in on[node]]
    assert going
    plan = Plan((service(kubectl.namespace),), NAME, at_once=9, last=2, pause=0.0, tokens=400, streamed=True)
    with clients(cluster, images, kubectl, NAME, plan) as running, running.watched(settle=9) as seen:
        with leaves(cluster, images, node):
            wait_for(
                lambda: True if not on[node] & {pod["metadata"]["name"] for pod in pods(kubectl, NAME)} else None,
                "its replicas to be gone",
                lambda: json.dumps([pod["metadata"]["name"] for pod in pods(kubectl, NAME)]),
                seconds=SECONDS,
            )
        kubectl.wait_warm(NAME, f"{REPLICAS}/{REPLICAS}")
    assert unharmed(seen)
    assert all(seen.served[slot] > 0 for slot in going)
