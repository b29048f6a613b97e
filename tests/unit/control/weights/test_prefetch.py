"""Nodes pull the weights before a replica starts there, by a DaemonSet that is as bounded as the group's own pods."""

from dataclasses import replace

import pytest

from promptgroup_operator.engines.dialects.pod_parts import namespace
from promptgroup_operator.plan import desired
from promptgroup_operator.plan.plan import decide
from promptgroup_operator.plan.validate import validate
from promptgroup_operator.weights import prefetch
from promptgroup_operator.world.snapshot import Problem
from support.builders import NOW, group, text, world

IMAGE = {"image": "registry.example.com/models/llama:1"}
AHEAD = IMAGE | {"prefetch": True}
NAME = "support-weights"
GPU = {"limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}}
NODES = {"spec": {"nodeSelector": {"example.com/gpu": "h100"}}}


def group_of(weights, **engine):
    return group(engine={"weights": weights, **engine})


def made(of):
    return [item for item in decide(world(of=of), NOW).objects if item["kind"] == "DaemonSet"]


def pod(of):
    [daemon_set] = made(of)
    return daemon_set["spec"]["template"]["spec"]


def standing(of, **status):
    """The DaemonSet as the API server has it."""
    manifest = desired.weights_daemon_set(of)
    metadata = manifest["metadata"] | {"uid": "d", "generation": 2}
    return {("DaemonSet", NAME): {**manifest, "metadata": metadata, "status": {"observedGeneration": 2, **status}}}


def test_a_group_without_it_has_no_daemon_set():
    assert made(group()) == made(group_of(IMAGE)) == []


def test_each_node_gets_the_image_of_the_weights_and_of_the_engine_and_runs_nothing():
    of = group_of(AHEAD, image="vllm/vllm-openai:v0.32.0")
    [daemon_set] = made(of)
    assert daemon_set["metadata"]["name"] == NAME
    assert daemon_set["metadata"]["ownerReferences"][0]["uid"] == of.uid
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    assert labels == daemon_set["spec"]["selector"]["matchLabels"]
    assert "promptgroup.dev/group" not in labels
    [container] = pod(of)["containers"]
    assert container["image"] == "vllm/vllm-openai:v0.32.0"
    assert container["command"] == ["sleep", "infinity"]
    assert pod(of)["volumes"] == [{"name": "model-weights", "image": {"reference": IMAGE["image"]}}]
    assert "nvidia.com/gpu" not in str(container["resources"])


def test_its_pods_are_as_restricted_as_replicas():
    spec = pod(group_of(AHEAD))
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not spec["automountServiceAccountToken"]


def test_nodes_are_those_of_replicas():
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    template = {
        "spec": {
            **NODES["spec"],
            "affinity": {"nodeAffinity": required, "podAntiAffinity": {"x": 1}},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "imagePullSecrets": [{"name": "registry"}],
            "containers": [{"name": "engine", "image": "registry.example.com/vllm:1", "imagePullPolicy": "Always"}],
        }
    }
    spec = pod(group_of(AHEAD, template=template, resources=GPU))
    assert spec["nodeSelector"] == NODES["spec"]["nodeSelector"]
    assert spec["affinity"] == {"nodeAffinity": required}
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["tolerations"] == [
        {"key": "spot", "operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]
    [container] = spec["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.example.com/vllm:1", "Always")


def test_a_template_that_names_no_nodes_with_gpus_is_refused():
    problem = validate(world(of=group_of(AHEAD, resources=GPU)))
    assert isinstance(problem, Problem)
    assert problem.reason == "InvalidWeights"
    assert "nvidia.com/gpu" in problem.message
    assert "nodeSelector" in problem.message
    claimed = group_of(AHEAD, template={"spec": {"resourceClaims": [{"name": "gpu"}]}})
    assert isinstance(validate(world(of=claimed)), Problem)
    for fine in (
        group_of(IMAGE, resources=GPU),
        group_of(AHEAD),
        group_of(AHEAD, resources=GPU, template=NODES),
        group_of(AHEAD, resources={"limits": {"requests.kubernetes.io/x": 1, "cpu": 2}}),
    ):
        assert validate(world(of=fine)) == text()


@pytest.mark.parametrize("odd", ["x", 3, [], ["x"], {"nodeAffinity": "x"}])
def test_a_malformed_template_fails_no_pass(odd):
    of = group_of(AHEAD, template={"spec": {"affinity": odd, "tolerations": odd, "nodeSelector": odd}})
    assert len(made(of)) == 1


def test_engines_and_their_caches_are_the_same_with_it():
    before, after = group_of(IMAGE), group_of(AHEAD)
    assert desired.engine_settings(before) == desired.engine_settings(after)
    assert namespace(before.spec) == namespace(after.spec)


def test_the_status_counts_the_nodes_that_have_both_images():
    of = group_of(AHEAD)
    counts = {"desiredNumberScheduled": 4, "updatedNumberScheduled": 3, "numberReady": 4}
    assert decide(world(of=of, live=standing(of, **counts)), NOW).status["prefetch"] == {"nodes": 4, "ready": 3}


def test_the_status_stays_while_the_controller_has_not_seen_a_change():
    of = replace(group_of(AHEAD), status={"prefetch": {"nodes": 2, "ready": 2}})
    late = standing(of, observedGeneration=1, desiredNumberScheduled=9)
    assert decide(world(of=of, live=late), NOW).status["prefetch"] == {"nodes": 2, "ready": 2}
    assert "prefetch" not in decide(world(of=group_of(AHEAD)), NOW).status
    without = replace(group_of(IMAGE), status={"prefetch": {"nodes": 2, "ready": 2}})
    assert "prefetch" not in decide(world(of=without), NOW).status


def test_it_is_deleted_once_it_is_not_wanted_and_only_if_it_is_the_groups():
    live = standing(group_of(AHEAD))
    [deletion] = decide(world(of=group_of(IMAGE), live=live), NOW).deletions
    assert (deletion.kind, deletion.name, deletion.uid) == ("DaemonSet", NAME, "d")
    theirs = {key: {**item, "metadata": {"name": NAME, "uid": "x"}} for key, item in live.items()}
    assert decide(world(of=group_of(IMAGE), live=theirs), NOW).deletions == ()


def test_one_of_somebody_else_is_not_taken_over():
    theirs = {("DaemonSet", NAME): {"metadata": {"name": NAME, "uid": "x"}}}
    problem = validate(world(of=group_of(AHEAD), live=theirs))
    assert isinstance(problem, Problem)
    assert problem.reason == "NameTaken"
    assert validate(world(of=group_of(IMAGE), live=theirs)) == text()


def test_while_the_spec_cannot_be_applied_it_stays():
    of = group_of(AHEAD, resources=GPU)
    plan = decide(world(of=of, live=standing(group_of(AHEAD))), NOW)
    assert plan.deletions == ()
    assert [item for item in plan.objects if item["kind"] == "DaemonSet"] == []


def test_names_of_it_are_of_the_group():
    assert prefetch.name("support") == NAME
