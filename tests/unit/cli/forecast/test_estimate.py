import pytest

from promptgroup_cli.forecast.catalogue import model
from promptgroup_cli.forecast.estimate import EngineEstimate, replica
from promptgroup_cli.forecast.gpus import gpu

LLAMA_8B = EngineEstimate(model("meta-llama/Llama-3.1-8B"), gpu("H100-80GB"))


def test_a_replica_by_data_sheets():
    found = replica(LLAMA_8B)
    assert found.prefill_rate == pytest.approx(0.4 * 989e12 / (2 * 8.03e9))
    assert found.step == pytest.approx(0.007, abs=0.0005)
    assert found.context_rate == pytest.approx(0.7 * 3.35e12 / 131_072)
    assert found.kv_tokens == int((0.92 * 80e9 - 1.5e9 - 16.06e9) / 131_072)


def test_what_is_measured_goes_before_what_is_computed():
    found = replica(LLAMA_8B, kv_tokens=400_000, prefill_rate=10_000)
    assert (found.kv_tokens, found.prefill_rate) == (400_000, 10_000)


def test_experts_that_do_not_compute_a_token_are_read_all_the_same():
    dense, sparse = (EngineEstimate(model(name), gpu("H200")) for name in ("Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B"))
    assert sparse.prefill_rate > 9 * dense.prefill_rate
    assert replica(sparse).step == pytest.approx(replica(dense).step, rel=0.1)


def test_two_gpus_are_twice_as_fast():
    pair = EngineEstimate(LLAMA_8B.model, LLAMA_8B.gpu, gpus=2)
    assert pair.prefill_rate == 2 * LLAMA_8B.prefill_rate
    assert pair.token_bytes == LLAMA_8B.token_bytes
    assert pair.kv_tokens > 2 * LLAMA_8B.kv_tokens
