"""Values of warm-ups and refreshes: the work to be done on a replica, its engine's responses, and the outcome."""

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import Prompt
from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.world.engine_facts import UNKNOWN, Measured
from promptgroup_operator.world.snapshot import ContainerId, LastSeen, PodCondition, Reading, Spent

NO_FINGERPRINT: Final = Fingerprint("")
"""The revision of a refresh that belongs to none."""


class WarmReason(enum.StrEnum):
    """The reason why a replica is warm or not, as reason of its condition."""

    PROVEN = "PrefixCached"
    SHORT = "PrefixShorterThanBlock"
    UNCACHED = "CachingOffByChoice"
    BARE = "NoPromptDeclared"
    EVICTED = "PrefixEvicted"
    PRESSED = "PrefixEvictedUnderPressure"
    PROCEEDED = "ProceededWithoutProof"
    STARTING = "WaitingForContainers"
    WARMING = "Warming"
    RESTARTED = "ContainerRestarted"
    CACHING_OFF = "PrefixCachingDisabled"
    NOT_CACHED = "PrefixNotCached"
    NOT_REPORTED = "CachedTokensNotReported"
    REFUSED = "WarmupRefused"
    UNREACHABLE = "EngineUnreachable"
    UNTRUSTED = "EngineNotTrusted"
    RANKS_DIFFER = "DataParallelRanksDiffer"
    NO_ADAPTER = "AdapterNotLoaded"
    NO_PROMPT = "PromptTextMissing"


WARM = frozenset(
    {
        *(WarmReason.PROVEN, WarmReason.SHORT, WarmReason.UNCACHED, WarmReason.BARE),
        *(WarmReason.EVICTED, WarmReason.PRESSED),
    }
)
"""Reasons of a warm replica. An evicted prefix is included, since the refresh that detects it recomputes it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a warm-up or a refresh."""

    reason: WarmReason
    message: str
    measured: Measured = UNKNOWN

    @property
    def warm(self) -> bool:
        """True if the replica may serve as warm."""
        return self.reason in WARM


@dataclass(frozen=True, slots=True)
class Warmup:
    """One warm-up to run."""

    pod: str
    uid: str
    container_id: ContainerId
    address: str
    engine: EngineType
    model: str
    prompt: Prompt
    cohort: str
    """Its prompt and pod template, shared with the replicas that start together. A cohort is warmed in waves."""
    proven: int
    """Replicas of its cohort that were proven warm when it was planned."""
    proceed: bool
    """The failure policy is Proceed."""
    deadline: datetime
    """Time after which the failure policy applies."""
    any_tier: bool = False
    """True if a prefix that comes from a KV tier counts."""
    uncached: bool = False
    """True if the group asks for engines without prefix caching, so that there is nothing to prove."""
    shared: bool = False
    """True if the replica belongs to another group, so that its condition does not refer to this prompt."""
    traffic: float = 0.0
    """The group's requests per second, for replicas of another group: the busiest guest is warmed first."""
    ranks: int = 1
    """Data-parallel ranks of its engine, each of which is warmed and proven."""
    adapter: Adapter | None = None
    """The LoRA adapter that is a part of the prefix; None for the model itself."""
    loads: Adapter | None = None
    """The adapter that the engine must load before; None where it has it from its start, or where there is none."""

    @property
    def subject(self) -> tuple[ContainerId, str]:
        """The container and the cohort: several prompts may be warmed on one container."""
        return self.container_id, self.cohort


NOTHING_SPENT = Spent(0, 0)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The engine's answers to the two requests of a proof."""

    shared_tokens: int | None
    """Tokens of the prefix that both requests have in common; None if the engine has no tokenizer endpoint."""
    prompt_tokens: int
    """Tokens of the probe's prompt."""
    cached_tokens: int | None
    """Tokens of the probe served from cache; None when the engine does not report it."""
    step: int
    """Granularity of a cache hit in tokens."""
    caching: bool | None
    """True if the engine reports that prefix caching is on; None when it does not report it."""
    kv_tokens: int = 0
    """Capacity of the KV cache in tokens; 0 when the engine does not report it."""
    prefill_rate: int = 0
    """Prefill rate of the warm-up request in tokens per second; 0 when it was not cold, or too short to measure."""
    tiered: int = 0
    """Those of `cached_tokens` that came from a KV tier, as far as the engine reports it."""
    copied: int = 0
    """Tokens of the warm-up request that came from a KV tier."""
    seconds: float = 0.0
    """Time of the warm-up request."""
    spent: Spent = NOTHING_SPENT
    ranks: int = 0
    """Data-parallel ranks that the engine's metrics distinguish; 0 when they name none."""
    reached: bool = True
    """False if the rank that the requests addressed received none of them."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """One refresh to run."""

    pod: str
    uid: str
    container_id: ContainerId
    address: str
    engine: EngineType
    model: str
    prompt: Prompt
    prefix: int
    """Tokens of the prefix."""
    needed: int
    """Minimum number of the prefix's tokens that must be cached."""
    condition: PodCondition
    """The replica's current condition."""
    last_seen: LastSeen
    any_tier: bool = False
    """True if tokens that come from a KV tier count."""
    fingerprint: Fingerprint = NO_FINGERPRINT
    """The revision whose prompt is refreshed."""
    shared: bool = False
    """True if the replica belongs to another group, so that its condition does not refer to this prompt."""
    crowd: int = 0
    """Tokens of all prefixes that are warm on the replica, if they are more than this one."""
    ranks: int = 1
    """Data-parallel ranks of the engine, each of which is refreshed."""
    adapter: Adapter | None = None
    """The LoRA adapter that is a part of the prefix; None for the model itself."""
    loads: Adapter | None = None
    """The adapter that the engine must have loaded, as for a warm-up."""


@dataclass(frozen=True, slots=True)
class RefreshAnswer:
    """The engine's answer to a refresh."""

    reading: Reading
    """The engine's counters before it."""
    cached: int | None
    """Cached prompt tokens, in the GPU's memory only unless any tier counts; None when they are not reported."""
    then: int | None
    """Cached prompt tokens at the end: from a second request, if the first one reported too few."""
    spent: Spent
    copied: int = 0
    """Tokens of the first request that came from a KV tier and do not count."""
