"""TensorRT-LLM: arguments, metrics, and the KV tier in main memory, which its file of settings sets up."""

import re
from collections.abc import Mapping, Sequence

from promptgroup_operator.api.prompt_group import EngineSpec, PromptGroupSpec
from promptgroup_operator.base import sizes
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.flags import values_of
from promptgroup_operator.engines.dialects.metric_names import MetricNames
from promptgroup_operator.engines.dialects.pod_parts import (
    ADDRESS,
    CONFIG_ANNOTATION,
    CONFIG_FILE,
    NOTHING,
    ManualTier,
    PodParts,
)

_HOST_CACHE = re.compile(r"host_cache_size[\"']?\s*:\s*([0-9_]{1,20})", re.ASCII)

METRICS = MetricNames(
    path="/prometheus/metrics",
    queries=("trtllm_prompt_tokens_total",),
    hits=("trtllm_prompt_cached_tokens_total",),
    generated=("trtllm_generation_tokens_total",),
    requests=("trtllm_request_success_total",),
    running=("trtllm_num_requests_running", "trtllm_num_active_requests"),
    waiting=("trtllm_num_requests_waiting", "trtllm_server_queue_length"),
    usage=("trtllm_kv_cache_utilization",),
    first_token="trtllm_time_to_first_token_seconds",  # noqa: S106 - tokens of text
    late=True,
    prefill_seconds=("trtllm_request_prefill_time_seconds_sum",),
    decode_seconds=("trtllm_request_decode_time_seconds_sum",),
    queue_seconds=("trtllm_request_queue_time_seconds_sum",),
    blocks=("trtllm_kv_cache_max_blocks",),
    block_size=("trtllm_kv_cache_tokens_per_block",),
    info="trtllm_kv_cache_config_info",
    step_labels=("page_size",),
    caching_label="enable_block_reuse",
)
"""trtllm-serve with return_perf_metrics and enable_iter_perf_stats."""


def _tiers(spec: PromptGroupSpec) -> PodParts:
    offload = spec.cache.offload if spec.cache is not None else None
    if offload is None:
        return NOTHING
    return PodParts(config=f"kv_cache_config: {{host_cache_size: {sizes.parse(offload.memory)}}}\n")


def _manual_setting(engine: EngineSpec) -> str:
    return "kv_cache_config.host_cache_size" if _host_cache(engine) else ""


def _manual_tier(engine: EngineSpec, setting: str) -> ManualTier:
    return ManualTier(setting, _host_cache(engine))


def _host_cache(engine: EngineSpec) -> int:
    """Return the bytes that TensorRT-LLM's file of settings gives to the host's memory, as a template has it."""
    metadata = engine.template.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = annotations.get(CONFIG_ANNOTATION) if isinstance(annotations, Mapping) else None
    size = _HOST_CACHE.search(text) if isinstance(text, str) else None
    return int(size[1].replace("_", "") or 0) if size else 0


def _split_setting(args: Sequence[str]) -> str:
    role = dict(values_of(args)).get("--server-role", "")
    return f"--server_role {role}" if role.upper() in ("CONTEXT", "GENERATION") else ""


TENSORRT_LLM = Dialect(
    args=(
        *("trtllm-serve", "{model}", f"--host={ADDRESS}", "--port={port}"),
        f"--extra_llm_api_options={CONFIG_FILE}",
    ),
    served_name="--served_model_name={model}",
    health="/health",
    metrics=METRICS,
    batch_flag="--max-num-tokens",
    sequences_flag="--max-batch-size",
    caching_off="kv_cache_config.enable_block_reuse: false",
    # without the first there is no /prometheus/metrics, without the second no gauge on it
    config="return_perf_metrics: true\nenable_iter_perf_stats: true\n",
    salted=frozenset(("chat",)),  # ChatCompletionRequest alone has the field
    parallel_flags=frozenset({"--tp-size", "--pp-size", "--ep-size", "--cp-size", "--moe-expert-parallel-size"}),
    caching_off_parts=PodParts(config="kv_cache_config: {enable_block_reuse: false}\n"),
    rank_flag="",
    unranked=frozenset(),
    ranked_since=(0, 0),
    adapters=None,
    image="tensorrt-llm/release",
    tiers_since=(1, 0),
    tiers=_tiers,
    tiers_problem=lambda _spec: "",
    manual_setting=_manual_setting,
    manual_tier=_manual_tier,
    split_setting=_split_setting,
)
"""TensorRT-LLM 1.x, image nvcr.io/nvidia/tensorrt-llm/release."""
