import argparse

import pytest

from promptgroup_cli.flags import size as flags
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


def test_every_engine_can_be_named():
    assert set(flags.ENGINES) == set(EngineType)
    assert parsed("--model", "m").engine == EngineType.VLLM
