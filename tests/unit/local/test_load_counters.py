import pytest

from promptgroup_local.load.counters import Counters, measure, parse

PAGE = """
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 50.0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 75.0
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 4.0
"""
COLD = """# TYPE standin_cold_prefix_requests counter
standin_cold_prefix_requests_total{source="client"} 2.0
standin_cold_prefix_requests_total{source="warmup"} 9.0
"""


def test_series_of_one_name_are_added_up_and_warm_up_is_left_out() -> None:
    assert parse(PAGE + COLD) == Counters(queries=150, hits=75, requests=7, cold=2)


SGLANG = """
# TYPE sglang:prompt_tokens counter
sglang:prompt_tokens_total{is_streaming="false",model_name="m"} 100.0
sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 50.0
# TYPE sglang:cached_tokens counter
sglang:cached_tokens_total{cache_source="device",model_name="m"} 60.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 20.0
# TYPE sglang:num_requests counter
sglang:num_requests_total{is_streaming="false",model_name="m"} 3.0
sglang:num_requests_total{is_streaming="true",model_name="m"} 4.0
"""


def test_sglangs_counters_are_those_of_all_requests_and_of_all_sources() -> None:
    assert parse(SGLANG) == Counters(queries=150, hits=80, requests=7, cold=None)


def test_a_real_engine_counts_no_cold_prefixes() -> None:
    assert parse(PAGE).cold is None
    assert measure({}, {"a": parse(PAGE)}).cold is None


def test_a_run_is_the_difference_of_two_scrapes() -> None:
    before = {"a": Counters(100, 10, 5, 1), "b": Counters(0, 0, 0, 0)}
    after = {"a": Counters(300, 110, 11, 1), "b": Counters(100, 80, 2, 3)}
    measured = measure(before, after)
    assert measured.hit_rate == pytest.approx(180 / 300)
    assert (measured.imbalance, measured.cold) == (6 * 2 / 8, 3)
    assert measured.requests == {"a": 6, "b": 2}


def test_an_engine_that_is_new_or_was_restarted_began_at_zero() -> None:
    after = Counters(30, 20, 2, 1)
    assert after.since(None) == after
    assert after.since(Counters(1000, 900, 40, 3)) == after


def test_without_requests_nothing_is_known() -> None:
    idle = {"a": Counters(5, 5, 1, 0)}
    measured = measure(idle, idle)
    assert (measured.hit_rate, measured.imbalance, measured.cold) == (None, None, 0)
    assert measure({}, {}).imbalance is None
