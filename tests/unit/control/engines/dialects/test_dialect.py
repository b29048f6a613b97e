import pytest

from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.engines.dialects.dialect import (
    arguments,
    is_parallel,
    max_sequences,
    requested_model,
    step_tokens,
)
from promptgroup_operator.engines.dialects.pod_parts import CONFIG_FILE
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.tensorrt_llm import TENSORRT_LLM
from promptgroup_operator.engines.dialects.vllm import VLLM


def test_every_engine_type_has_a_dialect():
    assert set(DIALECTS) == set(EngineType)


def test_a_request_names_an_adapter_as_its_engine_does():
    adapter = Adapter("tone", "example/v1")
    assert requested_model(VLLM, "llama", adapter) == adapter.served
    assert requested_model(SGLANG, "llama", adapter) == f"llama:{adapter.served}"
    assert {requested_model(each, "llama", None) for each in DIALECTS.values()} == {"llama"}


def test_the_operators_arguments_come_first_so_that_the_users_win():
    assert arguments(VLLM, "llama", 8000, ("--port=9000",)) == [
        "llama",
        "--port=8000",
        "--enable-prompt-tokens-details",
        "--shutdown-timeout=25",
        "--port=9000",
    ]


def test_images_without_a_server_of_their_own_are_told_the_program():
    assert arguments(SGLANG, "llama", 8000, ("--tp=2",)) == [
        "python3",
        "-m",
        "sglang.launch_server",
        "--model-path=llama",
        "--host=$(POD_IP)",
        "--port=8000",
        "--enable-cache-report",
        "--enable-metrics",
        "--tp=2",
    ]
    assert arguments(TENSORRT_LLM, "llama", 8000, ()) == [
        "trtllm-serve",
        "llama",
        "--host=$(POD_IP)",
        "--port=8000",
        "--extra_llm_api_options=/etc/promptgroup/engine.yaml",
    ]


def test_what_a_file_holds_is_asked_for_by_the_arguments_and_the_other_way_round():
    for each in DIALECTS.values():
        assert bool(each.config) == any(CONFIG_FILE in arg for arg in each.args)


def test_the_other_engines_name_the_tokens_of_a_step_in_words_of_their_own():
    assert step_tokens(SGLANG, ["--chunked-prefill-size", "4096"]) == 4096
    assert step_tokens(SGLANG, ["--chunked-prefill-size=-1"]) == 0
    assert step_tokens(TENSORRT_LLM, ["--max_num_tokens", "16384"]) == 16384


def test_each_engine_has_a_flag_for_the_requests_that_run_at_once():
    assert max_sequences(VLLM, ["--max-num-seqs=1k", "--max_num_seqs", "128", "--max-num-batched-tokens=8192"]) == 128
    assert max_sequences(VLLM, ["--max-num-batched-tokens=8192"]) == 0
    assert max_sequences(SGLANG, ["--max-running-requests", "48"]) == 48
    assert max_sequences(TENSORRT_LLM, ["--max_batch_size", "64"]) == 64


def test_braces_in_names_and_arguments_are_left_alone():
    assert arguments(VLLM, "{port}", 1, ('--config={"a": 1}',))[::4] == ["{port}", '--config={"a": 1}']


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


PARALLEL = {
    "vLLM": (VLLM, ["--tensor-parallel-size=2"]),
    "vLLM, in two words": (VLLM, ["--pipeline-parallel-size", "4"]),
    "vLLM, abbreviated": (VLLM, ["-tp", "8"]),
    "vLLM, replicas of the weights": (VLLM, ["--data_parallel_size=2"]),
    "SGLang": (SGLANG, ["--tp=2"]),
    "SGLang, in full": (SGLANG, ["--tp-size", "2"]),
    "SGLang, replicas of the weights": (SGLANG, ["--dp-size=2"]),
    "TensorRT-LLM": (TENSORRT_LLM, ["--tp_size=2"]),
    "the last one wins": (SGLANG, ["--tp=1", "--tp=2"]),
}
ALONE = {
    "nothing": [],
    "one": ["--tensor-parallel-size=1", "--tp", "1"],
    "the last one wins": ["--tp=2", "--tp=1"],
    "no number": ["--tp-size=auto"],
    "no value": ["--tp"],
    "another flag": ["--max-num-seqs=256"],
}


@pytest.mark.parametrize("case", PARALLEL)
def test_an_engine_of_several_processes(case):
    assert is_parallel(*PARALLEL[case])


@pytest.mark.parametrize("case", ALONE)
def test_an_engine_of_one_process(case):
    assert not is_parallel(SGLANG, ALONE[case])
