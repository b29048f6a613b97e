"""Groups with one prompt: who keeps it, and how a rename hands it over."""

from typing import Any

import pytest

from promptgroup_local import lab
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS, group

pytestmark = pytest.mark.integration


def deployments(kube: Kubectl) -> dict[str, str]:
    """Group of each Deployment, by the Deployment's name."""
    found = kube.list("deployments", "promptgroup.dev/group")
    return {each["metadata"]["name"]: each["metadata"]["labels"]["promptgroup.dev/group"] for each in found}


@pytest.mark.usefixtures("operator")
def test_of_two_groups_with_one_prompt_in_one_apply_the_second_makes_nothing(kube: Kubectl) -> None:
    pairs = [(f"first-{letter}", f"second-{letter}", PROMPTS[letter]) for letter in "abc"]
    items: list[dict[str, Any]] = [group(name, prompt, replicas=1) for *names, prompt in pairs for name in names]
    kube.apply({"apiVersion": "v1", "kind": "List", "items": items})
    for first, second, _ in pairs:
        kube.wait_condition(second, "Accepted", "False", "Conflict")
        kube.wait_warm(first, "1/1")
    assert sorted(deployments(kube).values()) == [first for first, _, _ in pairs]
    for _, second, _ in pairs:
        assert kube.get("promptroute", second) is None
        assert lab.engine_pods(kube, second) == []


@pytest.mark.usefixtures("operator")
def test_a_renamed_group_is_warm_before_the_one_that_it_replaces_goes(kube: Kubectl) -> None:
    kube.apply(group("before", replicas=1))
    kube.wait_warm("before", "1/1")
    renamed = group("after", replicas=1)
    renamed["metadata"]["annotations"] = {"promptgroup.dev/replaces": "before"}
    kube.apply(renamed)
    kube.wait_condition("after", "Ready", "True")
    assert kube.condition("before", "Ready")["status"] == "True"
    kube.delete("promptgroup", "before")
    wait_for(lambda: True if set(deployments(kube).values()) == {"after"} else None, "the old group to go")
    assert kube.condition("after", "Ready")["status"] == "True"


@pytest.mark.usefixtures("operator")
def test_of_two_groups_edited_to_one_prompt_in_one_moment_the_younger_keeps_what_it_serves(kube: Kubectl) -> None:
    for name, letter in (("older", "f"), ("younger", "g")):
        kube.apply(group(name, PROMPTS[letter], replicas=1))
        kube.wait_warm(name, "1/1")
    before = set(deployments(kube))
    # both in one apply, so that neither pass sees what the other decided
    edited = [group(name, PROMPTS["h"], replicas=1) for name in ("older", "younger")]
    kube.apply({"apiVersion": "v1", "kind": "List", "items": edited})
    kube.wait_condition("younger", "Accepted", "False", "Conflict")
    kube.wait_condition("older", "Ready", "True")

    def kept() -> bool | None:
        pods = [pod["metadata"]["labels"]["promptgroup.dev/revision"] for pod in lab.engine_pods(kube, "younger")]
        return True if [f"younger-{each}" for each in pods] == [each for each in before if "younger" in each] else None

    wait_for(kept, "the younger group to keep the replica of its own prompt alone")
