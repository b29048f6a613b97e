"""KV tiers of groups: what specs ask for, and what pods get for it."""

from typing import Any

from promptgroup_operator.engines import tiers
from promptgroup_operator.engines.dialects.pod_parts import PodParts
from support.builders import spec

LMCACHE = {"pool": {"type": "LMCache", "address": "kv.pools:5555"}}
MOONCAKE = {"pool": {"type": "Mooncake", "address": "kv.pools:50051"}}
MEMORY = {"offload": {"memory": "64Gi"}}
VOLUME = {"offload": {"memory": "64Gi", "claimName": "kv"}}


def parts(cache: dict[str, Any] | None, **engine: Any) -> PodParts:
    """What a pod gets for `spec.cache`, with some fields of `spec.engine`."""
    return tiers.parts(spec(cache=cache, engine=engine))
