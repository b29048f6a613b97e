import pytest

from promptgroup_cli.forecast.catalogue import model
from promptgroup_cli.forecast.kv import (
    BYTES,
    WorkingSetForecast,
    capacity,
    compare,
    context_share,
    token_bytes,
)
from promptgroup_cli.forecast.model_config import ConfigError, ModelConfig

GIB = 2**30
LLAMA_8B = ModelConfig(32, 8, 256)

BY_HAND = {
    "meta-llama/Llama-3.1-8B": 32 * 8 * 2 * 128 * 2,  # 131,072
    "meta-llama/Llama-3.1-70B": 80 * 8 * 2 * 128 * 2,  # 327,680
    "Qwen/Qwen2.5-7B-Instruct": 28 * 4 * 2 * 128 * 2,  # 57,344
    "mistralai/Mistral-7B-Instruct-v0.3": 32 * 8 * 2 * 128 * 2,  # 131,072
    "deepseek-ai/DeepSeek-V3": 61 * (512 + 64) * 2,  # 70,272
    "google/gemma-2-9b-it": 42 * 8 * 2 * 256 * 2,  # 344,064
}


@pytest.mark.parametrize("name", BY_HAND)
def test_bytes_of_a_token(name):
    assert token_bytes(model(name).shape, BYTES["auto"]) == BY_HAND[name]


def test_ten_thousand_tokens_of_an_8b_model_are_1_31_gb():
    assert token_bytes(LLAMA_8B, BYTES["bf16"]) * 10_000 / 1e9 == pytest.approx(1.31, abs=0.005)


def test_fp8_halves_them():
    assert token_bytes(LLAMA_8B, BYTES["fp8"]) == token_bytes(LLAMA_8B, BYTES["bf16"]) / 2


@pytest.mark.parametrize(
    ("heads", "gpus", "kept"),
    [(8, 2, 8), (8, 8, 8), (8, 16, 16), (1, 4, 4)],
    ids=["split", "one each", "each head twice", "a copy each"],
)
def test_gpus_split_heads_or_keep_copies(heads, gpus, kept):
    assert token_bytes(ModelConfig(32, heads, 256), 2, gpus) == kept * 32 * 256 * 2


@pytest.mark.parametrize(("heads", "gpus"), [(8, 3), (4, 6)])
def test_heads_that_cannot_be_split_evenly_are_refused(heads, gpus):
    with pytest.raises(ConfigError, match=f"{heads} KV heads cannot be split evenly between {gpus} GPUs"):
        token_bytes(ModelConfig(32, heads, 256), 2, gpus)


# Start-up logs: vllm-project/vllm issues 33263 (one GPU) and 21348 (four, one KV head each)
@pytest.mark.parametrize(
    ("name", "gpus", "memory", "tokens"),
    [("Qwen/Qwen3-1.7B", 1, 18.78 * GIB, 175_856), ("Qwen/Qwen3-235B-A22B", 4, 4 * 8.11 * GIB, 178_880)],
)
def test_engines_make_as_many_tokens_of_their_memory(name, gpus, memory, tokens):
    assert memory / token_bytes(model(name).shape, 2, gpus) == pytest.approx(tokens, rel=0.015)


def test_a_window_bounds_what_long_contexts_keep():
    gemma = ModelConfig(21, 8, 512, 21, 4096)
    assert context_share(gemma, 4096) == 1
    assert context_share(gemma, 8192) == 0.75
    assert context_share(LLAMA_8B, 100_000) == 1


def test_capacity_is_what_weights_and_activations_leave():
    assert capacity(80e9, 16e9, 131_072, utilization=0.9) == int((72e9 - 1.5e9 - 16e9) / 131_072)
    assert capacity(80e9, 141e9, 327_680, gpus=4) == int((4 * (73.6e9 - 1.5e9) - 141e9) / 327_680)
    assert capacity(80e9, 141e9, 327_680) == 0


def test_a_report_near_the_computation_agrees():
    assert compare(400_000, 430_000, 131_072, 80e9).agrees
    assert compare(400_000, 370_000, 131_072, 80e9).agrees


@pytest.mark.parametrize(("reported", "why"), [(800_000, "fp8"), (200_000, "--gpu-memory-utilization")])
def test_a_report_far_from_it_says_by_how_much_and_why_that_may_be(reported, why):
    found = compare(400_000, reported, 131_072, 80e9)
    assert not found.agrees
    assert f"{reported:,} tokens" in found.message
    assert why in found.message


def test_a_working_set_holds_the_prefix_once_in_each_replica():
    found = WorkingSetForecast(prefix=1000, sessions=6000)
    assert found.room(3000, 4) == 8000
    assert found.use(3000, 4) == pytest.approx((4 * 1000 + 6000) / 12_000)
    assert found.room(500, 4) == 0
