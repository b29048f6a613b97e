"""Says if the caches do their work, and if not why: a falling hit rate is explained, not just followed.

hit rate             cache                   then
of what may be found
low                  prompts leave the       PromptDrift: replicas do not help
                     declared prefix
low                  sessions do not fit     Thrashing: more replicas (or a KV pool) help; behind a tier, a larger one
else, low in the     a KV tier brings back   CarriedByTier: the GPUs are too small, and no replica is needed for it
GPUs' memory alone   what they evict
low                  a change just before    ScalingWave, Release: expected, it recovers
little is shared     a release just before   Release: sessions begin anew with each revision
low                  full, blocks evicted    Thrashing
little is shared     -                       LowSharing: grouping does not pay
none                 -                       PrefixCachingDisabled: an engine that caches finds something
not looked for       -                       CachingOffByChoice: the group asks for it
low                  none of these           Unexplained
else                                         Healthy
"""

from dataclasses import dataclass
from typing import Final

from promptgroup_operator.sizing.max_hit_rate import SLACK, ceiling, expected
from promptgroup_operator.sizing.model import TIERED, fit
from promptgroup_operator.sizing.prompt_drift import BYTES_A_TOKEN, find_drift
from promptgroup_operator.world.load import EngineLoad, GroupLoad, PromptDrift, TierReach
from promptgroup_operator.world.sizing_history import Cause
from promptgroup_operator.world.warming import WarmReason

SHARED = 0.25
"""Share of prompt tokens that repeat below which caching does not pay: 20 to 30 % in what is published."""
FEW = 30
"""Requests of a window below which it is chance that nothing at all was found."""
FULL = 0.9
"""Share of the KV cache held by running requests from which it is full."""
EVICTED = 0.5
"""Share of a guest's missing tokens from which on their eviction is the cause."""
HEALTHY = "Healthy"
CARRIED = "CarriedByTier"
WELL = frozenset({"", HEALTHY, CARRIED})
"""Reasons before which hits are low only below LOW."""


CACHING_OFF: Final = WarmReason.CACHING_OFF.value
STANDING: Final = {
    HEALTHY: True,
    CARRIED: True,
    "Thrashing": False,
    "PromptDrift": False,
    "LowSharing": False,
    CACHING_OFF: False,
    "Unexplained": None,
}
"""Reason → status of what holds on while nobody asks for anything, or no session begins."""


@dataclass(frozen=True, slots=True)
class Line:
    """Below it hits are low: too small a share of what may be found, or too many times the misses that must be."""

    share: float
    times: float

    def of(self, may: float) -> float:
        """Return the hit rate at the line."""
        return max(self.share * may, 1 - self.times * (1 - may) - SLACK)


LOW: Final = Line(0.8, 2.0)
"""A tenth of all tokens missing instead of a fiftieth is five times the prefill, at a hit rate that looks well."""
RECOVERED: Final = Line(0.9, 1.5)
"""From here hits are low no longer: between the two what was said stands."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Condition CacheEffective."""

    status: bool | None
    """None is unknown."""
    reason: str
    message: str


UNCACHED: Final = Diagnosis(
    None,
    WarmReason.UNCACHED.value,
    "spec.cache.prefixCaching is Disabled: nothing is looked for, and requests are balanced whatever they repeat",
)
"""The diagnosis of a group that asks for engines without prefix caching: neither a fault nor a success."""


def diagnose(load: GroupLoad | None, wave: Cause | None, before: str, prompts: str = "") -> Diagnosis:
    """Return the state of the caches, and what can be done about it.

    Args:
        load: what was observed.
        wave: a change of the group's own that disturbs the caches.
        before: the reason that was told last; empty at first.
        prompts: what the prompts of all groups take of a replica's cache; empty where engines serve one group.
    """
    engines = load.engines if load is not None else None
    if load is not None and load.early and engines is None:
        return Diagnosis(None, "AwaitingMetrics", "the first load sample has not arrived yet")
    if load is None or load.stale or engines is None:
        return Diagnosis(
            None, "FailedGetMetrics", (load.stale if load is not None else "") or "no engine has been read yet"
        )
    rate, may, drift = engines.hit_rate, expected(load), find_drift(load)
    if not engines.hits and _many(load) and (may is None or may >= SHARED) and drift is None:
        text = (
            "engines found no prompt token in cache: check that prefix caching is on and that nothing salts the cache"
        )
        return Diagnosis(False, CACHING_OFF, text)
    if rate is None:
        return _idle(drift, before)
    if may is None:
        return _alone(load, engines, rate, prompts)
    # what was found repeats, also while the sessions are too few to tell
    message = f"{_found(engines, rate)}, of {_share(max(rate, may))} that repeat"
    low = rate < (LOW if before in WELL else RECOVERED).of(may)
    if low and drift is not None:
        return Diagnosis(False, "PromptDrift", f"{message}: {_where(drift)}")
    if load.clients is not None and load.clients.opening == 0 and before in STANDING:
        return Diagnosis(STANDING[before], before, f"{message}; no session began, so the length of sessions is unknown")
    if low and (_outgrown(load) or (wave is None and caches_full(load))):
        # no wave makes sessions outgrow the caches: a replica that joins brings more room than what moves takes
        return Diagnosis(False, "Thrashing", _with_prompts(f"{message}: {_too_small(load)}", prompts))
    little = max(rate, may) < SHARED and (ceiling(load) is not None or rate < SHARED)
    # where so little repeats, what moves is no dip; but of a revision that begins all sessions open
    if wave is not None and ((low or little) if wave is Cause.RELEASE else (low and not little)):
        return Diagnosis(
            None, wave.value, f"{message}: this is expected after a change of the group and recovers by itself"
        )
    if little:
        text = "requests share too little for a group to pay: serve them without a group, or share more of the prompt"
        return Diagnosis(False, "LowSharing", f"{message}: {text}")
    if low:
        text = (
            "prompts begin with the declared prefix and sessions fit: check that clients send the whole history and "
            "keep their session key"
        )
        return Diagnosis(None, "Unexplained", f"{message}: {text}")
    return _well(engines, rate, may, before, message)


def _well(engines: EngineLoad, rate: float, may: float, before: str, result: str) -> Diagnosis:
    """Return the diagnosis of hits that are well, which they may be for a KV tier."""
    brought = _brought(engines)
    if brought >= TIERED and rate - brought < (RECOVERED if before == CARRIED else LOW).of(may):
        text = (
            "the GPUs' memory is too small for the live sessions, and the KV tier carries them: no replica is missing"
        )
        return Diagnosis(True, CARRIED, f"{result}: {text}")
    return Diagnosis(True, HEALTHY, result)


def _with_prompts(text: str, prompts: str) -> str:
    """Return a message with what prompts take of the cache that is too small."""
    return f"{text}. On the fullest replica {prompts}" if prompts else text


def _too_small(load: GroupLoad) -> str:
    """Say what is too small, and what helps."""
    if load.tiers is TierReach.NONE:
        return "the KV cache is too small for the live sessions: more replicas or a KV pool would help"
    if load.tiers is TierReach.UNSEEN:
        return "the KV cache is too small for the live sessions: more replicas or a larger KV tier would help"
    if load.engines is None or _brought(load.engines) < TIERED:
        return (
            "the KV cache is too small for the live sessions, and the KV tier supplies none of what was evicted: "
            "check that the tier is reachable. More replicas would help"
        )
    if load.tiers is TierReach.SHARED:
        return "the KV tier, too, has lost what the live sessions need: a larger tier would help"
    return "the KV tier, too, has lost what the live sessions need: a larger tier or more replicas would help"


def _brought(engines: EngineLoad) -> float:
    """Return the share of prompt tokens that KV tiers brought."""
    return engines.tiered / engines.queries if engines.queries else 0.0


def _many(load: GroupLoad) -> bool:
    """Return True if the engines ended requests enough that an engine which caches would have found something."""
    return load.engines is not None and load.engines.requests * load.seconds >= FEW


def caches_full(load: GroupLoad) -> bool:
    """Return True if the caches evict what is needed again: sessions do not fit, or running requests fill them."""
    engines = load.engines
    evicts = engines is not None and (engines.usage >= FULL or bool(engines.preemptions))
    return evicts or _outgrown(load)


def _outgrown(load: GroupLoad) -> bool:
    """Return True if the live sessions do not fit."""
    if load.is_guest:
        return _evicts(load)
    engines, model = load.engines, fit(load)
    return engines is not None and model is not None and model.resident(engines.replicas) < 1


def _evicts(load: GroupLoad) -> bool:
    """Return True if most of what a guest's requests missed had been evicted: who fills the cache is not its own."""
    engines, clients, may = load.engines, load.clients, expected(load)
    if engines is None or clients is None or may is None:
        return False
    return sum(clients.evicted) > EVICTED * max(0.0, may * engines.queries - engines.hits)


def _idle(drift: PromptDrift | None, before: str) -> Diagnosis:
    """Return the diagnosis where no prompt was looked up: the latest one stands, as rare traffic changes nothing."""
    text = "no request reached an engine"
    if drift is not None:
        return Diagnosis(False, "PromptDrift", f"{text}: {_where(drift)}")
    return Diagnosis(STANDING.get(before), before if before in STANDING else "NoTraffic", text)


def _alone(load: GroupLoad, engines: EngineLoad, rate: float, prompts: str) -> Diagnosis:
    """Return the diagnosis without the routers' view of prompts: only what engines say by themselves."""
    message = _found(engines, rate)
    if rate < LOW.share and caches_full(load):
        text = f"{message}: running requests fill the KV cache, so more replicas would help"
        return Diagnosis(False, "Thrashing", _with_prompts(text, prompts))
    return Diagnosis(None, "RoutersUnknown", f"{message}: no router reports which part of the prompts repeats")


def _found(engines: EngineLoad, rate: float) -> str:
    """Say what was found, and what KV tiers brought of it."""
    tiered = _brought(engines)
    brought = f" ({_share(tiered)} brought from a KV tier)" if tiered >= TIERED else ""
    return f"{_share(rate)} of prompt tokens were found in cache{brought}"


def _where(drift: PromptDrift) -> str:
    at, length = drift.at // BYTES_A_TOKEN, drift.length // BYTES_A_TOKEN
    return (
        f"{_share(drift.share)} of the requests differ from the declared prompt from byte {drift.at} of "
        f"{drift.length} on (about token {at} of {length}); more replicas do not help: move what "
        "changes with each request behind that text"
    )


def _share(value: float) -> str:
    return f"{value:.0%}"
