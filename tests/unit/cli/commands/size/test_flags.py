import argparse

import pytest

from promptgroup_cli.commands.size import flags
from promptgroup_operator.api.prompt_group import EngineType


def parsed(*words):
    parser = argparse.ArgumentParser()
    flags.add(parser)
    return parser.parse_args([*words, "--prompt-tokens", "3000"])


def test_values_are_in_the_units_of_the_code():
    found = parsed("--config", "x", "--parameters", "70.6B", "--active-parameters", "500M", "--ttft", "1.5s")
    assert (found.parameters, found.active_parameters, found.ttft) == (70.6e9, 500e6, 1.5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "m"), "--model also needs --gpu, --turn-tokens, --answer-tokens, --sessions, --rate"),
        (("--config", "c", "--gpu", "g"), "--config also needs --turn-tokens, --answer-tokens, --sessions, --rate"),
        (
            ("--from-prometheus", "http://p"),
            "--from-prometheus also needs --group, --revision, --kv-tokens, --prefill-rate",
        ),
    ],
)
def test_each_way_to_ask_needs_its_flags(words, message):
    with pytest.raises(ValueError, match=message):
        flags.check(parsed(*words))


OBSERVED = (
    "--from-prometheus",
    "http://p",
    "--group",
    "a/b",
    "--revision",
    "0123abcd",
    "--kv-tokens",
    "9",
    "--prefill-rate",
    "9",
)
MODEL = ("--model", "m", "--gpu", "g", "--turn-tokens", "1", "--answer-tokens", "1", "--sessions", "1", "--rate", "1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*OBSERVED, "--tier", "dram=1GiB", "--gpu-hour", "2"), "which --tier, --gpu-hour cannot change"),
        ((*OBSERVED, "--trace", "f", "--measured", "g"), "which --trace, --measured cannot change"),
        ((*OBSERVED, "--tp", "2"), "which --tp cannot change"),
        ((*MODEL, "--group", "a/b"), "--model makes no use of --group: remove that"),
        ((*MODEL, "--parameters", "8B"), "--model makes no use of --parameters"),
    ],
)
def test_flags_that_would_change_nothing_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        flags.check(parsed(*words))


@pytest.mark.parametrize("words", [OBSERVED, MODEL, (*MODEL, "--tier", "dram=1GiB", "--tp", "2", "--engine", "vLLM")])
def test_flags_that_are_used_are_taken(words):
    flags.check(parsed(*words))


def test_every_engine_can_be_named():
    assert set(flags.ENGINES) == set(EngineType)
    assert parsed("--model", "m").engine == EngineType.VLLM
