"""README: releases that prove themselves. A good prompt takes over step by step, a bad one is taken back."""

from collections.abc import Iterator

import pytest

from harness.clients import Clients, Plan, clients, service
from harness.cluster import Cluster
from harness.group import group, pods, prompt, revision, weights
from harness.images import Images
from promptgroup_local.kubectl import Kubectl, wait_for

NAME = "released"
ROLLOUT = {
    # each step is long enough to be seen by who polls
    "steps": [{"weight": 30, "pause": "5s"}, {"weight": 60, "pause": "5s"}],
    "retireAfter": "10s",
    "judge": {"minRequests": 20, "maxTtftRisePercent": 100},
}
STEADY = {"STANDIN_STEP_MS": "50"}
"""An engine whose first token comes after time, not work: what a busy machine adds to it is less than it may rise."""
WORSE = {"STANDIN_STEP_MS": "400"}
SECONDS = 240.0
"""Longest release: each step needs its samples."""


@pytest.fixture(scope="module")
def load(cluster: Cluster, kubectl: Kubectl, images: Images) -> Iterator[Clients]:
    """Short sessions that name the group, without end."""
    kubectl.apply(group(NAME, images, prompt("a"), replicas=3, env=STEADY, rollout=ROLLOUT))
    kubectl.wait_warm(NAME, "3/3")
    plan = Plan((service(kubectl.namespace),), NAME, last=2, pause=0.2, tokens=8)
    with clients(cluster, images, kubectl, NAME, plan) as running:
        yield running


def test_a_good_prompt_goes_through_its_steps_and_takes_over(kubectl: Kubectl, images: Images, load: Clients) -> None:
    old = revision(kubectl, NAME)
    shares: set[int] = set()

    def promoted() -> bool | None:
        found = weights(kubectl, NAME)
        shares.update(weight for each, weight in found.items() if each != old)
        assert len(pods(kubectl, NAME)) <= 4
        return True if found.get(old, 0) == 0 else None

    with load.watched(settle=24) as seen:
        kubectl.apply(group(NAME, images, prompt("b"), replicas=3, env=STEADY, rollout=ROLLOUT))
        wait_for(promoted, "the new prompt to take over", lambda: kubectl.get("promptgroup", NAME), seconds=SECONDS)
        kubectl.wait_warm(NAME, "3/3", seconds=SECONDS)
    assert {30, 60, 100} <= shares
    assert (seen.failed, seen.cut, seen.cold) == ([], [], [])
    assert seen.changed_revision() == 0
    assert {slot.split("/")[2] for slot in seen.served} >= {old, revision(kubectl, NAME)}


def test_a_bad_release_is_rolled_back_and_says_why(kubectl: Kubectl, images: Images, load: Clients) -> None:
    old = revision(kubectl, NAME)
    with load.watched(settle=24) as seen:
        kubectl.apply(group(NAME, images, prompt("c"), replicas=3, env=WORSE, rollout=ROLLOUT))
        wait_for(
            lambda: True if kubectl.condition(NAME, "Degraded").get("reason") == "RolledBack" else None,
            "the release to be taken back",
            lambda: kubectl.get("promptgroup", NAME),
            seconds=SECONDS,
        )
        wait_for(lambda: True if weights(kubectl, NAME).get(old) == 100 else None, "the old one to have it all")
    assert "TimeToFirstToken" in kubectl.condition(NAME, "Degraded")["message"]
    assert (seen.failed, seen.cut, seen.cold) == ([], [], [])
    kubectl.wait_condition(NAME, "Ready", "True")
