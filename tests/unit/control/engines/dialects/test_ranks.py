import pytest

from promptgroup_operator.engines.dialects.ranks import (
    rank_args,
    ranks_problem,
    unranked,
)
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.vllm import VLLM
from promptgroup_operator.plan import desired
from promptgroup_operator.plan.validate import validate
from promptgroup_operator.world.snapshot import Problem
from support.builders import group, spec, world


def test_the_field_becomes_an_argument_and_the_pod_says_so():
    made = group(engine={"dataParallelSize": 4})
    assert rank_args(VLLM, made.spec.engine) == ("--data-parallel-size=4",)
    assert rank_args(SGLANG, made.spec.engine) == ("--dp-size=4",)
    assert rank_args(VLLM, group(engine={"dataParallelSize": 1}).spec.engine) == ()
    assert desired.ranks_problem(made) is None


def template(*args):
    return {"spec": {"containers": [{"name": "engine", "args": list(args)}]}}


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ({"dataParallelSize": 2, "template": template("m", "--data-parallel-size=2")}, ""),
        (
            {"dataParallelSize": 2, "template": template("m", "--data-parallel-size=4")},
            "is 2, and spec.engine.template",
        ),
        ({"dataParallelSize": 2, "template": template("m")}, "is 2, and spec.engine.template replaces the arguments"),
        ({"dataParallelSize": 1, "template": template("m", "-dp", "2")}, "-dp in spec.engine.template both set"),
        ({"args": ["--data-parallel-size=1000"]}, "has 1000 data-parallel ranks, and a router serves 256"),
        ({"args": ["--data-parallel-size=256"]}, ""),
    ],
)
def test_ranks_that_cannot_be_known_are_refused(engine, text):
    found = desired.ranks_problem(group(engine=engine))
    assert (found.message if found is not None else "").find(text) >= 0
    assert (found is None) is (text == "")
    told = validate(world(of=group(engine=engine)))
    assert (isinstance(told, Problem) and told.reason == "InvalidRanks") is (text != "")


def test_both_ways_at_once_are_refused():
    engine = spec(engine={"args": ["--data-parallel-size=2"]}).engine.model_copy(update={"data_parallel_size": 2})
    assert "both set the ranks" in ranks_problem(engine, {"args": ["--data-parallel-size=2", "--data-parallel-size=2"]})


@pytest.mark.parametrize(
    ("image", "apis"),
    [
        ("vllm/vllm-openai:v0.32.0", {"responses"}),
        ("vllm/vllm-openai:v0.33.0", set()),
        ("registry.example/vllm/vllm-openai:v1.0", set()),
        ("vllm/vllm-openai:latest", {"responses"}),
        ("example/own:v0.40", {"responses"}),
        ("vllm/vllm-openai@sha256:0123", {"responses"}),
        ("vllm/vllm-openai:v0.33.0@sha256:0123", set()),
    ],
)
def test_an_api_whose_engine_does_not_heed_the_rank_is_told_by_the_release(image, apis):
    assert unranked(VLLM, image) == apis
    assert unranked(SGLANG, image) == set()
