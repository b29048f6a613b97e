"""README: apply the manifests and a PromptGroup, wait until it is Ready, and its requests find their prompt cached."""

import time

import pytest
import yaml

from harness.clients import Plan, ask, service
from harness.cluster import Cluster
from harness.images import ROOT, Images
from harness.install import install, uninstall

pytestmark = pytest.mark.alone

SECONDS = 120
"""From the first apply to the first warm, routed answer, with the images on the nodes."""


def test_from_nothing_to_a_warm_answer_in_two_minutes(cluster: Cluster, images: Images) -> None:
    uninstall(cluster.kubectl(), images)
    team = cluster.kubectl("promptgroup")
    sample = yaml.safe_load((ROOT / "manifests/overlays/kind/support.yaml").read_text())
    sample["spec"]["engine"]["image"] = images.name("standin-engine")

    began = time.monotonic()
    install(cluster.kubectl(), images)
    team.apply(sample)
    team.run("wait", "promptgroup/support", "--for=condition=Ready", "--timeout=120s")
    team.rolled_out("promptgroup-router", 120)
    [answer] = ask(cluster, images, Plan((service("promptgroup"),), "support", sessions=1, at_once=1, last=1))
    took = time.monotonic() - began

    assert answer.error == ""
    assert answer.served.startswith("promptgroup/support/")
    prefix = next(each["tokens"] for each in (team.get("promptroute", "support") or {})["spec"]["revisions"])
    assert answer.cached >= prefix // 16 * 16 > 0
    assert took < SECONDS
    columns = team.run("get", "promptgroups").stdout.splitlines()
    assert columns[0].split() == ["NAME", "READY", "REVISION", "WARM", "REPLICAS", "HIT", "RATE", "AGE"]
    assert columns[1].split()[1] == "True"
    assert "fingerprint" in team.run("explain", "promptgroup.spec.prompt").stdout


def test_clients_that_bring_their_prompt_need_no_change(cluster: Cluster, images: Images) -> None:
    team = cluster.kubectl("promptgroup")
    spec = (team.get("promptgroup", "support") or {})["spec"]
    plan = Plan((service("promptgroup"),), spec["model"], spec["prompt"]["system"], sessions=4, at_once=2, last=6)
    outcomes = ask(cluster, images, plan)
    assert [each.error for each in outcomes] == [""] * 24
    assert {each.served.rpartition("/")[0].rpartition("/")[0] for each in outcomes} == {"promptgroup/support"}
    # the declared prompt is warm on both replicas: on a busy machine a short session may move to the one that is sooner
    slots = {(each.session, each.turn): each.served for each in outcomes}
    moved = sum(slots[session, turn] != slots[session, turn - 1] for session, turn in slots if turn)
    assert moved <= len(slots) / 2
    assert [each for each in outcomes if each.prompt and not each.cached] == []
