"""KV tiers behind the GPU's memory: the parts of a pod for `spec.cache`, and its validation. Does no I/O.

The settings of each engine's tiers are in its dialect.
"""

from promptgroup_operator.api.cache import TierName, TierStatus
from promptgroup_operator.api.prompt_group import EngineSpec, PromptGroupSpec
from promptgroup_operator.base import sizes
from promptgroup_operator.engines.dialects.pod_parts import NOTHING, ManualTier, PodParts, too_old
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.world.load import TierReach

GATE = "await-pool"
"""Name of the init container that waits for the pool: an engine that starts without it exits."""


def parts(spec: PromptGroupSpec) -> PodParts:
    """Return the parts of a pod for the tiers of a spec that is valid by the CRD and by `problem`."""
    if spec.cache is None:
        return NOTHING
    dialect = DIALECTS[spec.engine.type]
    return dialect.caching_off_parts if spec.caches_nothing else dialect.tiers(spec)


def manual_tier(engine: EngineSpec) -> ManualTier | None:
    """Return the tier that a user's own engine settings configure; None if they configure none."""
    dialect = DIALECTS[engine.type]
    setting = dialect.manual_setting(engine)
    return dialect.manual_tier(engine, setting) if setting else None


def reach(spec: PromptGroupSpec) -> TierReach:
    """Return the replicas that can load from a group's tiers; a tier set up by arguments counts as per replica."""
    cache = spec.cache
    if spec.caches_nothing or (cache is None and manual_tier(spec.engine) is None):
        return TierReach.NONE
    if not DIALECTS[spec.engine.type].metrics.tells_tiers:
        return TierReach.UNSEEN
    if cache is None:
        return TierReach.REPLICA
    volume = cache.offload is not None and cache.offload.claim_name is not None
    return TierReach.SHARED if cache.pool is not None or volume else TierReach.REPLICA


def tiers_on(spec: PromptGroupSpec, kv_tokens: int) -> list[TierStatus]:
    """Return the tiers of a group, the nearest first; empty if there is only the GPU's memory.

    Args:
        spec: the group's spec.
        kv_tokens: tokens that the GPU's memory of one replica holds; 0 when unknown.
    """
    statuses = []
    offload = spec.cache.offload if spec.cache is not None else None
    if offload is not None:
        statuses.append(TierStatus(tier=TierName.MEMORY, capacity=offload.memory))
        if offload.claim_name is not None:
            statuses.append(TierStatus(tier=TierName.VOLUME, source=offload.claim_name))
    pool = spec.cache.pool if spec.cache is not None else None
    if pool is not None:
        statuses.append(TierStatus(tier=TierName.POOL, source=f"{pool.type.value} {pool.address}"))
    manual = manual_tier(spec.engine) if spec.cache is None else None
    if manual is not None:
        size = f"{manual.size / 2**30:.4g}Gi" if manual.size else None
        statuses.append(TierStatus(tier=TierName.ARGS, capacity=size, source=manual.setting))
    tokens = f"{kv_tokens} tokens" if kv_tokens else None
    return [TierStatus(tier=TierName.GPU, capacity=tokens), *statuses] if statuses else []


def problem(spec: PromptGroupSpec, limit: int | None) -> str:
    """Return the problem that prevents the tiers of a spec from working, with the remedy; empty without one.

    Args:
        spec: the group's spec, which is valid by the CRD.
        limit: bytes of memory that the engine's container may use; None for no limit.
    """
    cache, engine = spec.cache, spec.engine
    if cache is None:
        return ""
    dialect, manual = DIALECTS[engine.type], manual_tier(engine)
    if spec.caches_nothing:
        if manual is None:
            return ""
        return (
            f"spec.cache.prefixCaching is Disabled, and {manual.setting} in spec.engine sets up a KV tier: remove one "
            "of the two"
        )
    setting = dialect.manual_setting(engine)
    if setting:
        both = "set up KV tiers" if manual is not None else "need the one KV connector that an engine has"
        return f"spec.cache and {setting} in spec.engine both {both}: remove one of the two"
    old = too_old(engine.image, engine.type, dialect.image, dialect.tiers_since)
    if old:
        return old
    if cache.offload is not None and limit is not None and limit <= sizes.parse(cache.offload.memory):
        return (
            f"spec.cache.offload.memory is {cache.offload.memory}, and spec.engine.resources.limits.memory is not "
            "larger: raise the limit, because the engine needs memory of its own as well"
        )
    return dialect.tiers_problem(spec)
