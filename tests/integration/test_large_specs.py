"""Groups whose specs the operator's store does not keep whole: passes work with the spec that the API server has."""

import pytest

from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_operator.world.trimmed import SHORTENED, WHOLE_CHARACTERS, trimmed
from support.groups import PROMPTS, group

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MORE = " Be brief." * (WHOLE_CHARACTERS // 10)


def long(name: str, letter: str, variable: str, **spec: object) -> dict:
    """A group with a long prompt, and a template that is long by itself."""
    return group(name, PROMPTS[letter] + MORE, env={"VARIABLE": variable, "NOTES": "x" * WHOLE_CHARACTERS}, **spec)


def container(kube: Kubectl, name: str) -> dict:
    deployment = kube.get("deployment", f"{name}-{(kube.get('promptgroup', name) or {})['status']['revision']}") or {}
    return deployment["spec"]["template"]["spec"]["containers"][0]


def variable(kube: Kubectl, name: str) -> str:
    return next(each["value"] for each in container(kube, name)["env"] if each["name"] == "VARIABLE")


def test_a_group_with_a_long_prompt_and_a_long_template_lives_as_any_other(kube: Kubectl, operator: None) -> None:
    kube.apply(long("long", "a", "one", replicas=1))
    kube.wait_warm("long", "1/1")
    stored = kube.get("promptgroup", "long") or {}
    in_store = trimmed(stored, "PromptGroup")
    assert in_store[SHORTENED]
    assert len(str(in_store["spec"])) < WHOLE_CHARACTERS
    first = stored["status"]["revision"]
    assert variable(kube, "long") == "one"

    kube.patch("promptgroup", "long", {"spec": {"replicas": 2}})
    kube.wait_warm("long", "2/2")
    assert variable(kube, "long") == "one"  # a pass by a part of the spec would have taken it out

    kube.apply(long("long", "a", "two", replicas=2))
    wait_for(lambda: True if variable(kube, "long") == "two" else None, "the template to be written")
    kube.wait_warm("long", "2/2")
    kube.apply(long("long", "b", "two", replicas=2))

    def released() -> bool | None:
        return True if (kube.get("promptgroup", "long") or {})["status"]["revision"] != first else None

    wait_for(released, "the next prompt to serve", lambda: kube.run("get", "promptgroup", "long").stdout)
    kube.wait_warm("long", "2/2")
    kube.delete("promptgroup", "long")
    wait_for(lambda: True if not kube.list("deployments") else None, "its Deployments to go")
