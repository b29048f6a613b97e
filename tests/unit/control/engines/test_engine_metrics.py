import pytest

from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines import engine_metrics
from promptgroup_operator.engines.dialects.sglang import METRICS as SGLANG
from promptgroup_operator.engines.dialects.tensorrt_llm import METRICS as TENSORRT_LLM
from promptgroup_operator.engines.dialects.vllm import METRICS as VLLM
from promptgroup_operator.world.samples import Histogram
from promptgroup_operator.world.snapshot import Reading

METRICS = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="llama"} 1024.0
vllm:prefix_cache_hits_total{engine="0",model_name="llama"} 1.0e+03
vllm:generation_tokens_total{engine="0",model_name="llama"} 70.0
vllm:kv_cache_usage_perc{engine="0",model_name="llama"} 0.25
vllm:num_requests_running{engine="0",model_name="llama"} 2.0
vllm:num_requests_waiting{engine="0",model_name="llama"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 3.0
vllm:cache_config_info{block_size="16",cache_hit_alignment_tokens="32",enable_prefix_caching="True",x="a,b}"} 1.0
"""


def test_a_page_of_metrics():
    assert engine_metrics.reading(METRICS, VLLM) == Reading(
        queries=1024,
        hits=1000,
        generated=70,
        running=2,
        waiting=3,
        usage=0.25,
        step=32,
        caching=True,
        kv_tokens=0,
        ranks=1,
    )


def test_what_a_pool_brought_is_found_too():
    page = METRICS.replace('hits_total{engine="0",model_name="llama"} 1.0e+03', 'hits_total{engine="0"} 200')
    pool = 'vllm:external_prefix_cache_hits_total{engine="0"} 512\n'
    found = engine_metrics.reading(f'{page}vllm:external_prefix_cache_queries_total{{engine="0"}} 824\n{pool}', VLLM)
    assert (found.queries, found.hits, found.tiered) == (1024, 712, 512)


def test_vllm_says_by_source_what_tiers_brought():
    name = "vllm:prompt_tokens_cached_by_source_total"
    sources = {"device": 100, "host": 40, "p2p": 3, "disk": 7, "external_unspecified": 5, "of tomorrow": 1}
    page = "".join(f'{name}{{engine="0",source="{source}"}} {tokens}\n' for source, tokens in sources.items())
    found = engine_metrics.reading(METRICS + page, VLLM)
    assert found.sources == {"memory": 40, "peer": 3, "volume": 7, "pool": 6}


def test_how_full_the_main_memory_for_kv_is():
    used = "sglang:hicache_host_used_tokens 300\nsglang:hicache_host_total_tokens 1200\n"
    assert engine_metrics.reading(f"sglang:prompt_tokens_total 1\n{used}", SGLANG).memory_usage == 0.25
    assert engine_metrics.reading(f"{METRICS}vllm:kv_offload_cpu_cache_usage_perc 0.5\n", VLLM).memory_usage == 0.5
    assert engine_metrics.reading(METRICS, VLLM).memory_usage is None


def test_sglang_says_by_source_what_it_found():
    sources = "".join(
        f'sglang:cached_tokens_total{{cache_source="{source}",is_streaming="{streamed}"}} {tokens}\n'
        for source, tokens in (("device", 100), ("host", 40), ("storage_file", 7))
        for streamed in ("true", "false")
    )
    found = engine_metrics.reading(f"sglang:prompt_tokens_total 500\n{sources}", SGLANG)
    assert (found.queries, found.hits, found.tiered) == (500, 294, 94)
    assert found.sources == {"memory": 80, "volume": 14}
    # of a request without particulars SGLang says only how much there was
    whole = 'sglang:prompt_tokens_total 500\nsglang:cached_tokens_total{cache_source="total"} 60\n'
    read = engine_metrics.reading(whole, SGLANG)
    assert (read.hits, read.tiered, read.sources) == (60, 0, {})
    older = engine_metrics.reading("sglang:prompt_tokens_total 500\nsglang:cached_tokens_total 60\n", SGLANG)
    assert (older.hits, older.tiered) == (60, 0)


def test_counters_of_data_parallel_engines_are_summed():
    second = 'vllm:prefix_cache_queries_total{engine="1"} 6\nvllm:num_requests_running{engine="1"} 1\n'
    found = engine_metrics.reading(f'{METRICS}{second}vllm:kv_cache_usage_perc{{engine="1"}} 0.1\n', VLLM)
    assert (found.queries, found.busy) == (1030, 6)
    assert found.usage == 0.25  # a prefix is evicted first where least is free


def test_samples_may_have_a_time_and_no_labels():
    assert engine_metrics.reading("vllm:prefix_cache_queries_total 7 1700000000000\n", VLLM).queries == 7


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
    assert engine_metrics.reading(page, VLLM).step == expected


@pytest.mark.parametrize(
    ("said", "expected"), [("True", True), ("true", True), ("False", False), ("None", None), ("", None)]
)
def test_whether_prefix_caching_is_on(said, expected):
    page = f'vllm:prefix_cache_queries_total 0\nvllm:cache_config_info{{enable_prefix_caching="{said}"}} 1\n'
    assert engine_metrics.reading(page, VLLM).caching is expected


@pytest.mark.parametrize("page", ["", "up 1\n", "<html>not found</html>", METRICS.replace("vllm:", "sglang:")])
def test_a_page_without_the_engines_counters_is_an_error(page):
    with pytest.raises(EngineError, match=r"no vllm:prefix_cache_queries_total"):
        engine_metrics.reading(page, VLLM)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "abc"])
def test_a_gauge_that_is_no_number_is_an_error_and_not_a_crash(value):
    with pytest.raises(EngineError, match=r"vllm:num_requests_running is not a number"):
        engine_metrics.reading(f"{METRICS}vllm:num_requests_running {value}\n", VLLM)


@pytest.mark.parametrize("line", ["{} 1", "vllm:num_requests_running"])
def test_a_line_that_is_no_sample_is_passed_over(line):
    assert engine_metrics.reading(f"{METRICS}{line}\n", VLLM) == engine_metrics.reading(METRICS, VLLM)


CACHE_SIZE = {
    "in tokens": ({"kv_cache_size_tokens": "400000", "num_gpu_blocks": "25001", "block_size": "16"}, 400_000),
    "in blocks": ({"num_gpu_blocks": "25000", "block_size": "16"}, 400_000),
    "in blocks where tokens are not known": (
        {"kv_cache_size_tokens": "None", "num_gpu_blocks": "25000", "block_size": "16"},
        400_000,
    ),
    "not known before the first profile": ({"num_gpu_blocks": "None", "block_size": "16"}, 0),
    "blocks of no size": ({"num_gpu_blocks": "25000"}, 0),
    "a number that is none": ({"kv_cache_size_tokens": "-1"}, 0),
    "a number without end": ({"kv_cache_size_tokens": "9" * 5000}, 0),
    "another script's digits": ({"kv_cache_size_tokens": "\u0664"}, 0),
}


@pytest.mark.parametrize("case", CACHE_SIZE)
def test_the_size_of_the_cache(case):
    labels, expected = CACHE_SIZE[case]
    line = ",".join(f'{key}="{value}"' for key, value in labels.items())
    page = f"vllm:prefix_cache_queries_total 0\nvllm:cache_config_info{{{line}}} 1\n"
    assert engine_metrics.reading(page, VLLM).kv_tokens == expected


def test_the_caches_of_data_parallel_engines_are_summed():
    info = 'vllm:cache_config_info{{engine="{}",kv_cache_size_tokens="1000"}} 1\n'
    page = "vllm:prefix_cache_queries_total 0\n" + info.format(0) + info.format(1)
    assert engine_metrics.reading(page, VLLM).kv_tokens == 2000


def test_what_sizing_asks_of_vllm():
    page = (
        METRICS
        + """\
vllm:request_success_total{engine="0",finished_reason="stop"} 4.0
vllm:request_success_total{engine="0",finished_reason="length"} 3.0
vllm:request_prefill_kv_computed_tokens_bucket{le="+Inf"} 7.0
vllm:request_prefill_kv_computed_tokens_sum{engine="0"} 24.0
vllm:request_prefill_time_seconds_sum{engine="0"} 0.5
vllm:request_decode_time_seconds_sum{engine="0"} 1.5
vllm:request_queue_time_seconds_sum{engine="0"} 0.25
vllm:num_preemptions_total{engine="0"} 2.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0"} 6.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 7.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0"} 3.0
"""
    )
    found = engine_metrics.reading(page, VLLM)
    assert (found.requests, found.computed, found.prefill_seconds) == (7, 24, 0.5)
    assert (found.decode_seconds, found.queue_seconds, found.preemptions) == (1.5, 0.25, 2)
    assert found.first_token == Histogram((0.1, 1.0), (3, 3, 3))


def test_what_an_engine_does_not_tell_is_unknown_and_not_zero():
    found = engine_metrics.reading(METRICS, VLLM)
    assert (found.computed, found.prefill_seconds, found.decode_seconds) == (None, None, None)
    assert (found.queue_seconds, found.preemptions, found.first_token) == (None, None, Histogram())


def test_an_old_vllm_speaks_in_other_names():
    old = METRICS.replace(":prefix_cache", ":gpu_prefix_cache").replace("kv_cache_usage", "gpu_cache_usage")
    assert engine_metrics.reading(old, VLLM) == engine_metrics.reading(METRICS, VLLM)


def test_an_engine_that_has_both_names_counts_once():
    old = METRICS.replace(":prefix_cache", ":gpu_prefix_cache").replace("kv_cache_usage", "gpu_cache_usage")
    assert engine_metrics.reading(METRICS + old.replace("1024", "1023"), VLLM).queries == 1024


SGLANG_PAGE = """\
sglang:prompt_tokens_total{model_name="llama"} 1000.0
sglang:cached_tokens_total{cache_source="device",model_name="llama"} 500.0
sglang:cached_tokens_total{cache_source="host",model_name="llama"} 100.0
sglang:generation_tokens_total{model_name="llama"} 70.0
sglang:num_requests_total{model_name="llama"} 7.0
sglang:num_running_reqs{model_name="llama"} 2.0
sglang:num_queue_reqs{model_name="llama"} 1.0
sglang:num_retracted_requests_total{model_name="llama"} 3.0
sglang:token_usage{model_name="llama"} 0.28
sglang:max_total_num_tokens{model_name="llama"} 200000.0
sglang:cache_config_info{page_size="64",num_pages="None"} 1.0
sglang:time_to_first_token_seconds_bucket{le="0.1",model_name="llama"} 6.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="llama"} 7.0
sglang:cache_hit_rate{model_name="llama"} 0.0
"""


def test_sglang_tells_hits_by_where_they_were():
    assert engine_metrics.reading(SGLANG_PAGE, SGLANG) == Reading(
        queries=1000,
        hits=600,
        tiered=100,
        sources={"memory": 100},
        generated=70,
        requests=7,
        running=2,
        waiting=1,
        usage=0.28,
        preemptions=3,
        step=64,
        caching=None,
        kv_tokens=200_000,
        evicted=0.0,
        first_token=Histogram((0.1,), (6, 1)),
    )


TENSORRT_LLM_PAGE = """\
trtllm_prompt_tokens_total{engine_type="trtllm",model_name="llama"} 1000.0
trtllm_prompt_cached_tokens_total{engine_type="trtllm",model_name="llama"} 640.0
trtllm_request_success_total{engine_type="trtllm",finished_reason="stop",model_name="llama"} 7.0
trtllm_RUNNING{model_name="llama"} 2.0
trtllm_WAITING{model_name="llama"} 1.0
trtllm_kv_cache_utilization{model_name="llama"} 0.28
trtllm_kv_cache_max_blocks{model_name="llama"} 5000.0
trtllm_kv_cache_tokens_per_block{model_name="llama"} 32.0
trtllm_request_queue_time_seconds_sum{model_name="llama"} 0.5
trtllm_time_to_first_token_seconds_bucket{le="0.1",model_name="llama"} 6.0
trtllm_time_to_first_token_seconds_bucket{le="+Inf",model_name="llama"} 7.0
"""


@pytest.mark.parametrize(
    ("running", "waiting"),
    [("num_requests_running", "num_requests_waiting"), ("num_active_requests", "server_queue_length")],
)
def test_tensorrt_llm_tells_its_cache_in_blocks(running, waiting):
    page = TENSORRT_LLM_PAGE.replace("RUNNING", running).replace("WAITING", waiting)
    assert engine_metrics.reading(page, TENSORRT_LLM) == Reading(
        queries=1000,
        hits=640,
        generated=0,
        requests=7,
        running=2,
        waiting=1,
        usage=0.28,
        queue_seconds=0.5,
        step=32,
        caching=None,
        kv_tokens=160_000,
        first_token=Histogram((0.1,), (6, 1)),
    )


LATE = {
    "SGLang": (SGLANG, "sglang:page_size 64\nsglang:max_total_num_tokens 6400\n", (64, 6400)),
    "TensorRT-LLM": (
        TENSORRT_LLM,
        'trtllm_kv_cache_config_info{page_size="32",enable_block_reuse="True"} 1\n',
        (32, 0),
    ),
}


@pytest.mark.parametrize("engine", LATE)
def test_an_engine_that_counts_from_its_first_request_on_has_counted_nothing_before(engine):
    names, page, expected = LATE[engine]
    found = engine_metrics.reading(page, names)
    assert (found.queries, found.hits, found.requests) == (0, 0, 0)
    assert (found.step, found.kv_tokens) == expected
    with pytest.raises(EngineError, match="no "):
        engine_metrics.reading("up 1\n", names)


def test_a_vllm_with_gauges_alone_is_no_vllm_that_counted_nothing():
    with pytest.raises(EngineError, match="no vllm:prefix_cache_queries_total"):
        engine_metrics.reading("vllm:num_requests_running 0\n", VLLM)


def test_the_other_engines_say_whether_prefixes_are_reused_and_what_was_computed():
    page = 'trtllm_kv_cache_config_info{page_size="None",enable_block_reuse="False"} 1\n'
    assert engine_metrics.reading(page, TENSORRT_LLM).caching is False
    page = "sglang:prompt_tokens_total 100\nsglang:uncached_prompt_tokens_histogram_sum 40\n"
    assert engine_metrics.reading(page, SGLANG).computed == 40


@pytest.mark.parametrize(
    ("names", "page"),
    [
        (SGLANG, "sglang:prompt_tokens_total 10\nsglang:page_size 0.5\n"),
        (TENSORRT_LLM, f"{TENSORRT_LLM.queries[0]} 10\ntrtllm_kv_cache_tokens_per_block 0.5\n"),
    ],
    ids=["sglang", "trtllm"],
)
def test_no_engine_caches_in_steps_of_less_than_a_token(names, page):
    assert engine_metrics.reading(page, names).step == 1
