"""An engine loads the weights from a read-only volume, and serves them under the model's name."""

import pytest

from promptgroup_contract.table import PromptRef
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.engines.dialects.pod_parts import namespace
from promptgroup_operator.plan import desired
from promptgroup_operator.plan.validate import validate
from promptgroup_operator.world.snapshot import Problem
from support.builders import FINGERPRINT, group, spec, text, world

IMAGE = {"image": "registry.example.com/models/llama@sha256:" + "0" * 64}
CLAIM = {"claimName": "models"}


def engine_of(weights, **engine):
    return group(engine={"weights": weights, **engine})


def deployed_template(of):
    return desired.deployment(of, FINGERPRINT, 1, PromptRef("ConfigMap", "x"), records={})["spec"]["template"]


@pytest.mark.parametrize(
    ("weights", "source"),
    [
        (IMAGE, {"image": {"reference": IMAGE["image"]}}),
        (IMAGE | {"pullPolicy": "Never"}, {"image": {"reference": IMAGE["image"], "pullPolicy": "Never"}}),
        (CLAIM, {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}),
    ],
)
def test_the_volume_is_mounted_read_only(weights, source):
    template = deployed_template(engine_of(weights))
    assert {"name": "model-weights", **source} in template["spec"]["volumes"]
    (container,) = template["spec"]["containers"]
    assert {"name": "model-weights", "mountPath": "/weights", "readOnly": True} in container["volumeMounts"]


@pytest.mark.parametrize(
    ("kind", "first", "name"),
    [
        (EngineType.VLLM, "/weights/llama-8b", "--served-model-name=llama"),
        (EngineType.SGLANG, "--model-path=/weights/llama-8b", "--served-model-name=llama"),
        (EngineType.TENSORRT_LLM, "/weights/llama-8b", "--served_model_name=llama"),
    ],
)
def test_each_engine_is_told_the_path_and_the_name(kind, first, name):
    template = deployed_template(engine_of(CLAIM | {"path": "llama-8b"}, type=kind.value, image="engine:1"))
    args = template["spec"]["containers"][0]["args"]
    assert first in args
    assert name in args
    assert not {"llama", "--model-path=llama"} & set(args)


def test_weights_are_settings_of_the_engine_and_without_them_nothing_changes():
    digests = {
        desired.engine_settings(each)
        for each in (group(), engine_of(IMAGE), engine_of(CLAIM), engine_of(CLAIM | {"path": "a"}))
    }
    assert len(digests) == 4
    stores = {namespace(spec()), namespace(engine_of(IMAGE).spec), namespace(engine_of(CLAIM).spec)}
    assert len(stores) == 3
    assert namespace(engine_of(IMAGE).spec) == namespace(engine_of(IMAGE | {"pullPolicy": "Always"}).spec)


def test_a_template_that_mounts_at_the_same_path_is_refused():
    mounts = [{"name": "cache", "mountPath": "/weights"}]
    template = {"spec": {"containers": [{"name": "engine", "volumeMounts": mounts}]}}
    taken = engine_of(IMAGE, template=template)
    problem = validate(world(of=taken))
    assert isinstance(problem, Problem)
    assert problem.reason == "InvalidWeights"
    assert validate(world(of=engine_of(IMAGE))) == text()
