"""The parts of the module that need no engine: what it sends, and how it reads an answer."""

import pytest

from promptgroup_operator.dialect import VLLM
from promptgroup_operator.engine import Reading, _bodies, _cached_tokens, parse_metrics
from promptgroup_operator.errors import EngineError
from promptgroup_router.contract.table import Prompt

METRICS = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="llama"} 1024.0
vllm:prefix_cache_hits_total{engine="0",model_name="llama"} 1.0e+03
vllm:num_requests_running{engine="0",model_name="llama"} 2.0
vllm:num_requests_waiting{engine="0",model_name="llama"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 3.0
vllm:cache_config_info{block_size="16",cache_hit_alignment_tokens="32",enable_prefix_caching="True",x="a,b}"} 1.0
"""


def test_a_page_of_metrics():
    assert parse_metrics(METRICS, VLLM) == Reading(queries=1024, hits=1000, busy=5, step=32, caching=True)


def test_counters_of_data_parallel_engines_are_summed():
    second = 'vllm:prefix_cache_queries_total{engine="1"} 6\nvllm:num_requests_running{engine="1"} 1\n'
    found = parse_metrics(METRICS + second, VLLM)
    assert (found.queries, found.busy) == (1030, 6)


def test_samples_may_have_a_time_and_no_labels():
    assert parse_metrics("vllm:prefix_cache_queries_total 7 1700000000000\n", VLLM).queries == 7


INFO = {
    "the alignment is the best": ({"cache_hit_alignment_tokens": "64", "block_size": "16"}, 64),
    "then the size of a hashed block": ({"hash_block_size": "32", "block_size": "16"}, 32),
    "then the block size": ({"block_size": "16"}, 16),
    "None is no number": ({"cache_hit_alignment_tokens": "None", "block_size": "16"}, 16),
    "zero is no granularity": ({"cache_hit_alignment_tokens": "0", "block_size": "16"}, 16),
    "nothing said is one token": ({}, 1),
}


@pytest.mark.parametrize("case", INFO)
def test_the_granularity_of_a_hit(case):
    labels, expected = INFO[case]
    line = ",".join(f'{key}="{value}"' for key, value in labels.items())
    page = f"vllm:prefix_cache_queries_total 0\nvllm:cache_config_info{{{line}}} 1\n"
    assert parse_metrics(page, VLLM).step == expected


@pytest.mark.parametrize(
    ("said", "expected"), [("True", True), ("true", True), ("False", False), ("None", None), ("", None)]
)
def test_whether_prefix_caching_is_on(said, expected):
    page = f'vllm:prefix_cache_queries_total 0\nvllm:cache_config_info{{enable_prefix_caching="{said}"}} 1\n'
    assert parse_metrics(page, VLLM).caching is expected


@pytest.mark.parametrize("page", ["", "up 1\n", "<html>not found</html>", METRICS.replace("vllm:", "sglang:")])
def test_a_page_without_the_engines_counters_is_an_error(page):
    with pytest.raises(EngineError, match=r"no vllm:prefix_cache_queries_total"):
        parse_metrics(page, VLLM)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "abc"])
def test_a_gauge_that_is_no_number_is_an_error_and_not_a_crash(value):
    with pytest.raises(EngineError, match=r"vllm:num_requests_running is no number"):
        parse_metrics(f"{METRICS}vllm:num_requests_running {value}\n", VLLM)


@pytest.mark.parametrize("line", ["{} 1", "vllm:num_requests_running"])
def test_a_line_that_is_no_sample_is_passed_over(line):
    assert parse_metrics(f"{METRICS}{line}\n", VLLM) == parse_metrics(METRICS, VLLM)


def test_the_two_requests_of_a_proof_share_the_prefix_and_nothing_after_it():
    warm_up, probe = _bodies("llama", Prompt("the system text", '[{"a":1}]'))
    assert warm_up["messages"][0] == probe["messages"][0] == {"role": "system", "content": "the system text"}
    assert warm_up["messages"][1]["content"] != probe["messages"][1]["content"]
    assert warm_up["tools"] == probe["tools"] == [{"a": 1}]
    assert warm_up["max_tokens"] == 1
    assert "tools" not in _bodies("llama", Prompt("x"))[0]


USAGE = [
    ({"prompt_tokens_details": {"cached_tokens": 7}}, 7),
    ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
    ({"prompt_tokens_details": None}, None),
    ({"prompt_tokens_details": {"cached_tokens": None}}, None),
    ({}, None),
]


@pytest.mark.parametrize(("usage", "expected"), USAGE)
def test_cached_tokens(usage, expected):
    assert _cached_tokens(usage) == expected
