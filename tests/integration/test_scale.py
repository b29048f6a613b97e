"""Many groups on hollow engines: what a fleet costs at rest, and stores that an outage leaves behind."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from promptgroup_local import lab
from promptgroup_local.kubectl import wait_for
from promptgroup_operator.plan.plan import SETTLED
from support.fleet import Fleet, OperatorProcess, fleet, now, operator
from support.operators import stopped

pytestmark = [pytest.mark.integration, pytest.mark.slow]

GROUPS, REPLICAS = 5, 3
QUIET = timedelta(seconds=5)
"""Time without a write after which a fleet that is warm counts as at rest."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture(scope="module")
def running(made: Fleet) -> Iterator[OperatorProcess]:
    with operator(made.cluster) as running:
        yield running


@pytest.fixture(scope="module")
def warm(made: Fleet, running: OperatorProcess) -> Fleet:
    """The fleet, warm and routed."""
    made.observe("default")
    made.create("default", GROUPS, REPLICAS)
    wait_for(lambda: made.settled(GROUPS) or None, "the fleet to be warm")
    return made


def test_every_pod_of_a_fleet_is_warm_before_it_is_routed(warm: Fleet) -> None:
    def arrived() -> bool | None:
        """Return True once the watches have told of the last step of each pod."""
        return True if all(each.ready and each.warm and each.routed for each in list(warm.pods.values())) else None

    wait_for(arrived, "the watches to tell of all pods", lambda: list(warm.pods.items()))
    assert len(warm.pods) == GROUPS * REPLICAS


def test_at_rest_the_operator_asks_nothing_of_the_api_server_but_its_watches(warm: Fleet) -> None:
    wait_for(lambda: _idle(warm) or None, "every group to be seen idle")
    wait_for(lambda: True if not warm.calls(now() - QUIET, now()).writes else None, "the last write")
    since = now()
    time.sleep(SETTLED.total_seconds() + 15)  # the window: every group has a pass in it, and its engines are read
    assert set(warm.calls(since, now()).verbs) <= {"watch"}


def _idle(warm: Fleet) -> bool:
    kube = warm.cluster.kubectl()
    return all(kube.condition(f"fleet-{n}", "CacheEffective").get("reason") == "NoTraffic" for n in range(GROUPS))


def test_a_pod_that_went_while_the_operator_could_not_see_it_is_missed(warm: Fleet, running: OperatorProcess) -> None:
    kube = warm.cluster.kubectl()
    gone = lab.engine_pods(kube, "fleet-0")[0]["metadata"]["name"]
    with stopped(running.process):
        kube.run("delete", "pod", gone, "--force", "--grace-period=0")
        warm.cluster.plane.stop_apiserver()  # its memory of events goes with it: watches must begin with lists
        warm.cluster.plane.start_apiserver()

    def routed() -> bool | None:
        slots = (kube.get("promptroute", "fleet-0") or {})["spec"]["revisions"][0]["slots"]
        held = {slot.get("pod") for slot in slots if slot["state"] == "Ready"}
        there = {pod["metadata"]["name"] for pod in lab.engine_pods(kube, "fleet-0")}
        return True if held == there and len(held) == REPLICAS and gone not in held else None

    wait_for(routed, "the route to lead to the pods that are there", lambda: kube.get("promptroute", "fleet-0"))
