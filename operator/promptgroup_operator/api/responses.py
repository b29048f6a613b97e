"""The response cache of a group: which answers routers keep, for how long, and for whom."""

import enum
from datetime import timedelta
from math import ceil
from typing import Annotated

from pydantic import Field

from promptgroup_contract.table import CacheScope, ResponseCaching
from promptgroup_operator.api.model import ApiModel, Duration, rule, rules
from promptgroup_operator.api.semantic import NEEDS_EXACT_CACHE, SemanticSpec, semantic_of
from promptgroup_operator.base import durations, sizes


class ResponseCacheMode(enum.StrEnum):
    """The answers that routers keep."""

    OFF = "Off"
    EXACT = "Exact"


SHORTEST_TTL, LONGEST_TTL = timedelta(seconds=1), timedelta(days=7)


class ResponsesSpec(ApiModel):
    """The response cache: a request that was answered before gets the same answer, without an engine."""

    model_config = rules(
        rule(
            "duration(self.ttl) >= duration('1s') && duration(self.ttl) <= duration('168h')",
            "responses.ttl must be from 1s to 168h (a week)",
            ".ttl",
            holds=lambda responses: SHORTEST_TTL <= durations.parse(responses.ttl) <= LONGEST_TTL,
        ),
        rule(
            "duration(self.ttl) + duration(self.staleWhileRevalidate) <= duration('168h')",
            "responses.ttl and responses.staleWhileRevalidate must be at most 168h (a week) together",
            ".staleWhileRevalidate",
            holds=lambda responses: (
                durations.parse(responses.ttl) + durations.parse(responses.stale_while_revalidate) <= LONGEST_TTL
            ),
        ),
        NEEDS_EXACT_CACHE,
    )

    cache: ResponseCacheMode = ResponseCacheMode.OFF
    """Exact answers a request from the cache if an equal one was answered before: one with temperature 0, or with a
    seed where trustSeed is true, and without parts other than text. Off keeps nothing."""
    ttl: Duration = "1h"
    """Longest time for which an answer is kept, from 1s to 168h. A request can ask for less. Each answer is kept up to
    a tenth shorter, so that answers of one moment do not expire in one moment."""
    stale_while_revalidate: Duration = "0s"
    """Time beyond its ttl for which an answer is given at once from a router's memory, while an engine is asked for a
    new one (RFC 5861). Callers with limits, and clients that say max-age or ttl, get none of these."""
    max_bytes: Annotated[str, Field(max_length=8, pattern=sizes.PATTERN)] = "64Mi"
    """Most bytes of this group's answers that each router process keeps in memory, such as 64Mi."""
    scope: CacheScope = CacheScope.GROUP
    """With Group, all callers of the group share answers. With Caller, each has its own. Callers whose credentials only
    the engine checks never share answers."""
    trust_seed: bool = False
    """Set it to true if the group's engines give the same answer to the same request with the same seed, at any
    temperature. Engines that batch requests often do not."""
    semantic: SemanticSpec | None = None
    """The measurement of a semantic cache: routers count the questions that are similar to an earlier one. Only equal
    requests get one answer."""


def caching_of(spec: ResponsesSpec) -> ResponseCaching | None:
    """Return what routers keep; None for nothing."""
    if spec.cache is ResponseCacheMode.OFF:
        return None
    return ResponseCaching(
        ttl=ceil(durations.parse(spec.ttl).total_seconds()),
        stale=ceil(durations.parse(spec.stale_while_revalidate).total_seconds()),
        max_bytes=sizes.parse(spec.max_bytes),
        scope=spec.scope,
        trust_seed=spec.trust_seed,
        semantic=semantic_of(spec.semantic),
    )
