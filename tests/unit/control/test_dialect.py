import pytest

from promptgroup_operator.api import EngineType
from promptgroup_operator.dialect import DIALECTS, VLLM, arguments, step_tokens


def test_every_engine_type_has_a_dialect():
    assert set(DIALECTS) == set(EngineType)


def test_the_operators_arguments_come_first_so_that_the_users_win():
    assert arguments(VLLM, "llama", 8000, ("--port=9000",)) == [
        "llama",
        "--port=8000",
        "--enable-prompt-tokens-details",
        "--port=9000",
    ]


def test_braces_in_names_and_arguments_are_left_alone():
    assert arguments(VLLM, "{port}", 1, ('--config={"a": 1}',))[::3] == ["{port}", '--config={"a": 1}']


STEPS = {
    "nothing said": (["--max-model-len=32768"], 0),
    "one word": (["--max-num-batched-tokens=8192"], 8192),
    "two words": (["--max-num-batched-tokens", "8192"], 8192),
    "underscores": (["--max_num_batched_tokens", "8192"], 8192),
    "the last one wins": (["--max-num-batched-tokens=1", "--max-num-batched-tokens=2"], 2),
    "thousands": (["--max-num-batched-tokens=8k"], 8000),
    "binary thousands": (["--max-num-batched-tokens=8K"], 8192),
    "a fraction of thousands": (["--max-num-batched-tokens=2.5k"], 2500),
    "millions": (["--max-num-batched-tokens=1M"], 2**20),
    "no value": (["--max-num-batched-tokens"], 0),
    "an empty value": (["--max-num-batched-tokens="], 0),
    "a value that is no number": (["--max-num-batched-tokens=auto"], 0),
    "a negative one": (["--max-num-batched-tokens=-1"], 0),
    "a number without end": (["--max-num-batched-tokens=" + "9" * 5000], 0),
    "the value of another flag": (["--served-model-name", "x", "--max-num-batched-tokens-x=5"], 0),
}


@pytest.mark.parametrize("case", STEPS)
def test_the_tokens_of_a_step(case):
    args, expected = STEPS[case]
    assert step_tokens(VLLM, args) == expected
