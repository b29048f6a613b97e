"""Fifty guests on three replicas: all proven, nothing written at rest, a replica more, another operator."""

import itertools
import json
import logging
import time
from collections.abc import Iterator

import pytest
import urllib3

from promptgroup_cli.reach.explained import explain_question
from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.atrest import wait_unwritten
from support.groups import PROMPTS, group, guest
from support.operators import REPLICAS, set_operators
from support.routed import routed, routers_know

pytestmark = [pytest.mark.integration, pytest.mark.slow]

logger = logging.getLogger(__name__)

HOST, GUESTS = "pool", 50
SESSIONS = 10
"""Sessions of a guest whose homes are looked at."""
NAMES = [f"guest-{number:02}" for number in range(GUESTS)]
KINDS = "promptgroups,promptroutes,deployments,pods,configmaps,secrets,events"


def prompt(name: str) -> str:
    """A prompt of some two hundred tokens that differs from its first words on."""
    return f"You are {name}. " + PROMPTS["h"][:800]


@pytest.fixture(scope="module")
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    with routed(cluster, "many-guests") as kube:
        set_operators(cluster, REPLICAS)
        kube.apply(group(HOST, replicas=3))
        kube.wait_warm(HOST, "3/3")
        began = time.monotonic()
        kube.apply(*(guest(name, prompt(name)) for name in NAMES))
        everyone_has(kube, 3)
        logger.info("%d guests warm on 3 replicas after %.1f s", GUESTS, time.monotonic() - began)
        yield kube


def everyone_has(kube: Kubectl, replicas: int) -> None:
    """Wait until each guest is warm on so many replicas."""

    def cold() -> list[str]:
        found = {each["metadata"]["name"]: each.get("status", {}).get("warm") for each in kube.list("promptgroups")}
        return [name for name in NAMES if found.get(name) != f"{replicas}/{replicas}"]

    wait_for(lambda: True if not cold() else None, "guests to be warm", lambda: cold()[:5], seconds=180)


def proofs(kube: Kubectl) -> dict[tuple[str, str], str]:
    """Guest and container → the time of its proof."""
    return {
        (route["metadata"]["name"], proof["container"]): proof["since"]
        for route in kube.list("promptroutes")
        for revision in route["spec"].get("guest", {}).get("revisions", ())
        for proof in revision.get("warm", ())
    }


def versions(kube: Kubectl) -> dict[str, str]:
    """Object → its version, of all that the operator writes."""
    return {
        f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["resourceVersion"]
        for each in kube.list(KINDS)
        if (each["kind"], each["metadata"]["name"]) != ("PromptGroup", HOST)
    }


def test_each_guest_is_proven_on_each_replica_and_makes_no_pod(kube: Kubectl) -> None:
    assert len(proofs(kube)) == 3 * GUESTS
    assert len(lab.engine_pods(kube, HOST)) == len(kube.list("pods", "promptgroup.dev/group")) == 3


def test_passes_over_guests_at_rest_write_nothing(kube: Kubectl) -> None:
    wait_for(lambda: True if kube.condition(HOST, "CacheEffective").get("reason") else None, "engines to be read")
    numbers = itertools.count()

    def poke() -> None:
        for _ in range(3):  # each change of the host begins a pass of every guest
            kube.run("label", "promptgroup", HOST, f"poke={next(numbers)}", "--overwrite")
        kube.run("label", "promptgroup", NAMES[-1], f"poke={next(numbers)}", "--overwrite")

    own = {f"PromptGroup/{NAMES[-1]}": ""}
    wait_unwritten(lambda: versions(kube) | own, poke, "passes that write nothing")


def homes(kube: Kubectl) -> dict[tuple[str, int], str]:
    """Guest and session → the pod that its requests go to first."""
    routers_know(kube, *NAMES[::5])
    url = f"{lab.router_admin_url(kube)}/explain"
    found = {}
    for name in NAMES[::5]:
        listed = (kube.get("promptroute", name) or {})["spec"]["revisions"][0]["slots"]
        pods = {slot["slot"]: slot.get("pod", "") for slot in listed}
        for session in range(SESSIONS):
            body = {"model": name, "messages": [{"role": "user", "content": "Hi"}]}
            question = explain_question(json.dumps(body), {names.HEADER_SESSION: str(session)})
            told = json.loads(urllib3.request("POST", url, body=question, timeout=30).data)
            found[name, session] = pods[int(told["ring"][0]["replica"].rpartition("/")[2])]
    return found


def test_a_replica_more_is_warmed_for_every_guest_while_the_operator_restarts(
    kube: Kubectl, cluster: LocalCluster
) -> None:
    before, homes_before = proofs(kube), homes(kube)
    began = time.monotonic()
    kube.scale("promptgroup", HOST, 4)
    wait_for(lambda: True if len(proofs(kube)) > len(before) + 5 else None, "warm-ups on the new replica", seconds=120)
    set_operators(cluster, 0)
    set_operators(cluster, REPLICAS)
    everyone_has(kube, 4)
    logger.info("the fourth replica was warm for all after %.1f s, with a restart", time.monotonic() - began)
    after = proofs(kube)
    assert len(after) == 4 * GUESTS
    assert {key: after[key] for key in before} == before
    homes_after = homes(kube)
    moved = [key for key, pod in homes_before.items() if homes_after[key] != pod]
    logger.info("%d of %d sessions moved to the fourth replica", len(moved), len(homes_before))
    assert len({homes_after[key] for key in moved}) == 1, "sessions move to the new replica alone"
    assert len(moved) <= 0.35 * len(homes_before)  # a quarter, by chance some more


def test_a_lost_replica_is_warmed_again_and_no_other(kube: Kubectl) -> None:
    (victim, *_) = lab.engine_pods(kube, HOST)
    gone = victim["status"]["containerStatuses"][0]["containerID"]
    before = proofs(kube)
    began = time.monotonic()
    kube.delete("pod", victim["metadata"]["name"], wait=False)

    def left() -> bool | None:
        return True if all(container != gone for _, container in proofs(kube)) else None

    wait_for(left, "guests to leave the lost replica", seconds=120)
    everyone_has(kube, 4)
    logger.info("a lost replica was replaced for %d guests after %.1f s", GUESTS, time.monotonic() - began)
    after = proofs(kube)
    assert {key: since for key, since in after.items() if key in before} == {
        key: since for key, since in before.items() if key[1] != gone
    }


def test_a_release_of_one_of_them(kube: Kubectl) -> None:
    old = (kube.get("promptgroup", NAMES[0]) or {})["status"]["fingerprint"]
    began = time.monotonic()
    kube.apply(guest(NAMES[0], prompt("somebody else")))

    def taken_over() -> bool | None:
        listed = (kube.get("promptroute", NAMES[0]) or {})["spec"]["revisions"]
        return True if {each["fingerprint"]: each["weight"] for each in listed}.get(old) == 0 else None

    wait_for(taken_over, "the new prompt to take over")
    logger.info("a prompt was released %.1f s after its apply", time.monotonic() - began)
