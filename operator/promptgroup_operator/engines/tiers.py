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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from promptgroup_operator.api.cache import OffloadSpec, PoolSpec, PoolType, TierName, TierStatus, Transport
from promptgroup_operator.api.prompt_group import EngineSpec, EngineType, PromptGroupSpec
from promptgroup_operator.base import sizes
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


def _vllm_offload(spec: PromptGroupSpec, offload: OffloadSpec) -> PodParts:
    share = sizes.parse(offload.memory) // _copies(spec.engine)
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
        args=(*args, "--hicache-storage-backend=mooncake", f"--hicache-storage-backend-extra-config={tag}"),
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
    if cache is None and not by_hand(spec.engine):
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
    flag = by_hand(spec.engine) if spec.cache is None else ""
    if flag:
        found.append(TierStatus(tier=TierName.ARGS, source=flag))
    tokens = f"{kv_tokens} tokens" if kv_tokens else None
    return [TierStatus(tier=TierName.GPU, capacity=tokens), *found] if found else []


# --- What cannot work --------------------------------------------------------------------------------------

_BY_HAND: Mapping[EngineType, re.Pattern[str]] = {
    EngineType.VLLM: re.compile(r"--kv-(transfer-config|offloading-size|offloading-backend)"),
    EngineType.SGLANG: re.compile(r"--(enable-hierarchical-cache|enable-lmcache|hicache-[a-z-]+)"),
}
"""Flags by which a user sets up tiers without `spec.cache`."""

_SINCE: Mapping[EngineType, tuple[str, tuple[int, int]]] = {
    EngineType.VLLM: ("vllm/vllm-openai", (0, 22)),
    EngineType.SGLANG: ("lmsysorg/sglang", (0, 5)),
    EngineType.TENSORRT_LLM: ("tensorrt-llm/release", (1, 0)),
}
"""Image whose tags are the engine's releases, and the first release that takes what is rendered here."""

_TAG = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")


def by_hand(engine: EngineSpec) -> str:
    """Return the first argument by which a user sets up tiers; empty if there is none."""
    pattern = _BY_HAND.get(engine.type)
    flags = (_flag(arg) for arg in engine.args)
    return next((flag for flag in flags if pattern is not None and pattern.fullmatch(flag)), "")


def problem(spec: PromptGroupSpec, limit: int | None) -> str:
    """Return what keeps the tiers of a spec from working, with the way out; empty if nothing does.

    Args:
        spec: the group's spec, which keeps the CRD's rules.
        limit: bytes of memory that the engine's container may use; None for no limit.
    """
    cache, engine = spec.cache, spec.engine
    if cache is None:
        return ""
    flag = by_hand(engine)
    if flag:
        return f"spec.cache and {flag} in spec.engine.args both set up KV tiers: remove one of the two"
    found = _too_old(engine)
    if found:
        return found
    revision = next((each for each in map(_flag, engine.args) if each == "--revision"), "")
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


def _too_old(engine: EngineSpec) -> str:
    repository, since = _SINCE[engine.type]
    name, _, tag = engine.image.partition("@")[0].rpartition(":")
    found = _TAG.match(tag) if name.endswith(repository) else None
    if found is None or (int(found[1]), int(found[2])) >= since:
        return ""
    first = ".".join(map(str, since))
    return f"spec.cache needs {engine.type.value} {first} or newer, and spec.engine.image is {engine.image}"


# --- Reading arguments -------------------------------------------------------------------------------------


def _copies(engine: EngineSpec) -> int:
    """Return how many times a replica of vLLM allocates its memory: once for each data-parallel engine."""
    return _number(engine.args, ("--data-parallel-size", "-dp"))


def _sglang_size(engine: EngineSpec, offload: OffloadSpec) -> int:
    ranks = _number(engine.args, ("--tp", "--tp-size", "--tensor-parallel-size"))
    ranks *= _number(engine.args, ("--pp", "--pp-size", "--pipeline-parallel-size"))
    if "--enable-dp-attention" not in map(_flag, engine.args):
        ranks *= _number(engine.args, ("--dp", "--dp-size", "--data-parallel-size"))
    return sizes.parse(offload.memory) // 10**9 // ranks


def _number(args: Sequence[str], names: Iterable[str]) -> int:
    """Return the number that a flag has; 1 where it is not given. As in engines, the last one wins."""
    known, found, words = frozenset(names), 1, iter(args)
    for word in words:
        if _flag(word) in known:
            value = word.partition("=")[2] or next(words, "")
            found = int(value) if re.fullmatch("[1-9][0-9]{0,4}", value) else 1
    return found


def _flag(arg: str) -> str:
    return arg.partition("=")[0].replace("_", "-")


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
