"""KV tiers behind the GPU's memory, in each engine's words: what `spec.cache` makes of a pod. Does no I/O.

engine        memory                        memory and a volume            pool
vLLM          --kv-offloading-size          OffloadingConnector, tier fs   LMCacheMPConnector, MooncakeStoreConnector
SGLang        --enable-hierarchical-cache   the same, backend file         the same, backend mooncake
TensorRT-LLM  kv_cache_config, in its file  -                              -

Flags and keys are those of vLLM 0.32, SGLang 0.5.23, LMCache 0.5.6 and Mooncake 0.3.13.

Stores know a model by its name or path alone, so that KV of another revision or another release of the engine would be
taken for right. Where a store has a namespace it is `namespace(spec)`: engines with other settings find nothing of it.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from promptgroup_operator.api.cache import OffloadSpec, PoolSpec, PoolType, TierName, TierStatus, Transport
from promptgroup_operator.api.prompt_group import EngineSpec, EngineType, PromptGroupSpec
from promptgroup_operator.base import sizes
from promptgroup_operator.engines import hand_set
from promptgroup_operator.engines.dialect import ADDRESS, CONFIG_FILE, DIALECTS
from promptgroup_operator.world.load import TierReach

FOLDER = "/var/cache/promptgroup"
"""Where an engine's volume for KV is mounted."""
GATE = "await-pool"
"""Name of the init container that waits for the pool: an engine that starts without it exits."""

MQ_TIMEOUT = 5
"""Seconds that an engine waits for LMCache's server. With the connector's 300 an engine stood still for five minutes
and died when its server was killed in a transfer; with 5 the longest stall was 14 s."""
HEARTBEAT = 2
"""Seconds between an engine's looks at LMCache's server; the connector's default is 10."""
STEP_SECONDS = 60
"""Seconds after which vLLM ends itself when a step of its does not end: /health answers 200 all that time."""
WATCHDOG_SECONDS = 120
"""The same of SGLang, which compiles kernels within its first steps; its own limit is 300."""
SHARED_MEMORY_SPARE = 1
"""GiB of shared memory beside what vLLM keeps KV in: its processes talk through it."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the pod's own
"""Where vLLM keeps KV in main memory."""
LEFT_BEHIND = f"{SHARED_MEMORY}/vllm_offload_*"
"""Files in which vLLM keeps KV: with a volume behind it, one that is ended does not remove them."""
LOCAL_BUFFER = 1 << 30
"""Bytes through which a worker of an engine exchanges blocks with Mooncake."""

_GATE_PROGRAM = """\
import socket, sys, time
host, port = sys.argv[1], int(sys.argv[2])
while True:
    try:
        socket.create_connection((host, port), 5).close()
        break
    except OSError as error:
        print(f"the pool at {host}:{port} is away ({error}): the engine starts once it is there", flush=True)
        time.sleep(2)
"""


@dataclass(frozen=True, slots=True)
class PodParts:
    """The parts of a pod that tiers need."""

    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    config: str = ""
    """Content of CONFIG_FILE behind the dialect's own."""
    claim: str = ""
    """PersistentVolumeClaim to mount at FOLDER; empty for none."""
    shared_memory: str = ""
    """Size of /dev/shm, where a container has 64 MiB unless it is told; empty for that."""
    awaits: tuple[str, str] | None = None
    """Host and port that must answer before the engine starts."""

    @property
    def gate(self) -> list[str]:
        """Command of the init container."""
        return ["python3", "-c", _GATE_PROGRAM, *(self.awaits or ())]


NOTHING = PodParts()


def parts(spec: PromptGroupSpec) -> PodParts:
    """Return what the tiers of a spec need; the spec keeps the CRD's rules, and `problem` finds none."""
    if spec.cache is None:
        return NOTHING
    if spec.caches_nothing:
        return _CACHING_OFF[spec.engine.type]
    if spec.cache.pool is not None and spec.engine.type is EngineType.VLLM:
        return _vllm_pool(spec, spec.cache.pool)
    offload = spec.cache.offload
    if offload is None:
        return NOTHING  # a rule of the CRD refuses it
    if spec.engine.type is EngineType.VLLM:
        return _vllm_offload(spec, offload)
    if spec.engine.type is EngineType.SGLANG:
        return _sglang(spec, offload, spec.cache.pool)
    return PodParts(config=f"kv_cache_config: {{host_cache_size: {sizes.parse(offload.memory)}}}\n")


_CACHING_OFF: Mapping[EngineType, PodParts] = {
    EngineType.VLLM: PodParts(args=(DIALECTS[EngineType.VLLM].caching_off,)),
    EngineType.SGLANG: PodParts(args=(DIALECTS[EngineType.SGLANG].caching_off,)),
    EngineType.TENSORRT_LLM: PodParts(config="kv_cache_config: {enable_block_reuse: false}\n"),
}
"""The parts of a pod whose engine caches no prefix."""


def _vllm_offload(spec: PromptGroupSpec, offload: OffloadSpec) -> PodParts:
    # a replica of vLLM allocates it once for each data-parallel engine
    share = sizes.parse(offload.memory) // hand_set.number(spec.engine.args, ("--data-parallel-size", "-dp"))
    # vLLM keeps it in files there, and exits where they do not fit
    shared = f"{(sizes.parse(offload.memory) >> 30) + SHARED_MEMORY_SPARE}Gi"
    if offload.claim_name is None:
        return PodParts(args=(f"--kv-offloading-size={share / 2**30:g}",), shared_memory=shared)
    extra = {
        "cpu_bytes_to_use": share,
        "spec_name": "TieringOffloadingSpec",
        "secondary_tiers": [{"type": "fs", "root_dir": f"{FOLDER}/{namespace(spec)}"}],
    }
    args = (_connector("OffloadingConnector", extra),)
    return PodParts(args=args, claim=offload.claim_name, shared_memory=shared)


def _vllm_pool(spec: PromptGroupSpec, pool: PoolSpec) -> PodParts:
    host, port = _split(pool.address)
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
        "protocol": _protocol(pool),
        "device_name": "",
    }
    return PodParts(
        args=(_connector("MooncakeStoreConnector", {"cache_prefix": namespace(spec)}),),
        env={"MOONCAKE_CONFIG_PATH": CONFIG_FILE, **watchdog},
        config=_json(config) + "\n",
        awaits=(host.strip("[]"), port),
    )


def _sglang(spec: PromptGroupSpec, offload: OffloadSpec, pool: PoolSpec | None) -> PodParts:
    # its size is in decimal GB, whole ones, for each rank
    args = ("--enable-hierarchical-cache", f"--hicache-size={_sglang_size(spec.engine, offload)}")
    if offload.claim_name is not None:
        return PodParts(
            args=(*args, "--hicache-storage-backend=file"),
            env={"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": f"{FOLDER}/{namespace(spec)}"},
            claim=offload.claim_name,
        )
    if pool is None:
        return PodParts(args=args)
    host, port = _split(pool.address)
    tag = _json({"extra_backend_tag": namespace(spec)})
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
            "MOONCAKE_PROTOCOL": _protocol(pool),
            "MOONCAKE_GLOBAL_SEGMENT_SIZE": "0",
            "MOONCAKE_LOCAL_HOSTNAME": ADDRESS,
        },
        awaits=(host.strip("[]"), port),
    )


def namespace(spec: PromptGroupSpec) -> str:
    """Return the name under which a store keeps the KV of these engines: a digest of all that the spec says of them.

    A change of any of them begins anew in the store, for nothing tells that the KV in it would still be right.
    """
    engine = spec.engine
    whole = [engine.type, spec.model, engine.image, engine.args, engine.template]
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return f"pg-{digest[:12]}"


def reach(spec: PromptGroupSpec) -> TierReach:
    """Return who can copy from the tiers of a group. Of those that arguments set up nobody else is taken to."""
    cache = spec.cache
    if spec.caches_nothing or (cache is None and hand_set.tier(spec.engine) is None):
        return TierReach.NONE
    if not DIALECTS[spec.engine.type].metrics.tells_tiers:
        return TierReach.UNSEEN
    if cache is None:
        return TierReach.REPLICA
    volume = cache.offload is not None and cache.offload.claim_name is not None
    return TierReach.SHARED if cache.pool is not None or volume else TierReach.REPLICA


def tiers_on(spec: PromptGroupSpec, kv_tokens: int) -> list[TierStatus]:
    """Return the tiers of a group, the nearest first; empty where there is none but the GPU's memory.

    Args:
        spec: the group's spec.
        kv_tokens: tokens that the GPU's memory of one replica holds; 0 when unknown.
    """
    found = []
    offload = spec.cache.offload if spec.cache is not None else None
    if offload is not None:
        found.append(TierStatus(tier=TierName.MEMORY, capacity=offload.memory))
        if offload.claim_name is not None:
            found.append(TierStatus(tier=TierName.VOLUME, source=offload.claim_name))
    pool = spec.cache.pool if spec.cache is not None else None
    if pool is not None:
        found.append(TierStatus(tier=TierName.POOL, source=f"{pool.type.value} {pool.address}"))
    by_hand = hand_set.tier(spec.engine) if spec.cache is None else None
    if by_hand is not None:
        size = f"{by_hand.size / 2**30:.4g}Gi" if by_hand.size else None
        found.append(TierStatus(tier=TierName.ARGS, capacity=size, source=by_hand.setting))
    tokens = f"{kv_tokens} tokens" if kv_tokens else None
    return [TierStatus(tier=TierName.GPU, capacity=tokens), *found] if found else []


# --- What cannot work --------------------------------------------------------------------------------------

_SINCE: Mapping[EngineType, tuple[str, str, tuple[int, int]]] = {
    EngineType.VLLM: ("vLLM", "vllm/vllm-openai", (0, 22)),
    EngineType.SGLANG: ("SGLang", "lmsysorg/sglang", (0, 5)),
    EngineType.TENSORRT_LLM: ("TensorRTLLM", "tensorrt-llm/release", (1, 0)),
}
"""Program, image whose tags are its releases, and the first release that takes what is rendered here."""
_LMCACHE_SINCE = ("LMCache", "lmcache/vllm-openai", (0, 5))
"""The same of vLLM's image with LMCache, whose tags are releases of LMCache: its connector has the time-outs from then
on."""

_TAG = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")


def problem(spec: PromptGroupSpec, limit: int | None) -> str:
    """Return what keeps the tiers of a spec from working, with the way out; empty if nothing does.

    Args:
        spec: the group's spec, which keeps the CRD's rules.
        limit: bytes of memory that the engine's container may use; None for no limit.
    """
    cache, engine = spec.cache, spec.engine
    if cache is None:
        return ""
    by_hand, setting = hand_set.tier(engine), hand_set.connector(engine)
    if spec.caches_nothing:
        if by_hand is None:
            return ""
        return (
            f"spec.cache.prefixCaching is Disabled, and {by_hand.setting} in spec.engine sets up a KV tier: remove one "
            "of the two"
        )
    if setting:
        both = "set up KV tiers" if by_hand is not None else "need the one KV connector that an engine has"
        return f"spec.cache and {setting} in spec.engine both {both}: remove one of the two"
    found = _too_old(engine, *_SINCE[engine.type])
    if cache.pool is not None and cache.pool.type is PoolType.LMCACHE:
        found = found or _too_old(engine, *_LMCACHE_SINCE)
    if found:
        return found
    revision = next((each for each in map(hand_set.flag_of, engine.args) if each == "--revision"), "")
    if revision and cache.pool is not None and cache.pool.type is PoolType.LMCACHE:
        return (
            f"{revision} in spec.engine.args: a pool of type LMCache identifies a model only by its name or path, so "
            "two revisions would use each other's KV: serve each revision from a folder of its own, and remove the flag"
        )
    if cache.offload is None:
        return ""
    if limit is not None and limit <= sizes.parse(cache.offload.memory):
        return (
            f"spec.cache.offload.memory is {cache.offload.memory}, and spec.engine.resources.limits.memory is not "
            "larger: raise the limit, because the engine needs memory of its own as well"
        )
    if engine.type is EngineType.SGLANG and _sglang_size(engine, cache.offload) < 1:
        return f"spec.cache.offload.memory is {cache.offload.memory}, less than 1 GB for each rank of SGLang: raise it"
    return ""


def _too_old(engine: EngineSpec, program: str, repository: str, since: tuple[int, int]) -> str:
    name, _, tag = engine.image.partition("@")[0].rpartition(":")
    found = _TAG.match(tag) if name.endswith(repository) else None
    if found is None or (int(found[1]), int(found[2])) >= since:
        return ""
    first = ".".join(map(str, since))
    return f"spec.cache needs {program} {first} or newer, and spec.engine.image is {engine.image}"


# --- Parts of settings -------------------------------------------------------------------------------------


def _sglang_size(engine: EngineSpec, offload: OffloadSpec) -> int:
    return sizes.parse(offload.memory) // 10**9 // hand_set.ranks(engine.args)


def _connector(name: str, extra: Mapping[str, Any]) -> str:
    config = {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return f"--kv-transfer-config={_json(config)}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _protocol(pool: PoolSpec) -> str:
    return "rdma" if pool.transport is Transport.RDMA else "tcp"


def _split(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host, port
