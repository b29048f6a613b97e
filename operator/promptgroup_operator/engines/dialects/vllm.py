"""vLLM: arguments, metrics, KV tiers, and the tiers that a user's own flags configure. Does no I/O.

tier                   set by
memory                 --kv-offloading-size
memory and a volume    OffloadingConnector with the tier fs
pool                   LMCacheMPConnector or MooncakeStoreConnector

Flags and keys are those of vLLM 0.32, LMCache 0.5.6 and Mooncake 0.3.13.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.api.cache import OffloadSpec, PoolSpec, PoolType
from promptgroup_operator.api.loaded_weights import EngineAdaptersSpec
from promptgroup_operator.api.prompt_group import EngineSpec, PromptGroupSpec
from promptgroup_operator.base import sizes
from promptgroup_operator.engines.dialects.dialect import TLS_ARGS, AdapterForm, Dialect
from promptgroup_operator.engines.dialects.flags import decimal, first_match, flag_of, values_of
from promptgroup_operator.engines.dialects.metric_names import MetricNames
from promptgroup_operator.engines.dialects.pod_parts import (
    CONFIG_FILE,
    FOLDER,
    NOTHING,
    SHARED_MEMORY,
    ManualTier,
    PodParts,
    compact_json,
    namespace,
    protocol,
    split_address,
    too_old,
)
from promptgroup_operator.world.pod_ranks import argument_ranks

MQ_TIMEOUT = 5
"""Seconds that an engine waits for LMCache's server. With the connector's default of 300 an engine stalled for five
minutes and exited when its server was killed in a transfer; with 5 the longest stall was 14 s."""
HEARTBEAT = 2
"""Seconds between an engine's health checks of LMCache's server; the connector's default is 10."""
STEP_SECONDS = 60
"""Seconds after which vLLM exits if one of its steps does not end, during which /health still returns 200."""
SHARED_MEMORY_SPARE = 1
"""GiB of shared memory in addition to that for KV: vLLM's processes communicate through it."""
LEFT_BEHIND = f"{SHARED_MEMORY}/vllm_offload_*"
"""Files in which vLLM stores KV: with a volume as second tier, it does not remove them at its end."""
LOCAL_BUFFER = 1 << 30
"""Bytes through which a worker of an engine exchanges blocks with Mooncake."""
LMCACHE_IMAGE, LMCACHE_SINCE = "lmcache/vllm-openai", (0, 5)
"""The image of vLLM with LMCache, whose tags are releases of LMCache; the first whose connector has time-outs."""
HANDS_OVER = frozenset(
    {
        *("NixlConnector", "NixlPullConnector", "NixlPushConnector"),
        *("P2pNcclConnector", "MooncakeConnector", "MoRIIOConnector"),
    }
)
"""Connectors of vLLM by which a prefill engine transfers KV to a decode engine."""
SPLIT_ROLES = frozenset(("kv_producer", "kv_consumer"))
"""Roles of engines with such a connector that do not both send and receive KV."""

_CACHING_OFF = "--no-enable-prefix-caching"
_TRANSFER = "--kv-transfer-config"
_SETS_UP = re.compile(rf"{_TRANSFER}(\..+)?|--kv-offloading-(size|backend)")

METRICS = MetricNames(
    path="/metrics",
    rank_label="engine",
    queries=("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    hits=("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    tier_hits=("vllm:external_prefix_cache_hits_total",),
    by_source=("vllm:prompt_tokens_cached_by_source_total",),
    by_source_label="source",
    memory_usage=("vllm:kv_offload_cpu_cache_usage_perc",),
    generated=("vllm:generation_tokens_total",),
    requests=("vllm:request_success_total",),
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    first_token="vllm:time_to_first_token_seconds",  # noqa: S106 - tokens of text
    computed=("vllm:request_prefill_kv_computed_tokens_sum",),
    prefill_seconds=("vllm:request_prefill_time_seconds_sum",),
    decode_seconds=("vllm:request_decode_time_seconds_sum",),
    queue_seconds=("vllm:request_queue_time_seconds_sum",),
    preemptions=("vllm:num_preemptions_total",),
    info="vllm:cache_config_info",
    step_labels=("cache_hit_alignment_tokens", "hash_block_size", "block_size"),
    caching_label="enable_prefix_caching",
    kv_tokens_label="kv_cache_size_tokens",
    blocks_label="num_gpu_blocks",
    block_size_label="block_size",
)
"""vLLM 0.32, and the names that 0.8 to 0.10 had (`gpu_`)."""


def _tiers(spec: PromptGroupSpec) -> PodParts:
    cache = spec.cache
    if cache is None:
        return NOTHING
    if cache.pool is not None:
        return _pool(spec, cache.pool)
    return _offload(spec, cache.offload) if cache.offload is not None else NOTHING


def _offload(spec: PromptGroupSpec, offload: OffloadSpec) -> PodParts:
    # a replica of vLLM allocates it once for each data-parallel engine
    share = sizes.parse(offload.memory) // (spec.engine.data_parallel_size or argument_ranks(spec.engine.args))
    # vLLM stores it in files there, and exits if they do not fit.
    shared = f"{(sizes.parse(offload.memory) >> 30) + SHARED_MEMORY_SPARE}Gi"
    if offload.claim_name is None:
        return PodParts(
            args=(f"--kv-offloading-size={share / 2**30:g}",), shared_memory=shared, left_behind=LEFT_BEHIND
        )
    extra = {
        "cpu_bytes_to_use": share,
        "spec_name": "TieringOffloadingSpec",
        "secondary_tiers": [{"type": "fs", "root_dir": f"{FOLDER}/{namespace(spec)}"}],
    }
    args = (_connector("OffloadingConnector", extra),)
    return PodParts(args=args, claim=offload.claim_name, shared_memory=shared, left_behind=LEFT_BEHIND)


def _pool(spec: PromptGroupSpec, pool: PoolSpec) -> PodParts:
    host, port = split_address(pool.address)
    watchdog = {"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": str(STEP_SECONDS)}
    if pool.type is PoolType.LMCACHE:
        extra = {
            "lmcache.mp.host": f"tcp://{host}",
            "lmcache.mp.port": int(port),
            "lmcache.mp.mq_timeout": MQ_TIMEOUT,
            "lmcache.mp.heartbeat_interval": HEARTBEAT,
        }
        return PodParts(
            args=(_connector("LMCacheMPConnector", extra), "--disable-hybrid-kv-cache-manager"),
            env={"LMCACHE_TRACK_USAGE": "false", **watchdog},  # else LMCache reports its use over the Internet
            awaits=(host.strip("[]"), port),
        )
    config = {
        "metadata_server": "P2PHANDSHAKE",
        "master_server_address": pool.address,
        "global_segment_size": 0,  # its store nodes hold the blocks: an engine that restarts takes none away
        "local_buffer_size": LOCAL_BUFFER,
        "protocol": protocol(pool),
        "device_name": "",
    }
    return PodParts(
        args=(_connector("MooncakeStoreConnector", {"cache_prefix": namespace(spec)}),),
        env={"MOONCAKE_CONFIG_PATH": CONFIG_FILE, **watchdog},
        config=compact_json(config) + "\n",
        awaits=(host.strip("[]"), port),
    )


def _connector(name: str, extra: Mapping[str, Any]) -> str:
    config = {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return f"--kv-transfer-config={compact_json(config)}"


def _tiers_problem(spec: PromptGroupSpec) -> str:
    pool = spec.cache.pool if spec.cache is not None else None
    if pool is None or pool.type is not PoolType.LMCACHE:
        return ""
    problem = too_old(spec.engine.image, "LMCache", LMCACHE_IMAGE, LMCACHE_SINCE)
    if problem:
        return problem
    if "--revision" in map(flag_of, spec.engine.args):
        return (
            "--revision in spec.engine.args: a pool of type LMCache identifies a model only by its name or path, so "
            "two revisions would use each other's KV: serve each revision from a folder of its own, and remove the flag"
        )
    return ""


def _adapter_args(room: EngineAdaptersSpec | None, adapter: Adapter | None) -> tuple[str, ...]:
    if room is None and adapter is None:
        return ()
    space = room if room is not None else EngineAdaptersSpec(max_active=1, max_in_memory=1)
    sizes_of = (
        ("max-loras", space.max_active),
        ("max-cpu-loras", space.max_in_memory),
        ("max-lora-rank", space.max_rank),
    )
    module = (f"--lora-modules={adapter.served}={adapter.path}",) if adapter is not None else ()
    return ("--enable-lora", *(f"--{flag}={size}" for flag, size in sizes_of), *module)


def _manual_setting(engine: EngineSpec) -> str:
    return first_match(engine.args, _SETS_UP)


def _manual_tier(engine: EngineSpec, setting: str) -> ManualTier | None:
    # A connector that transfers KV from a prefill engine to a decode engine stores none, so it is no tier.
    values = dict(values_of(engine.args))
    copies = engine.data_parallel_size or argument_ranks(engine.args)
    if "--kv-offloading-size" in values:
        # with LMCache as its backend, the memory is that of LMCache's server
        native = values.get("--kv-offloading-backend", "native") == "native"
        size = int(decimal(values["--kv-offloading-size"]) * 2**30) * copies if native else 0
        return ManualTier("--kv-offloading-size", size)
    config = _transfer_config(engine.args)
    connectors = list(_connectors(config))
    if connectors and set(connectors) <= HANDS_OVER:
        return None
    settings = config.get("kv_connector_extra_config")
    extra: Mapping[str, Any] = settings if isinstance(settings, Mapping) else {}
    to_use = extra.get("cpu_bytes_to_use")
    is_size = connectors == ["OffloadingConnector"] and isinstance(to_use, int | str)
    return ManualTier(setting, int(decimal(str(to_use))) * copies if is_size else 0)


def _transfer_config(args: Sequence[str]) -> dict[str, Any]:
    """Return the connector's settings, as JSON or as dotted flags; settings that cannot be parsed are left out."""
    config: dict[str, Any] = {}
    for flag, value in values_of(args):
        if flag == _TRANSFER:
            try:
                read = json.loads(value)
            except (ValueError, RecursionError):
                continue
            config |= read if isinstance(read, dict) else {}
        elif flag.startswith(f"{_TRANSFER}."):
            *folders, key = flag.removeprefix(f"{_TRANSFER}.").replace("-", "_").split(".")
            place = config
            for folder in folders:
                inner = place.get(folder)
                place[folder] = inner if isinstance(inner, dict) else {}
                place = place[folder]
            place[key] = value
    return config


def _connectors(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the connectors' names; for MultiConnector, those of its parts."""
    name = config.get("kv_connector")
    if name != "MultiConnector":
        if isinstance(name, str) and name:
            yield name
        return
    for part in _parts(config):
        inner = part.get("kv_connector") if isinstance(part, Mapping) else None
        yield inner if isinstance(inner, str) else ""


def _parts(config: Mapping[str, Any]) -> list[Any]:
    """Return the settings of the connectors that a MultiConnector combines."""
    extra = config.get("kv_connector_extra_config")
    parts = extra.get("connectors") if isinstance(extra, Mapping) else None
    return parts if isinstance(parts, list) else []


def _split_setting(args: Sequence[str]) -> str:
    config = _transfer_config(args)
    for part in (config, *_parts(config)):
        match part:
            case {"kv_connector": str(name), "kv_role": str(role)} if name in HANDS_OVER and role in SPLIT_ROLES:
                return f"{_TRANSFER} with kv_role {role}"
    return ""


VLLM = Dialect(
    # cached_tokens is in usage only on request; the proof of warmth needs it
    # and at SIGTERM it aborts what runs, unless a flag lets it wait: what came after the drain hook's last look
    args=("{model}", "--port={port}", "--enable-prompt-tokens-details", "--shutdown-timeout=25"),
    served_name="--served-model-name={model}",
    health="/health",
    metrics=METRICS,
    batch_flag="--max-num-batched-tokens",
    sequences_flag="--max-num-seqs",
    caching_off=_CACHING_OFF,
    resumes=True,
    reset="/reset_prefix_cache",
    key_env="VLLM_API_KEY",
    tls_args=TLS_ARGS,
    # embeddings and their like ("by model") too; not forms
    salted=frozenset(("chat", "text", "messages", "responses", "by model")),
    parallel_flags=frozenset(
        {
            *("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"),
            *("--data-parallel-size-local", "--decode-context-parallel-size", "--prefill-context-parallel-size"),
            *("-tp", "-pp", "-dp", "-dcp", "-pcp"),
        }
    ),
    caching_off_parts=PodParts(args=(_CACHING_OFF,)),
    rank_flag="--data-parallel-size",
    node_args=("--nnodes={nodes}", "--node-rank=$(LWS_WORKER_INDEX)", "--master-addr=$(LWS_LEADER_ADDRESS)"),
    worker_args=("--headless",),
    split_flags=(
        ("--tensor-parallel-size", "-tp"),
        ("--pipeline-parallel-size", "-pp"),
        ("--prefill-context-parallel-size", "-pcp"),
    ),
    unranked=frozenset(("responses",)),  # seen with 0.32; the source of 0.33 reads the header field there, too
    ranked_since=(0, 33),
    adapters=AdapterForm(
        args=_adapter_args,
        flags=frozenset(
            {
                *("--enable-lora", "--no-enable-lora", "--lora-modules"),
                *("--max-loras", "--max-cpu-loras", "--max-lora-rank"),
            }
        ),
        run_time={"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"},
        load="/v1/load_lora_adapter",
        unload="/v1/unload_lora_adapter",
        model="{adapter}",
        apis=None,
    ),
    image="vllm/vllm-openai",
    tiers_since=(0, 22),
    tiers=_tiers,
    tiers_problem=_tiers_problem,
    manual_setting=_manual_setting,
    manual_tier=_manual_tier,
    split_setting=_split_setting,
)
"""vLLM 0.32, `vllm serve` as the image's entrypoint."""
