"""Decides which replicas to warm, and if an answer proves warmth.

The proof sends two requests that share nothing but the Tier-1 prefix, so that cached tokens of the second request can
only be the prefix:

    warm-up   tools + system + user "a"     computes the prefix and leaves it in cache
    probe     tools + system + user "b"     must report cached tokens >= floor(shared / step) * step

`shared` is the number of tokens that both requests begin with, by the engine's own tokenizer, `step` the granularity at
which its cache can hit (vLLM: `cache_hit_alignment_tokens`, else the block size). A prefix shorter than one step
cannot be cached at all: nothing is proven then, and the message says so.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from promptgroup_contract.table import Prompt
from promptgroup_operator.adapters import identity
from promptgroup_operator.api.prompt_group import FailurePolicy, PromptGroupSpec, WarmTier
from promptgroup_operator.base import durations
from promptgroup_operator.warmth.ranks import NOT_REACHED
from promptgroup_operator.world.engine_facts import Measured, copy_rate
from promptgroup_operator.world.snapshot import NO_CONTAINER, Pod
from promptgroup_operator.world.warming import WARM, Evidence, Outcome, WarmReason, Warmup

PROBE_TAIL = 64
"""Tokens that a probe may have after the prefix if the engine has no tokenizer API: user text and template."""


SELF_MENDING = frozenset({WarmReason.STARTING, WarmReason.WARMING, WarmReason.RESTARTED})
"""Reasons of a cold replica that becomes warm by itself: they are no fault."""


FINAL = frozenset({WarmReason.CACHING_OFF, WarmReason.NOT_REPORTED, WarmReason.REFUSED, WarmReason.RANKS_DIFFER})
"""Causes that waiting does not remove: `Proceed` applies at once."""


def judge_evidence(
    evidence: Evidence, off: str, *, any_tier: bool = False, uncached: bool = False, bare: bool = False
) -> Outcome:
    """Judge if the evidence proves that the prefix is in cache, and return it with the measurements of the engine.

    `off` is the argument that disables the engine's prefix caching. `cached` excludes tokens that a KV tier copied for
    the probe, unless `any_tier` is set. `uncached` says that the group asks for engines without prefix caching, `bare`
    that it declares no prompt.

    caching  cached_tokens  cached >= needed      outcome
    (bare: any)                                   NoPromptDeclared
    (uncached: any)                               CachingOffByChoice
    off      any            any                   PrefixCachingDisabled
    on, ?    none           -                     CachedTokensNotReported
    on, ?    n              (rank not reached)    PrefixNotCached
    on, ?    n              needed = 0            PrefixShorterThanBlock
    on, ?    n              yes                   PrefixCached
    on, ?    n              no                    PrefixNotCached
    """
    shared = evidence.shared_tokens
    if shared is None:
        shared = max(0, evidence.prompt_tokens - PROBE_TAIL)
    measured = Measured(evidence.kv_tokens, evidence.prefill_rate, shared, copy_rate(evidence.copied, evidence.seconds))
    if bare:
        text = "the engine answers, and has nothing to keep warm for this group, which has no spec.prompt"
        return Outcome(WarmReason.BARE, text, replace(measured, prefix_tokens=0))
    if uncached:
        text = "the engine answers, and has nothing to keep warm: spec.cache.prefixCaching is Disabled"
        return Outcome(WarmReason.UNCACHED, text, measured)
    if evidence.caching is False:
        return Outcome(
            WarmReason.CACHING_OFF,
            f"the engine runs with prefix caching turned off: remove {off} from spec.engine, or set "
            "spec.cache.prefixCaching: Disabled if it shall be off",
            measured,
        )
    if evidence.cached_tokens is None:
        return Outcome(
            WarmReason.NOT_REPORTED,
            "the engine reports cached tokens neither in usage nor in metrics, so its warmth cannot be proven",
            measured,
        )
    if not evidence.reached:
        return Outcome(WarmReason.NOT_CACHED, NOT_REACHED, measured)
    needed = shared // evidence.step * evidence.step
    cached = evidence.cached_tokens - (0 if any_tier else evidence.tiered)
    result = f"{cached} of {shared} prefix tokens are in cache{_brought(evidence, any_tier=any_tier)}"
    if needed == 0:
        return Outcome(
            WarmReason.SHORT,
            f"the prefix has {shared} tokens, fewer than the {evidence.step} that the engine caches at a time, so it "
            "cannot be cached; a longer prompt can",
            measured,
        )
    if cached >= needed:
        return Outcome(WarmReason.PROVEN, result, measured)
    if evidence.tiered:
        return Outcome(
            WarmReason.NOT_CACHED,
            f"{result}, {needed} are expected in the GPU's memory: give the cache more of it, or accept a prefix "
            "that comes from a KV tier (warmup.tier: Any)",
            measured,
        )
    return Outcome(
        WarmReason.NOT_CACHED,
        f"{result}, {needed} are expected: the engine evicts the prefix (cache too small) or does not share it "
        "(salted)",
        measured,
    )


def _brought(evidence: Evidence, *, any_tier: bool) -> str:
    """Return the part of the message about KV tiers: the tier that had the prefix, and the time of its copy."""
    if evidence.tiered:
        return f", {evidence.tiered} of them in a KV tier" if any_tier else f" and {evidence.tiered} in a KV tier"
    if not evidence.copied:
        return ""
    return f": in the GPU's memory, where {evidence.copied} were copied from a KV tier in {evidence.seconds:.2g} s"


def warmups(pods: Sequence[Pod], prompt: Prompt, spec: PromptGroupSpec, traffic: float = 0.0) -> list[Warmup]:
    """Return the warm-ups that the pods of one revision need.

    A pod that has a container on record and not the condition is warmed again: only the condition tells a proof from a
    replica that was let through.

    Args:
        pods: those of one revision.
        prompt: that of the revision.
        spec: of the group.
        traffic: requests a second of a guest, by which those of one host are ordered.
    """
    timeout, adapter = durations.parse(spec.warmup.timeout), identity.decode(prompt.adapter)
    proven = Counter(cohort(pod) for pod in pods if pod.is_warm and pod.warm is not None and pod.warm.reason in WARM)
    return [
        Warmup(
            pod=pod.name,
            uid=pod.uid,
            container_id=pod.container_id,
            address=pod.address,
            engine=spec.engine.type,
            model=spec.model,
            prompt=prompt,
            adapter=adapter,
            loads=adapter if spec.is_guest else None,
            cohort=cohort(pod),
            shared=spec.is_guest,
            traffic=traffic,
            proven=proven[cohort(pod)],
            proceed=spec.warmup.failure_policy is FailurePolicy.PROCEED,
            any_tier=spec.warmup.tier is WarmTier.ANY,
            uncached=spec.caches_nothing,
            deadline=pod.containers_ready_since + timeout,
            ranks=pod.ranks,
        )
        for pod in pods
        if _is_reachable(pod) and not pod.is_warm and pod.containers_ready_since is not None
    ]


def cohort(pod: Pod) -> str:
    """Return the cohort of a replica: those with the same prompt and pod template fail for one cause."""
    return f"{pod.fingerprint} {pod.settings}"


def _is_reachable(pod: Pod) -> bool:
    return not pod.deleting and pod.containers_ready and pod.container_id != NO_CONTAINER and pod.address != ""


def settle(outcome: Outcome, job: Warmup, now: datetime) -> Outcome:
    """Return the outcome for the replica under the failure policy."""
    if outcome.reason in (WarmReason.UNTRUSTED, WarmReason.NO_ADAPTER):
        return outcome  # it can serve no request of the group
    if not outcome.warm and job.proceed and (outcome.reason in FINAL or now >= job.deadline):
        message = f"the replica serves cold, as warmup.failurePolicy allows: {outcome.message}"
        return Outcome(WarmReason.PROCEEDED, message, outcome.measured)
    return outcome


def stale_condition(pod: Pod) -> Outcome | None:
    """Return the condition that must be written to the pod before anything else; None if the present one is valid.

    condition   warmed for     then
    True        this one       stands
    True        another        False: ContainerRestarted
    False       any            stands
    none        any            False: WaitingForContainers
    """
    status = pod.warm.status if pod.warm is not None else None
    if pod.deleting:
        return None
    if status == "True" and pod.warmed != pod.container_id:
        return Outcome(WarmReason.RESTARTED, "the engine's container restarted after it was warmed")
    if status is None:
        return Outcome(WarmReason.STARTING, "warm-up begins once the containers are ready")
    return None
