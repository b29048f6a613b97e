"""README: behind a gateway replicas and pickers come and go as behind routers; no whole answer fails, none is cold."""

from collections.abc import Iterator

import pytest

from harness import gateway
from harness.clients import Plan, clients
from harness.cluster import Cluster
from harness.group import LOADS, MODEL, group, pods, prompt, revision, weights
from harness.images import Images
from harness.outcomes import unharmed
from promptgroup_local.inferencepools import inference_pools
from promptgroup_local.kubectl import Kubectl, wait_for

NAME = "fronted"
PICKER = "app.kubernetes.io/name=promptgroup-picker"


@pytest.fixture(scope="module")
def fronted(cluster: Cluster, kubectl: Kubectl, images: Images) -> Iterator[str]:
    """A group of two replicas with an InferencePool, two pickers, and an Envoy before them."""
    own = gateway.images_of_gateways(cluster)
    with inference_pools(kubectl):
        spec = {"gateway": {"failureMode": "FailOpen"}, "rollout": {"retireAfter": "10s"}}
        kubectl.apply(group(NAME, images, prompt("a"), replicas=2, env=LOADS, **spec))
        gateway.install_pickers(kubectl, own)
        kubectl.wait_warm(NAME, "2/2")
        wait_for(lambda: kubectl.get("inferencepool", NAME), "the InferencePool")
        gateway.install_gateway(kubectl, own, NAME)
        yield NAME


def test_replicas_come_and_go_behind_a_gateway(
    cluster: Cluster, kubectl: Kubectl, images: Images, fronted: str
) -> None:
    plan = Plan((gateway.url(kubectl),), fronted, last=3)  # short sessions: new ones come to a new slot
    with clients(cluster, images, kubectl, fronted, plan) as running:
        with running.watched(settle=24) as scaled:
            kubectl.patch("promptgroup", fronted, {"spec": {"replicas": 3}})
            kubectl.wait_warm(fronted, "3/3")
        with running.watched(settle=24) as lost:
            cluster.kill_container(pods(kubectl, fronted)[0], "engine")
        with running.watched(settle=24) as released:
            old = revision(kubectl, fronted)
            kubectl.patch("promptgroup", fronted, {"spec": {"prompt": {"system": prompt("b")}, "replicas": 2}})
            wait_for(
                lambda: True if weights(kubectl, fronted).get(old, 0) == 0 else None,
                "the new revision to take over",
                lambda: str(weights(kubectl, fronted)),
                seconds=120,
            )
    assert unharmed(scaled)
    assert {slot.rpartition("/")[2] for slot in (*scaled.served, *lost.served)} == {"0", "1", "2"}
    assert (lost.failed, lost.cold) == ([], [])  # streams of the engine that died are cut
    assert unharmed(released)


def test_pickers_are_replaced_under_load(cluster: Cluster, kubectl: Kubectl, images: Images, fronted: str) -> None:
    before = {each["metadata"]["name"] for each in kubectl.list("pods", PICKER)}
    plan = Plan((gateway.url(kubectl),), fronted, seed=3)
    with clients(cluster, images, kubectl, fronted, plan) as running, running.watched(settle=24) as seen:
        kubectl.run("rollout", "restart", "deployment/promptgroup-picker")
        kubectl.rolled_out("promptgroup-picker", 120)
        wait_for(  # they drain for some seconds: what those lose would show then
            lambda: (
                True if before.isdisjoint(each["metadata"]["name"] for each in kubectl.list("pods", PICKER)) else None
            ),
            "the earlier pickers to end",
            seconds=60,
        )
    assert unharmed(seen)
    assert "" not in seen.served


def test_without_any_picker_a_gateway_that_holds_bodies_goes_on(
    cluster: Cluster, kubectl: Kubectl, images: Images, fronted: str
) -> None:
    made = kubectl.get("promptgroup", fronted) or {}
    # a gateway that fails open takes any member: those of the earlier revision must have left
    current = revision(kubectl, fronted)
    wait_for(
        lambda: True if len(pods(kubectl, fronted)) == len(pods(kubectl, fronted, current)) == 2 else None,
        "the earlier revision to leave",
        lambda: str([each["metadata"]["name"] for each in pods(kubectl, fronted)]),
        seconds=120,
    )
    plan = Plan((gateway.url(kubectl, gateway.HELD),), MODEL, made["spec"]["prompt"]["system"], seed=2)
    with clients(cluster, images, kubectl, fronted, plan) as running:
        with running.watched(settle=48) as seen:
            kubectl.run("delete", "pods", "-l", PICKER, "--grace-period=0", "--force")
        kubectl.rolled_out("promptgroup-picker")
        # Envoy looks for pickers each second: what every session has just been answered was picked again
        wait_for(
            lambda: True if all(each.served for each in running.outcomes()[-2 * plan.at_once :]) else None,
            "the gateway to ask pickers again",
            lambda: str([each.served for each in running.outcomes()[-2 * plan.at_once :]]),
            seconds=60,
        )
        with running.watched(settle=48) as later:
            pass
    assert (seen.failed, seen.cold) == ([], [])
    assert "" in seen.served  # nobody named the replica
    assert unharmed(later)
    assert "" not in later.served
