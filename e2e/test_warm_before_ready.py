"""README: warm before Ready, with proof. No replica serves, and none is Ready, before its engine has the prefix."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients import Plan, ask, clients, service
from harness.cluster import Cluster
from harness.group import LOADS, SLOT, WARM, WARMED, group, pods, prompt, routed
from harness.images import Images
from harness.outcomes import unharmed
from promptgroup_local.kubectl import Kubectl, wait_for

SLOW = {**LOADS, "STANDIN_PREFILL_TOKENS_PER_SECOND": "300"}
"""An engine that takes seconds for the prefix, so that a cold one can be told from a warm one."""


def true(pod: dict[str, Any], condition: str) -> bool:
    found = pod["status"].get("conditions", [])
    return any((each["type"], each["status"]) == (condition, "True") for each in found)


def led_to(kubectl: Kubectl, name: str) -> set[str]:
    """Pods that routers may send to."""
    slots = (slot for each in routed(kubectl, name) for slot in each["slots"])
    return {slot["pod"] for slot in slots if slot["state"] == "Ready"}


@pytest.fixture
def slow(kubectl: Kubectl, images: Images) -> Iterator[str]:
    kubectl.apply(group("slow", images, prompt("a"), replicas=1, env=SLOW))
    yield "slow"
    kubectl.delete("promptgroup", "slow")


def test_a_replica_is_ready_and_routed_only_once_its_prefix_is_proven_to_be_cached(
    cluster: Cluster, kubectl: Kubectl, images: Images, slow: str
) -> None:
    cold = set()

    def ready() -> bool | None:
        route = led_to(kubectl, slow)  # before the pods: what it leads to is warm already
        for pod in pods(kubectl, slow):
            name = pod["metadata"]["name"]
            assert true(pod, WARM) or not (true(pod, "Ready") or name in route)
            if true(pod, "ContainersReady") and not true(pod, WARM):
                cold.add(name)
        return True if route else None

    wait_for(ready, "a replica to be routed to", lambda: routed(kubectl, slow))
    kubectl.wait_warm(slow, "1/1")
    assert cold == {pod["metadata"]["name"] for pod in pods(kubectl, slow)}
    [first] = ask(cluster, images, Plan((service(kubectl.namespace),), slow, sessions=1, at_once=1, last=1))
    assert first.error == ""
    assert first.cached >= routed(kubectl, slow)[0]["tokens"] - 16 > 1000


def test_replicas_that_join_under_load_meet_no_request_cold(
    cluster: Cluster, kubectl: Kubectl, images: Images, slow: str
) -> None:
    kubectl.wait_warm(slow, "1/1")
    plan = Plan((service(kubectl.namespace),), slow, at_once=6, last=3, tokens=8)
    with clients(cluster, images, kubectl, slow, plan) as running, running.watched(settle=40) as seen:
        kubectl.scale("promptgroup", slow, 3)
        kubectl.wait_warm(slow, "3/3")
    assert len(seen.served) == 3
    assert unharmed(seen)


def test_a_container_that_crashed_comes_back_only_when_it_is_warm_again(
    cluster: Cluster, kubectl: Kubectl, images: Images, slow: str
) -> None:
    kubectl.scale("promptgroup", slow, 2)
    kubectl.wait_warm(slow, "2/2")
    victim = min(pods(kubectl, slow), key=lambda pod: pod["metadata"]["labels"][SLOT])
    name = victim["metadata"]["name"]

    def proven_again() -> bool | None:
        route = [slot for each in routed(kubectl, slow) for slot in each["slots"] if slot.get("pod") == name]
        pod = kubectl.get("pod", name)  # after the route: a container that it leads to is proven already
        assert pod is not None
        container = pod["status"]["containerStatuses"][0]
        if container["restartCount"] == 0 or not container.get("containerID"):
            return None
        proven = pod["metadata"]["annotations"].get(WARMED) == container["containerID"] and true(pod, WARM)
        new = container["containerID"].rpartition("/")[2]
        assert proven or not any(new.startswith(slot["incarnation"]) for slot in route)
        # until the condition of the container before is taken back, the kubelet may call the new one Ready
        return True if proven and true(pod, "Ready") else None

    plan = Plan((service(kubectl.namespace),), slow, at_once=6, last=3, tokens=8)
    with clients(cluster, images, kubectl, slow, plan) as running, running.watched(settle=30) as seen:
        cluster.kill_container(victim, "engine")
        wait_for(proven_again, "the new container to be warm and Ready", lambda: kubectl.get("pod", name))
        kubectl.wait_warm(slow, "2/2")
    # a crash cuts the streams that it finds, and nothing else
    assert (seen.failed, seen.cold) == ([], [])


def test_a_replica_that_cannot_be_proven_warm_is_never_ready_and_says_why(kubectl: Kubectl, images: Images) -> None:
    kubectl.apply(group("uncached", images, prompt("b"), replicas=1, args=("--no-enable-prefix-caching",)))

    def reason() -> str | None:
        for pod in pods(kubectl, "uncached"):
            for each in pod["status"].get("conditions", []):
                if each["type"] == WARM and each["reason"] == "PrefixCachingDisabled":
                    return str(each["message"])
        return None

    assert "--no-enable-prefix-caching" in wait_for(reason, "the reason", lambda: pods(kubectl, "uncached"))
    assert not any(true(pod, "Ready") for pod in pods(kubectl, "uncached"))
    assert led_to(kubectl, "uncached") == set()
    assert kubectl.condition("uncached", "Ready")["status"] == "False"
    kubectl.delete("promptgroup", "uncached")
