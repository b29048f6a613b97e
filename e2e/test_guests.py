"""README: many prompts on few GPUs. Fifty guests on three replicas, a replica more, one lost, a prompt released."""

import pytest

from harness.clients import Plan, clients, service
from harness.cluster import Cluster
from harness.group import group, pods, prompt, weights
from harness.images import Images
from promptgroup_local.kubectl import Kubectl, wait_for

HOST, GUESTS = "pool", 50
NAMES = [f"guest-{number:02}" for number in range(GUESTS)]
RELEASED = NAMES[7]
ROOM = ("--num-gpu-blocks-override=16000",)
"""KV blocks for fifty prompts of some thousand tokens, and for their requests."""


@pytest.fixture(scope="module")
def host(kubectl: Kubectl, images: Images) -> str:
    manifest = group(HOST, images, "", replicas=3, args=ROOM)
    del manifest["spec"]["prompt"]
    kubectl.apply(manifest)
    kubectl.wait_warm(HOST, "3/3")
    kubectl.apply(*(guest(name, prompt(name)) for name in NAMES))
    all_have(kubectl, 3)
    return HOST


def guest(name: str, system: str) -> dict[str, object]:
    """A PromptGroup on the replicas of the host."""
    return {
        "apiVersion": "promptgroup.dev/v1alpha1",
        "kind": "PromptGroup",
        "metadata": {"name": name},
        "spec": {"engineFrom": {"promptGroup": HOST}, "prompt": {"system": system}},
    }


def all_have(kubectl: Kubectl, replicas: int) -> None:
    """Wait until each guest is warm on so many replicas."""

    def cold() -> dict[str, str]:
        warm = {
            item["metadata"]["name"]: item.get("status", {}).get("warm", "") for item in kubectl.list("promptgroups")
        }
        return {name: warm.get(name, "") for name in NAMES if warm.get(name) != f"{replicas}/{replicas}"}

    wait_for(
        lambda: True if not cold() else None, "guests to be warm", lambda: dict(list(cold().items())[:5]), seconds=240
    )


def proofs(kubectl: Kubectl) -> dict[tuple[str, str], str]:
    """Guest and container → the time of its proof."""
    return {
        (route["metadata"]["name"], proof["container"]): proof["since"]
        for route in kubectl.list("promptroutes")
        for revision in route["spec"].get("guest", {}).get("revisions", ())
        for proof in revision.get("warm", ())
    }


def test_fifty_prompts_are_proven_on_three_replicas_without_a_pod_of_their_own(kubectl: Kubectl, host: str) -> None:
    assert len(proofs(kubectl)) == 3 * GUESTS
    assert len(pods(kubectl, host)) == len(kubectl.list("pods", "promptgroup.dev/group")) == 3


def test_a_prompt_is_released_on_the_same_replicas_and_no_request_meets_a_cold_one(
    cluster: Cluster, kubectl: Kubectl, images: Images, host: str
) -> None:
    before = {pod["metadata"]["name"] for pod in pods(kubectl, host)}
    plan = Plan((service(kubectl.namespace),), RELEASED, at_once=6, last=3)
    with clients(cluster, images, kubectl, RELEASED, plan) as running, running.watched(settle=24) as seen:
        (old,) = weights(kubectl, RELEASED)
        kubectl.apply(guest(RELEASED, prompt("somebody else")))
        wait_for(lambda: True if weights(kubectl, RELEASED).get(old) == 0 else None, "the new prompt to take over")
    assert (seen.failed, seen.cut, seen.cold) == ([], [], [])
    assert {pod["metadata"]["name"] for pod in pods(kubectl, host)} == before


def test_a_replica_more_and_a_lost_one_are_warmed_for_all_and_no_other_is_again(
    cluster: Cluster, kubectl: Kubectl, images: Images, host: str
) -> None:
    before = proofs(kubectl)
    plan = Plan((service(kubectl.namespace),), NAMES[0], at_once=6, last=3)
    with clients(cluster, images, kubectl, NAMES[0], plan) as running, running.watched(settle=24) as seen:
        kubectl.scale("promptgroup", host, 4)
        all_have(kubectl, 4)
        grown = proofs(kubectl)
        assert {key: grown[key] for key in before} == before
        (victim, *_) = pods(kubectl, host)
        (container,) = (
            status["containerID"] for status in victim["status"]["containerStatuses"] if status["name"] == "engine"
        )
        kubectl.delete("pod", victim["metadata"]["name"], wait=False)
        wait_for(
            lambda: True if all(key[1] != container for key in proofs(kubectl)) else None,
            "guests to leave the lost replica",
            seconds=120,
        )
        all_have(kubectl, 4)
    assert (seen.failed, seen.cut, seen.cold) == ([], [], [])
    after = proofs(kubectl)
    assert {key: after.get(key) for key in grown if key[1] != container} == {
        key: since for key, since in grown.items() if key[1] != container
    }
