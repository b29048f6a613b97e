"""SGLang: arguments, metrics, KV tiers, and the tiers that a user's own flags configure. Does no I/O.

tier                   set by
memory                 --enable-hierarchical-cache
memory and a volume    the same with the backend file
pool                   the same with the backend mooncake

Flags and keys are those of SGLang 0.5.23 and Mooncake 0.3.13.
"""

import re
from collections.abc import Sequence

from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.api.cache import OffloadSpec
from promptgroup_operator.api.loaded_weights import EngineAdaptersSpec
from promptgroup_operator.api.prompt_group import EngineSpec, PromptGroupSpec
from promptgroup_operator.base import sizes
from promptgroup_operator.engines.dialects.dialect import TLS_ARGS, AdapterForm, Dialect
from promptgroup_operator.engines.dialects.flags import decimal, first_match, flag_of, number, values_of
from promptgroup_operator.engines.dialects.metric_names import MetricNames
from promptgroup_operator.engines.dialects.pod_parts import (
    ADDRESS,
    FOLDER,
    NOTHING,
    ManualTier,
    PodParts,
    compact_json,
    namespace,
    protocol,
    split_address,
)
from promptgroup_operator.world.pod_ranks import argument_ranks

WATCHDOG_SECONDS = 120
"""Seconds after which SGLang exits if one of its steps does not end. It compiles kernels within its first steps; its
own limit is 300."""

_CACHING_OFF = "--disable-radix-cache"
_SETS_UP = re.compile(r"--(enable-hierarchical-cache|enable-lmcache|hicache-[a-z-]+)")

METRICS = MetricNames(
    path="/metrics",
    rank_label="dp_rank",
    queries=("sglang:prompt_tokens_total",),
    hits=("sglang:cached_tokens_total",),
    source_label="cache_source",
    device=("device", "total"),  # total: its requests say of theirs only how many there were
    by_source=("sglang:cached_tokens_total",),
    by_source_label="cache_source",
    memory_used=("sglang:hicache_host_used_tokens",),
    memory_size=("sglang:hicache_host_total_tokens",),
    generated=("sglang:generation_tokens_total",),
    requests=("sglang:num_requests_total",),
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    usage=("sglang:token_usage",),
    first_token="sglang:time_to_first_token_seconds",  # noqa: S106 - tokens of text
    active=("sglang:http_requests_active",),
    late=True,
    computed=("sglang:uncached_prompt_tokens_histogram_sum",),
    queue_seconds=("sglang:queue_time_seconds_sum",),
    preemptions=("sglang:num_retracted_requests_total",),
    evicted=("sglang:evicted_tokens_total",),
    kv_tokens=("sglang:max_total_num_tokens",),
    blocks=("sglang:num_pages",),
    block_size=("sglang:page_size",),
    info="sglang:cache_config_info",
    step_labels=("page_size",),
    blocks_label="num_pages",
    block_size_label="page_size",
)
"""SGLang with --enable-metrics: from 0.5.11 on its cache is in gauges, before it is in labels of the info metric."""


def _tiers(spec: PromptGroupSpec) -> PodParts:
    if spec.cache is None or spec.cache.offload is None:
        return NOTHING
    offload, pool = spec.cache.offload, spec.cache.pool
    # its size is in decimal GB, whole ones, for each rank
    args = ("--enable-hierarchical-cache", f"--hicache-size={_size(spec.engine, offload)}")
    if offload.claim_name is not None:
        return PodParts(
            args=(*args, "--hicache-storage-backend=file"),
            env={"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": f"{FOLDER}/{namespace(spec)}"},
            claim=offload.claim_name,
        )
    if pool is None:
        return PodParts(args=args)
    host, port = split_address(pool.address)
    tag = compact_json({"extra_backend_tag": namespace(spec)})
    return PodParts(
        args=(
            *args,
            "--hicache-storage-backend=mooncake",
            f"--hicache-storage-backend-extra-config={tag}",
            f"--watchdog-timeout={WATCHDOG_SECONDS}",
        ),
        env={
            "MOONCAKE_MASTER": pool.address,
            "MOONCAKE_TE_META_DATA_SERVER": "P2PHANDSHAKE",
            "MOONCAKE_PROTOCOL": protocol(pool),
            "MOONCAKE_GLOBAL_SEGMENT_SIZE": "0",
            "MOONCAKE_LOCAL_HOSTNAME": ADDRESS,
        },
        awaits=(host.strip("[]"), port),
    )


def _size(engine: EngineSpec, offload: OffloadSpec) -> int:
    return sizes.parse(offload.memory) // 10**9 // _ranks(engine)


def _ranks(engine: EngineSpec) -> int:
    """Return the ranks of SGLang that allocate main memory for KV, each its own."""
    args = engine.args
    count = number(args, ("--tp", "--tp-size", "--tensor-parallel-size"))
    count *= number(args, ("--pp", "--pp-size", "--pipeline-parallel-size"))
    if "--enable-dp-attention" not in map(flag_of, args):
        count *= engine.data_parallel_size or argument_ranks(args)
    return count


def _tiers_problem(spec: PromptGroupSpec) -> str:
    offload = spec.cache.offload if spec.cache is not None else None
    if offload is None or _size(spec.engine, offload) >= 1:
        return ""
    return f"spec.cache.offload.memory is {offload.memory}, less than 1 GB for each rank of SGLang: raise it"


def _adapter_args(room: EngineAdaptersSpec | None, adapter: Adapter | None) -> tuple[str, ...]:
    if room is None and adapter is None:
        return ()
    space = room if room is not None else EngineAdaptersSpec(max_active=1, max_in_memory=1)
    batch = space.max_active + 1  # requests for the model itself count as those of one adapter
    return (
        "--enable-lora",
        f"--max-loras-per-batch={batch}",
        f"--max-loaded-loras={max(space.max_in_memory, batch)}",
        f"--max-lora-rank={space.max_rank}",
        # without adapters at the start it cannot find out which parts of the model they change
        *(("--lora-target-modules=all",) if room is not None else ()),
        *((f"--lora-paths={adapter.served}={adapter.path}",) if adapter is not None else ()),
    )


def _manual_setting(engine: EngineSpec) -> str:
    return first_match(engine.args, _SETS_UP)


def _manual_tier(engine: EngineSpec, setting: str) -> ManualTier:
    values = dict(values_of(engine.args))
    if "--enable-hierarchical-cache" not in values:
        return ManualTier(setting)
    return ManualTier(setting, int(decimal(values.get("--hicache-size")) * 10**9) * _ranks(engine))


def _split_setting(args: Sequence[str]) -> str:
    mode = dict(values_of(args)).get("--disaggregation-mode", "")
    return f"--disaggregation-mode {mode}" if mode in ("prefill", "decode") else ""


SGLANG = Dialect(
    args=(
        *("python3", "-m", "sglang.launch_server"),
        *("--model-path={model}", f"--host={ADDRESS}", "--port={port}", "--enable-cache-report", "--enable-metrics"),
    ),
    served_name="--served-model-name={model}",
    health="/health",
    metrics=METRICS,
    batch_flag="--chunked-prefill-size",
    sequences_flag="--max-running-requests",
    caching_off=_CACHING_OFF,
    reset="/flush_cache",
    state="/server_info",
    state_off="disable_radix_cache",
    omits_zero=True,  # 0.5.23 says it, releases before it did not
    # else each probe has the engine generate a token, and fails behind a prefill that takes longer than it waits
    env={"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"},
    key_env="ENGINE_API_KEY",
    key_args=("--api-key=$(ENGINE_API_KEY)",),
    tls_args=TLS_ARGS,
    salted=frozenset(("chat", "text", "responses")),  # messages ignores it: seen with 0.5.23
    parallel_flags=frozenset(
        {
            *("--tensor-parallel-size", "--tp", "--tp-size", "--pipeline-parallel-size", "--pp", "--pp-size"),
            *("--data-parallel-size", "--dp", "--dp-size", "--expert-parallel-size", "--ep", "--ep-size"),
        }
    ),
    caching_off_parts=PodParts(args=(_CACHING_OFF,)),
    rank_flag="--dp-size",
    node_args=("--nnodes={nodes}", "--node-rank=$(LWS_WORKER_INDEX)", "--dist-init-addr=$(LWS_LEADER_ADDRESS):20000"),
    split_flags=(
        ("--tp-size", "--tp", "--tensor-parallel-size"),
        ("--pp-size", "--pp", "--pipeline-parallel-size"),
    ),
    unranked=frozenset(),
    ranked_since=(0, 5),
    adapters=AdapterForm(
        args=_adapter_args,
        # not --lora-target-modules, by which a user saves memory of the GPU
        flags=frozenset(
            {"--enable-lora", "--lora-paths", "--max-loras-per-batch", "--max-loaded-loras", "--max-lora-rank"}
        ),
        run_time={},
        load="/load_lora_adapter",
        unload="/unload_lora_adapter",
        # the adapter's name alone is answered by the model without it, as is any name on the other APIs
        model="{model}:{adapter}",
        apis=frozenset(("chat", "text", "messages")),
    ),
    image="lmsysorg/sglang",
    tiers_since=(0, 5),
    tiers=_tiers,
    tiers_problem=_tiers_problem,
    manual_setting=_manual_setting,
    manual_tier=_manual_tier,
    split_setting=_split_setting,
)
"""SGLang 0.5, image lmsysorg/sglang."""
