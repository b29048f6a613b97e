"""Whole passes."""

from copy import deepcopy

import pytest

from promptgroup_contract import names
from promptgroup_contract.table import Prompt, PromptRef
from promptgroup_operator.plan import desired, plan
from support.builders import FINGERPRINT, NOW, TEXT
from support.builders import group as group_object
from support.passrun import GROUP, KEY, NAME, FailingWriter, Writer, a_deployment, a_group, a_pod, a_warm_pod, passes


def test_a_pass_says_when_the_next_is_due_unless_the_group_is_gone(cluster, reconciler):
    cluster.tell()
    reconciler._writer.to = Writer()
    assert reconciler.run(KEY, NOW) == plan.decide(reconciler.observe(KEY, NOW), NOW).requeue_after
    del cluster.objects["PromptGroup", "support"]
    cluster.tell()
    assert reconciler.run(KEY, NOW) is None


def test_a_group_of_which_nothing_can_be_known_is_left_as_it_is_and_told(referring, reconciler, unreadable):
    reconciler._writer.to = writer = FailingWriter("nothing", 0, "")
    deployment = referring.objects["Deployment", NAME]
    deployment["metadata"]["labels"] = {}
    referring.put(deployment)
    referring.tell()
    unreadable(NAME, 403, "forbidden")
    assert passes(reconciler, 2)[-1] == plan.WAITING
    assert set(writer.written) == {"PromptGroup support"}, "whose pods serve, and must not lose their Deployment"
    assert "forbidden" in writer.told["Degraded"]["message"]


@pytest.fixture
def replaced(cluster):
    """Two warm replicas, a change of the engine whose replica does not start, and then another prompt."""
    changed = group_object(replicas=2, engine={"image": "vllm/vllm-openai:broken"})
    source = PromptRef("ConfigMap", NAME)
    template = desired.deployment(changed, FINGERPRINT, 2, source, records={})
    owner = {"kind": "ReplicaSet", "name": f"{NAME}-1", "controller": True}
    standing = deepcopy(a_deployment()["spec"]["template"])
    standing["metadata"]["labels"]["pod-template-hash"] = "1"
    cluster.put(
        {"kind": "ReplicaSet", "metadata": {"namespace": "chat", "name": f"{NAME}-1"}, "spec": {"template": standing}}
    )
    for number in range(2):
        pod_made = a_warm_pod(f"warm-{number}", number)
        pod_made["metadata"]["ownerReferences"] = [owner]
        cluster.put(pod_made)
    broken = a_pod("broken", running=False)
    broken["metadata"]["annotations"][names.ANNOTATION_SETTINGS] = desired.settings_of(template)
    del broken["metadata"]["annotations"][names.ANNOTATION_CREDENTIAL]
    for made in (broken, template, desired.prompt_object(GROUP, FINGERPRINT, Prompt(TEXT), "ConfigMap")):
        cluster.put(made)
    cluster.put(a_group(prompt={"system": "another prompt"}))
    cluster.tell()
    return cluster


def templates_applied(reconciler, writer):
    applied = {}

    def apply(manifest, seen):
        if manifest["kind"] == "Deployment":
            applied[manifest["metadata"]["name"]] = manifest["spec"]["template"]

    reconciler._writer.to, writer.apply = writer, apply
    passes(reconciler, 1)
    return applied


def test_a_change_of_the_engine_that_never_became_warm_leaves_when_another_prompt_comes(replaced, reconciler, wanted):
    template = templates_applied(reconciler, FailingWriter("nothing", 0, ""))[NAME]
    assert template == a_deployment()["spec"]["template"], "what the warm replicas run: Kubernetes removes the others"


@pytest.mark.parametrize("why", ["it is warm on one", "the prompt stays", "its template cannot be read"])
def test_a_change_of_the_engine_stays_where(replaced, reconciler, wanted, unreadable, why):
    if why == "it is warm on one":
        warm = replaced.objects["Pod", "warm-0"]
        warm["metadata"]["annotations"][names.ANNOTATION_SETTINGS] = replaced.objects["Pod", "broken"]["metadata"][
            "annotations"
        ][names.ANNOTATION_SETTINGS]
        replaced.put(warm)
    elif why == "the prompt stays":
        replaced.put(a_group(engine={"image": "vllm/vllm-openai:broken"}))
    else:
        unreadable(f"{NAME}-1", 403, "forbidden")
    replaced.tell()
    applied = templates_applied(reconciler, FailingWriter("nothing", 0, ""))
    standing = replaced.objects["Deployment", NAME]["spec"]["template"]
    assert applied.get(NAME, standing)["spec"]["containers"][0]["image"] == "vllm/vllm-openai:broken"
