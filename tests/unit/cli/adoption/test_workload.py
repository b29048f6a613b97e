import pytest

from promptgroup_cli.adoption.decision import AdoptionError
from promptgroup_cli.adoption.workload import find, objects


def deployment(name="llama", *containers, **metadata):
    spec = {"template": {"spec": {"containers": list(containers or ({"name": "vllm"},))}}}
    return {"kind": "Deployment", "metadata": {"name": name, **metadata}, "spec": spec}


GPU = {"name": "model", "resources": {"limits": {"nvidia.com/gpu": 1}}}


def test_the_container_with_gpus_is_the_engines_and_then_the_one_with_a_usual_name():
    assert find([deployment("a", {"name": "proxy"}, GPU)]).container["name"] == "model"
    assert find([deployment("a", {"name": "proxy"}, {"name": "vllm"})]).container["name"] == "vllm"
    assert find([deployment("a", {"name": "proxy"})]).container["name"] == "proxy"


def test_of_several_deployments_the_named_one_or_the_only_one_with_gpus_is_meant():
    both = [deployment("router"), deployment("llama", GPU)]
    assert find(both).name == "llama"
    assert find(both, "router").name == "router"
    with pytest.raises(AdoptionError, match=r"2 Deployments \(a, b\): name the one"):
        find([deployment("a"), deployment("b")])


def test_lists_are_read_and_what_is_no_object_is_passed_over():
    listed = {"kind": "DeploymentList", "items": [deployment(), 3]}
    assert [each["kind"] for each in objects([None, "text", listed])] == ["Deployment"]


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([], "but nothing"),
        ([{"kind": "InferenceService", "metadata": {"name": "qwen"}}], "KServe makes a Deployment NAME-predictor"),
        ([{"kind": "LeaderWorkerSet", "metadata": {"name": "big"}}], "engines of several nodes"),
        ([{"kind": "Service"}], "but Service: name a Deployment"),
        ([deployment("No name")], "no object can have"),
        ([{"kind": "Deployment", "metadata": {"name": "a"}, "spec": 3}], "has no container"),
    ],
)
def test_what_is_no_deployment_of_an_engine_is_named(documents, said):
    with pytest.raises(AdoptionError, match=said):
        find(documents)
