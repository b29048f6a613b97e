"""Reports if the caches are effective, and if not, the cause of a low hit rate.

hit rate, compared   observation             reason
with the expected
low                  prompts differ from     PromptDrift: more replicas do not help
                     the declared prefix
low                  sessions do not fit     Thrashing: more replicas (or a KV pool) help; with a tier, a larger tier
not low, but low     a KV tier supplies      CarriedByTier: the GPUs' memory is too small, but needs no more replicas
without the tiers    evicted tokens
low                  a recent change         ScalingWave, Release: expected, it recovers
little is shared     a recent release        Release: every session starts anew with a new revision
low                  full, blocks evicted    Thrashing
little is shared     -                       LowSharing: grouping is not worthwhile
zero                 -                       PrefixCachingDisabled: with caching on, there would be some hits
not measured         -                       CachingOffByChoice: the group's spec disables caching
low                  none of these           Unexplained
otherwise                                    Healthy
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
"""Minimum share of repeated prompt tokens for which caching is worthwhile: publications give 20 to 30 %."""
FEW = 30
"""Minimum number of requests in a window for which a hit rate of zero is significant."""
FULL = 0.9
"""Share of the KV cache held by running requests from which on it counts as full."""
EVICTED = 0.5
"""Share of a guest's missed tokens that were evicted, above which eviction is reported as the cause."""
HEALTHY = "Healthy"
CARRIED = "CarriedByTier"
WELL = frozenset({"", HEALTHY, CARRIED})
"""Previous reasons after which the hit rate counts as low only below LOW; after others, it does below RECOVERED."""


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
"""Reason → status, for the reasons that stay in place while there are no requests, or no session begins."""


@dataclass(frozen=True, slots=True)
class Line:
    """A threshold of low hit rates: a share of the expected rate, or a multiple of the expected misses."""

    share: float
    times: float

    def of(self, may: float) -> float:
        """Return the threshold for an expected hit rate."""
        return max(self.share * may, 1 - self.times * (1 - may) - SLACK)


LOW: Final = Line(0.8, 2.0)
"""The multiple matters at high rates: with a tenth of all tokens missed instead of a fiftieth, prefill is five times
as much, although the hit rate seems high."""
RECOVERED: Final = Line(0.9, 1.5)
"""Threshold above which the hit rate is no longer low: between the two, the previous diagnosis stays (hysteresis)."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The condition CacheEffective."""

    status: bool | None
    """None means Unknown."""
    reason: str
    message: str


UNCACHED: Final = Diagnosis(
    None,
    WarmReason.UNCACHED.value,
    "spec.cache.prefixCaching is Disabled: nothing is looked for, and requests are balanced whatever they repeat",
)
"""The diagnosis of a group whose spec disables prefix caching: neither a fault nor a success."""


def diagnose(load: GroupLoad | None, wave: Cause | None, before: str, prompts: str = "") -> Diagnosis:
    """Return the state of the caches, with advice.

    Args:
        load: the observed load.
        wave: a change of the group itself that disturbs the caches.
        before: the reason that was reported last; empty at first.
        prompts: description of the cache that the prompts of all groups take; empty where engines serve one group.
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
    # Cached tokens are repeated tokens, even if there are too few sessions for an estimate.
    message = f"{_cached_share(engines, rate)}, of {_share(max(rate, may))} that repeat"
    low = rate < (LOW if before in WELL else RECOVERED).of(may)
    if low and drift is not None:
        return Diagnosis(False, "PromptDrift", f"{message}: {_where(drift)}")
    if load.clients is not None and load.clients.opening == 0 and before in STANDING:
        return Diagnosis(STANDING[before], before, f"{message}; no session began, so the length of sessions is unknown")
    if low and (_outgrown(load) or (wave is None and caches_full(load))):
        # A wave does not cause this: a replica that joins adds more capacity than the moved sessions take.
        return Diagnosis(False, "Thrashing", _with_prompts(f"{message}: {_too_small(load)}", prompts))
    little = max(rate, may) < SHARED and (ceiling(load) is not None or rate < SHARED)
    # If little is shared, moved sessions cause no dip; but with a new revision all sessions begin anew.
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
    """Return the diagnosis of a sufficient hit rate, which may depend on a KV tier."""
    brought = _brought(engines)
    if brought >= TIERED and rate - brought < (RECOVERED if before == CARRIED else LOW).of(may):
        text = (
            "the GPUs' memory is too small for the live sessions, and the KV tier carries them: no replica is missing"
        )
        return Diagnosis(True, CARRIED, f"{result}: {text}")
    return Diagnosis(True, HEALTHY, result)


def _with_prompts(text: str, prompts: str) -> str:
    """Return a message with the share of the cache that prompts take, if it is given."""
    return f"{text}. On the fullest replica {prompts}" if prompts else text


def _too_small(load: GroupLoad) -> str:
    """Describe the capacity that is too small, and the remedy."""
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
    """Return the share of prompt tokens that were loaded from KV tiers."""
    return engines.tiered / engines.queries if engines.queries else 0.0


def _many(load: GroupLoad) -> bool:
    """Return True if the engines completed enough requests that an engine with caching would have had some hits."""
    return load.engines is not None and load.engines.requests * load.seconds >= FEW


def caches_full(load: GroupLoad) -> bool:
    """Return True if the caches evict tokens that are reused: sessions do not fit, or running requests fill them."""
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
    """Return True if most tokens that a guest's requests missed had been evicted, by any group on the same engines."""
    engines, clients, may = load.engines, load.clients, expected(load)
    if engines is None or clients is None or may is None:
        return False
    return sum(clients.evicted) > EVICTED * max(0.0, may * engines.queries - engines.hits)


def _idle(drift: PromptDrift | None, before: str) -> Diagnosis:
    """Return the diagnosis without lookups: the previous one stays, so that rare traffic does not change it."""
    text = "no request reached an engine"
    if drift is not None:
        return Diagnosis(False, "PromptDrift", f"{text}: {_where(drift)}")
    return Diagnosis(STANDING.get(before), before if before in STANDING else "NoTraffic", text)


def _alone(load: GroupLoad, engines: EngineLoad, rate: float, prompts: str) -> Diagnosis:
    """Return the diagnosis without the routers' statistics of prompts, from the engines' metrics alone."""
    message = _cached_share(engines, rate)
    if rate < LOW.share and caches_full(load):
        text = f"{message}: running requests fill the KV cache, so more replicas would help"
        return Diagnosis(False, "Thrashing", _with_prompts(text, prompts))
    return Diagnosis(None, "RoutersUnknown", f"{message}: no router reports which part of the prompts repeats")


def _cached_share(engines: EngineLoad, rate: float) -> str:
    """Describe the hit rate, and the part of it from KV tiers."""
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
