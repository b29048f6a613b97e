import pytest

from promptgroup_operator.metricnames import SGLANG, TENSORRT_LLM, VLLM

EVERY = {"vllm:": VLLM, "sglang:": SGLANG, "trtllm_": TENSORRT_LLM}


@pytest.mark.parametrize("prefix", EVERY)
def test_every_name_is_the_engines_and_counters_end_as_on_the_wire(prefix):
    names = EVERY[prefix]
    assert all(name.startswith(prefix) for name in (*names.spelled(), names.first_token))
    counters = (*names.queries, *names.hits, *names.generated, *names.requests, *names.preemptions)
    assert all(name.endswith("_total") for name in counters)
    sums = (*names.computed, *names.prefill_seconds, *names.decode_seconds, *names.queue_seconds)
    assert all(name.endswith("_sum") for name in sums)


@pytest.mark.parametrize("prefix", EVERY)
def test_what_every_load_needs_has_a_name_in_every_engine(prefix):
    names = EVERY[prefix]
    assert all((names.queries, names.hits, names.requests, names.running, names.waiting, names.usage))
