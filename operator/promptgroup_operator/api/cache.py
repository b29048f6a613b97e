"""`spec.cache` of a PromptGroup: whether engines cache, and the KV tiers behind their GPU memory."""

import enum
from typing import Annotated

from pydantic import Field

from promptgroup_operator.api.model import ApiModel, ObjectName, rule, rules

Address = Annotated[
    str,
    Field(
        min_length=3,
        max_length=261,
        pattern=r"^([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?|\[[0-9a-fA-F:.]+\]):[1-9][0-9]{0,4}$",
    ),
]
"""Host and port; an IPv6 address in brackets."""


class OffloadSpec(ApiModel):
    """The engine's own tiers: main memory, and a volume behind it."""

    memory: Annotated[str, Field(max_length=6, pattern=r"^[1-9][0-9]{0,3}Gi$")]
    """Main memory of each replica for KV that its GPU evicts, over all GPUs of the replica, such as 64Gi. The engine's
    container needs as much beside what it takes anyway."""
    claim_name: ObjectName | None = None
    """PersistentVolumeClaim whose volume is a tier behind the memory. All replicas mount it, so its access mode is
    ReadWriteMany. No engine deletes anything there: bound it by the storage, or by a job of yours."""


class PoolType(enum.StrEnum):
    """The program that holds a pool."""

    LMCACHE = "LMCache"
    MOONCAKE = "Mooncake"


class Transport(enum.StrEnum):
    """The way in which a pool's blocks travel."""

    TCP = "TCP"
    RDMA = "RDMA"


class PoolSpec(ApiModel):
    """A KV store outside of the engines, which several of them share."""

    model_config = rules(
        rule(
            "self.transport == 'TCP' || self.type == 'Mooncake'",
            "cache.pool.transport is RDMA, which engines use to a pool of type Mooncake only: remove it",
            ".transport",
            holds=lambda pool: pool.transport is Transport.TCP or pool.type is PoolType.MOONCAKE,
        ),
    )

    type: PoolType
    """LMCache is its multi-process server, one on each node. Mooncake is Mooncake Store."""
    address: Address
    """Host and port where engines reach the pool: LMCache's server (a Service with `internalTrafficPolicy: Local` leads
    to the one of the node), or Mooncake's master. Whoever reaches it can read and forge KV: let the engines alone."""
    monitor: Address | None = None
    """Host and port of the pool's HTTP side, by which the operator knows whether it is there: a headless Service leads
    to all of its servers. Without it nobody looks."""
    transport: Transport = Transport.TCP
    """Transport of the blocks of a pool of type Mooncake. RDMA needs devices in the engine's resources."""


class PrefixCaching(enum.StrEnum):
    """The choice if engines look for the beginning of a prompt in their caches."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class CacheSpec(ApiModel):
    """KV tiers behind the engines' GPU memory. Warm still means in GPU memory, unless warmup.tier says otherwise."""

    model_config = rules(
        rule(
            "has(self.offload) || has(self.pool) || self.prefixCaching == 'Disabled'",
            "cache has neither offload nor pool: name a tier, or remove cache",
            holds=lambda cache: (
                cache.offload is not None or cache.pool is not None or cache.prefix_caching is PrefixCaching.DISABLED
            ),
        ),
        rule(
            "self.prefixCaching == 'Enabled' || !(has(self.offload) || has(self.pool))",
            "cache.prefixCaching is Disabled, so that no engine would look into offload or pool: remove one of the two",
            ".prefixCaching",
            holds=lambda cache: (
                cache.prefix_caching is PrefixCaching.ENABLED or (cache.offload is None and cache.pool is None)
            ),
        ),
    )

    prefix_caching: PrefixCaching = PrefixCaching.ENABLED
    """Disabled is for prompts that share so little that looking for them costs more than it finds: engines are started
    without prefix caching, replicas serve without a proof of warmth, and each request goes to the replica with the
    fewest requests (routing.policy RoundRobin: to the next one)."""
    offload: OffloadSpec | None = None
    """The engine's own tiers."""
    pool: PoolSpec | None = None
    """A store that engines share."""


class TierName(enum.StrEnum):
    """A place where KV is kept."""

    GPU = "GPU"
    MEMORY = "Memory"
    VOLUME = "Volume"
    POOL = "Pool"
    ARGS = "EngineArgs"


class TierStatus(ApiModel):
    """A tier that is on."""

    tier: TierName
    """GPU, Memory, Volume, Pool, or EngineArgs for what spec.engine.args set up."""
    capacity: str | None = None
    """Capacity: tokens of the GPU's memory and bytes of main memory, in each replica; bytes of a pool's memory."""
    hit_rate: str | None = None
    """Share of prompt tokens that it brought over the last minutes, where engines tell their tiers apart."""
    source: str | None = None
    """PersistentVolumeClaim of a volume, type and address of a pool, or the argument that sets tiers up."""


class CacheStatus(ApiModel):
    """The KV tiers of the group."""

    tiers: list[TierStatus]
    """Tiers that are on, the nearest first."""
    gpu_hit_rate: str | None = None
    """Share of prompt tokens found in the GPU's memory over the last minutes."""
    tier_hit_rate: str | None = None
    """Share of prompt tokens that the other tiers brought over the last minutes."""
    copy_tokens_per_second: Annotated[int, Field(ge=0)] | None = None
    """Tokens a second that a warm-up copied from a tier, of the slowest replica; absent until one did."""
    prefill_tokens_per_second: Annotated[int, Field(ge=0)] | None = None
    """Tokens a second that a replica computes: what the copy is to be compared with; absent until it is measured."""
