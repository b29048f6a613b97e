from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from promptgroup_local.engine.answer import Finish
from promptgroup_local.engine.flags import parse
from promptgroup_local.engine.metrics import sglang, tensorrt, vllm
from promptgroup_local.engine.metrics.page import Gauges, Metrics, Served, Source
from promptgroup_operator.engines import engine_metrics
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.tensorrt_llm import TENSORRT_LLM
from promptgroup_operator.engines.dialects.vllm import VLLM
from promptgroup_operator.world.snapshot import Reading

NAMES = """
vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total vllm:prompt_tokens_total vllm:prompt_tokens_cached_total
vllm:generation_tokens_total vllm:num_preemptions_total vllm:num_requests_running vllm:num_requests_waiting
vllm:kv_cache_usage_perc vllm:time_to_first_token_seconds_bucket vllm:inter_token_latency_seconds_bucket
vllm:e2e_request_latency_seconds_bucket vllm:request_queue_time_seconds_bucket
vllm:request_prefill_time_seconds_bucket vllm:request_decode_time_seconds_bucket
vllm:request_prefill_kv_computed_tokens_bucket vllm:request_success_total
vllm:external_prefix_cache_queries_total vllm:external_prefix_cache_hits_total
vllm:prompt_tokens_cached_by_source_total vllm:cache_config_info
standin_requests_total standin_cold_prefix_requests_total
"""


def test_every_series_is_there_from_the_start_under_its_name() -> None:
    flags = parse(["path/m", "--served-model-name", "m", "--block-size=32", "--num-gpu-blocks-override=10"])
    metrics = vllm.of(flags, Gauges(running=lambda: 2, waiting=lambda: 3, usage=lambda: 0.5))
    lines = [line for line in generate_latest(metrics.registry).decode().splitlines() if not line.startswith("#")]
    assert {line.partition("{")[0] for line in lines} >= set(NAMES.split())
    labels = 'engine="0",model_name="m"'
    for gauge, value in (("num_requests_running", 2), ("num_requests_waiting", 3), ("kv_cache_usage_perc", 0.5)):
        assert f"vllm:{gauge}{{{labels}}} {float(value)}" in lines
    for reason in Finish:
        assert f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="m"}} 0.0' in lines
    for source in Source:
        assert f'standin_cold_prefix_requests_total{{source="{source}"}} 0.0' in lines
    config = next(line for line in lines if line.startswith("vllm:cache_config_info"))
    assert config.endswith(" 1.0")
    for label in (
        'block_size="32"',
        'num_gpu_blocks="10"',
        'kv_cache_size_tokens="320"',
        'enable_prefix_caching="True"',
    ):
        assert label in config


REQUEST = Served(Finish.STOP, prompt=100, cached=64, generated=7, queue=0.5, prefill=1.0, decode=2.0)
OTHERS = {
    "SGLang": (
        sglang.of,
        ["python3", "-m", "sglang.launch_server", "--model-path=m", "--page-size=32", "--max-total-tokens=3200"],
        SGLANG.metrics,
    ),
    "TensorRT-LLM": (tensorrt.of, ["trtllm-serve", "m"], TENSORRT_LLM.metrics),
}


@pytest.mark.parametrize("engine", OTHERS)
def test_what_the_other_engines_count_is_read_as_it_was_counted(engine: str) -> None:
    kind, argv, names = OTHERS[engine]
    flags = parse(argv)
    metrics = kind(flags, Gauges(running=lambda: 2, waiting=lambda: 3, usage=lambda: 0.5))

    def page() -> str:
        return generate_latest(metrics.registry).decode()

    fresh = engine_metrics.reading(page(), names)
    assert (fresh.queries, fresh.requests, fresh.step) == (0, 0, 32)
    assert names.queries[0] not in page().replace(f"# HELP {names.queries[0]}", "").replace(
        f"# TYPE {names.queries[0]}", ""
    )
    metrics.admitted(100, 64)
    metrics.first_token(0.5, 1.0, 100, 64)
    metrics.served(REQUEST)
    metrics.rested()
    found = engine_metrics.reading(page(), names)
    assert (found.queries, found.hits, found.generated, found.requests) == (100, 64, 7, 1)
    assert (found.running, found.waiting, found.usage, found.queue_seconds) == (2, 3, 0.5, 0.5)
    assert found.first_token.total == 1
    assert found.kv_tokens == flags.blocks * flags.block_size
    assert found.computed == (36 if engine == "SGLang" else None)
    assert found.prefill_seconds == (1.0 if engine == "TensorRT-LLM" else None)


def sglangs(running: int) -> tuple[Metrics, Callable[[], Reading]]:
    """Its metrics, and what is read of them."""
    metrics = sglang.of(parse(OTHERS["SGLang"][1]), Gauges(lambda: running, lambda: 0, lambda: 0.5))
    return metrics, lambda: engine_metrics.reading(generate_latest(metrics.registry).decode(), SGLANG.metrics)


def test_sglang_tells_of_a_prompt_late_and_of_its_client_at_once() -> None:
    metrics, read = sglangs(running=1)
    metrics.entered("POST", "/v1/chat/completions")
    metrics.entered("GET", "/metrics")
    for _ in range(sglang.GAUGE_STEPS):
        metrics.stepped(admitted=1)
    assert (read().running, read().busy) == (0, 1)
    for _ in range(sglang.GAUGE_STEPS):
        metrics.stepped(admitted=0)
    assert read().running == 1
    metrics.left("POST", "/v1/chat/completions")
    assert read().active == 0


def test_sglang_tells_streams_apart_and_counts_evictions_from_the_first_on() -> None:
    metrics, read = sglangs(running=0)
    metrics.first_token(0.5, 1.0, 100, 64)
    metrics.served(REQUEST)
    metrics.first_token(0.5, 1.0, 100, 64, streamed=True)
    metrics.served(replace(REQUEST, streamed=True))
    assert (read().queries, read().requests, read().first_token.total) == (200, 2, 2)
    page = generate_latest(metrics.registry).decode()
    assert 'sglang:prompt_tokens_total{engine_type="unified",is_streaming="true"' in page
    assert "sglang:evicted_tokens_total{" not in page
    metrics.evicted(32)
    assert read().evicted == 32


TIERED = {
    "vLLM": (vllm.of, ["m", "--kv-offloading-size=1"], VLLM.metrics),
    "SGLang": (
        sglang.of,
        [*OTHERS["SGLang"][1], "--enable-metrics", "--enable-hierarchical-cache", "--hicache-size=1"],
        SGLANG.metrics,
    ),
}


@pytest.mark.parametrize("engine", TIERED)
def test_what_a_tier_brought_is_counted_apart(engine: str) -> None:
    kind, argv, names = TIERED[engine]
    metrics = kind(parse(argv), Gauges(running=lambda: 0, waiting=lambda: 0, usage=lambda: 0))
    metrics.admitted(100, 64, 32)
    metrics.first_token(0.5, 1.0, 100, 64)
    metrics.served(replace(REQUEST, copied=32))
    found = engine_metrics.reading(generate_latest(metrics.registry).decode(), names)
    assert (found.queries, found.hits, found.tiered) == (100, 64, 32)


@pytest.mark.parametrize(
    ("argv", "source"),
    [
        (["m", "--kv-offloading-size=1"], "host"),
        (["m", '--kv-transfer-config={"kv_connector":"LMCacheMPConnector"}'], "external_unspecified"),
    ],
)
def test_vllm_says_where_cached_tokens_came_from(argv: list[str], source: str) -> None:
    metrics = vllm.of(parse(argv), Gauges(running=lambda: 0, waiting=lambda: 0, usage=lambda: 0))
    metrics.admitted(100, 64, 48)
    page = generate_latest(metrics.registry).decode().splitlines()
    told = {
        line.partition('source="')[2].partition('"')[0]: float(line.split()[-1])
        for line in page
        if line.startswith("vllm:prompt_tokens_cached_by_source_total{")
    }
    assert told == dict.fromkeys(vllm.SOURCES, 0.0) | {"device": 16.0, source: 48.0}
