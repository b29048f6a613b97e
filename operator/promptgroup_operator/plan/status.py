"""Plan and world → conditions and status fields, and the events that tell of a change.

condition         True when                                                     abnormal
Ready             the wanted revision serves, or the one before in its place
                  while it is rolled back, and every wanted replica, at least
                  one, is warm and routed, and no release is under way          False
Progressing       a release of a prompt or an engine is under way, replicas are
                  missing or draining                                           -
Degraded          something keeps the group from its wanted state               True
Stalled           somebody must act before the group can be Ready; else absent  True
Accepted          the spec can be acted on (no conflict, fingerprint holds)     False
ResolvedRefs      what the spec refers to exists                                False
PrefixWarm        every replica of the serving revision was proven warm         False
RouterProgrammed  the PromptRoute stands as wanted and has a replica            False
ScalingActive     the operator decides the number of replicas, and can          -
AbleToScale       the operator decides it; its reason names a window that holds -
ScalingLimited    bounds or policies hold the number of replicas back           -
CacheEffective    what repeats in prompts is found in cache                     False
GatewayProgrammed a gateway uses the InferencePool that the replicas are in     False
GatewayLimits     fields of the group have no effect behind a gateway           True
CachePoolReady    every server of the group's KV pool answers and stores        False
AliasesServed     each alias of the model stands for it in the namespace        False
PromptsFit        prompts of a host and its guests leave sessions room          False
CacheTierUseful   KV tiers find what GPUs have lost, or would if there were any -
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from promptgroup_contract import names
from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_contract.table import Sleep
from promptgroup_operator.api.cache import TierName, TierStatus
from promptgroup_operator.base import timestamps
from promptgroup_operator.base.printable import in_line
from promptgroup_operator.engines import tiers
from promptgroup_operator.gateway.inference_pool import GatewayVerdict
from promptgroup_operator.guests import room
from promptgroup_operator.plan import validate
from promptgroup_operator.plan.desired import name
from promptgroup_operator.rollout.release import RevisionPhase, RevisionStep
from promptgroup_operator.sizing.diagnosis import Diagnosis
from promptgroup_operator.sizing.recommend import SizingDecision
from promptgroup_operator.warmth import warmup
from promptgroup_operator.warmth.warmup import SELF_MENDING
from promptgroup_operator.world import engine_facts
from promptgroup_operator.world.effects import Event
from promptgroup_operator.world.snapshot import GroupObject, Pod, Problem, RevisionState, World
from promptgroup_operator.world.warming import WarmReason

REFUSED, FAILED = "ObjectRefused", "WriteFailed"
"""Reasons of a group of which an object cannot be written: the API server does not take it; it may take it later."""
UNREAD = "ReadFailed"
"""Reason of a group of which an object cannot be read; what was read last is used meanwhile."""

MANY = 10**6
"""More replicas than any group has."""

NO_SPARE = "set rollout.maxSurge to 0 to let one replica leave before another one comes"
"""The way out for a change whose replica the scheduler finds no GPU for."""

REFERENCE_PROBLEMS = frozenset(
    {
        "PromptNotFound",
        "ToolsNotFound",
        "MessagesNotFound",
        "InvalidTools",
        "InvalidMessages",
        "EmptyPrompt",
        "HostNotFound",
        "HostWithoutReplicas",
        "KeysNotFound",
        "CredentialNotFound",
        "AuthorityNotFound",
    }
)
"""Problems of what the spec refers to, not of the spec itself."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition without its times."""

    type: str
    status: bool | None
    """None is unknown."""
    reason: str
    message: str


def rejected(world: World, problem: Problem, warm: Condition | None = None) -> list[Condition]:
    """Return the conditions of a group whose spec cannot be acted on; what already serves goes on.

    Args:
        world: what the pass saw.
        problem: why the spec cannot be acted on.
        warm: `prefix_warm` of the revision that is kept meanwhile; None where there is none.
    """
    accepted = Condition("Accepted", True, "Accepted", "the spec is valid")
    resolved = Condition("ResolvedRefs", True, "ResolvedRefs", "all objects that the spec refers to exist")
    if problem.reason in REFERENCE_PROBLEMS:
        resolved = Condition("ResolvedRefs", False, problem.reason, problem.message)
    elif problem.reason == UNREAD:
        resolved = Condition("ResolvedRefs", None, problem.reason, problem.message)
    elif problem.reason != FAILED:
        accepted = Condition("Accepted", False, problem.reason, problem.message)
    if any(revision.ready for revision in world.revisions):
        routed = Condition("RouterProgrammed", True, "EarlierRevision", "the previous revision keeps serving")
    else:
        routed = Condition("RouterProgrammed", False, problem.reason, "there is no replica to route to")
    return [
        Condition("Ready", False, problem.reason, problem.message),
        Condition("Progressing", False, problem.reason, "the group makes no progress until this problem is fixed"),
        Condition("Degraded", True, problem.reason, problem.message),
        accepted,
        resolved,
        warm or Condition("PrefixWarm", False, problem.reason, "no replica can be warmed for this prompt"),
        routed,
    ]


def conditions(
    world: World,
    plan: Mapping[Fingerprint, RevisionStep],
    target: Fingerprint,
    size: SizingDecision,
    cache: Diagnosis | None = None,
    *,
    serving: Fingerprint,
    ready: Mapping[Fingerprint, int],
    waits: Problem | None,
    sleep: Sleep | None = None,
) -> list[Condition]:
    """Return the conditions of a group that is acted on.

    Args:
        world: what the pass saw.
        plan: fingerprint → step.
        target: fingerprint that the group wants to serve.
        serving: fingerprint that messages speak of: the target, or what serves in its place after a roll-back.
        size: replicas wanted of it.
        cache: whether its caches do their work; None where that is not observed.
        ready: fingerprint → slots that the route has Ready.
        waits: what the release of the target or of its engine waits for, or why it was rolled back; None when none is
            under way.
        sleep: what routers are told of a group that may have no replica.
    """
    revision = _find(world, serving)
    asleep = _asleep(world, size, sleep) if serving in ready else None  # else no router knows what to hold
    routed = any(ready.get(revision_step.fingerprint, 0) for revision_step in plan.values() if revision_step.weight > 0)
    mark = plan[target].rolled_back
    back = mark.why if mark is not None else None
    serves = sum(
        min(slots, _available(world, fingerprint))
        for fingerprint, slots in ready.items()
        if plan[fingerprint].stands_in
    )
    missing = max(0, size.value - serves)
    enough = serves > 0 if world.host is not None else missing == 0  # a guest has lost no GPU
    count = _count(serving, ready, size)
    released = waits if back is None else None
    cause = _cause(revision)
    fault = cause if cause is not None and cause.reason not in SELF_MENDING else None
    if fault is not None and waits is not None and "Insufficient " in fault.message and world.group.spec.rollout.surges:
        fault = Problem(fault.reason, f"{fault.message}; {NO_SPARE}")
    if back is not None:
        fault = Problem("RolledBack", f"{short(target)}: {back.reason}: {back.message}")
    return [
        Condition("Accepted", True, "Accepted", "the spec is valid"),
        Condition("ResolvedRefs", True, "ResolvedRefs", "all objects that the spec refers to exist"),
        _ready(Problem("Warm", count), fault, released, served=routed and enough)
        if size.value
        else asleep or _at_zero(world, sleep),
        _progressing(fault, released or _moving(revision, plan, serving, missing, size), count),
        _degraded(world.unread or fault or _stuck(world, plan, serving)),
        prefix_warm(world, plan[serving], size, ready),
        Condition("RouterProgrammed", True, "Programmed", "routers can send requests to a warm replica")
        if routed
        else Condition("RouterProgrammed", True, "Asleep", "routers hold requests until a replica is warm")
        if asleep is not None
        else Condition(
            "RouterProgrammed", False, "NoReplica", "no replica is warm, so routers have none to send requests to"
        ),
        Condition("ScalingActive", size.active, size.reason, size.message),
        *_sizing(size, cache),
        *_pool(world),
        *_aliases(world),
        *_room(world),
    ]


def engine_change(world: World, target: Fingerprint, settings: str) -> Problem | None:
    """Return how many replicas of the revision that serves run an earlier engine than that of the spec, if any do.

    Args:
        world: what the pass saw.
        target: fingerprint of the revision; it follows the group's engine.
        settings: digest of the group's engine settings. A replica of which nobody knows them is none to be replaced.
    """
    revision = _find(world, target)
    pods = revision.pods if revision is not None else ()
    there = [pod for pod in pods if not pod.deleting]
    old = sum(pod.settings not in ("", settings) for pod in there)
    if not old:
        return None
    count = f"{old} of {len(there)} replicas of {short(target)} run an earlier engine than that of spec.engine"
    return Problem("EngineChanging", f"{count}; each leaves when a new one is warm")


def gateway(programmed: GatewayVerdict | None, limits: GatewayVerdict | None) -> list[Condition]:
    """Return the conditions of a group with a gateway. `Ready` follows none: routers serve the group as well."""
    result = {"GatewayProgrammed": programmed, "GatewayLimits": limits}
    return [
        Condition(kind, gateway_verdict.status, gateway_verdict.reason, gateway_verdict.message)
        for kind, gateway_verdict in result.items()
        if gateway_verdict is not None
    ]


def tier(verdict: Diagnosis | None) -> list[Condition]:
    """Return whether a KV tier does something for the group, or would; none while nothing is known."""
    return [Condition("CacheTierUseful", verdict.status, verdict.reason, verdict.message)] if verdict else []


def _pool(world: World) -> list[Condition]:
    """Return whether the KV pool of a group that has one is there; engines serve on without it."""
    pool = world.group.spec.cache.pool if world.group.spec.cache is not None else None
    if pool is None or world.host is not None:
        return []
    effect = "engines continue to serve and compute what only the pool held; engines that start now wait for the pool"
    pool_answers = world.pool_answers
    if pool_answers is None:
        message = "spec.cache.pool.monitor is not set, so the operator does not check the pool"
        return [Condition("CachePoolReady", None, "NotMonitored", message)]
    if pool_answers.servers == 0:
        message = f"{pool.monitor} resolves to no server: {effect}"
        return [Condition("CachePoolReady", False, "PoolUnreachable", message)]
    if pool_answers.failed:
        server, why = min(pool_answers.failed.items())
        message = (
            f"{len(pool_answers.failed)} of {pool_answers.servers} servers do not answer ({server}: {why}): {effect}"
        )
        return [Condition("CachePoolReady", False, "PoolUnreachable", message)]
    if pool_answers.stuck:
        lost = "accepts blocks but stores none of them: it has lost the store behind it. Restart the server"
        return [Condition("CachePoolReady", False, "PoolStoresNothing", f"{pool_answers.stuck[0]} {lost}")]
    return [Condition("CachePoolReady", True, "PoolReady", f"all {pool_answers.servers} servers of the pool answer")]


def _aliases(world: World) -> list[Condition]:
    """Return whether the aliases of a group's model stand for it; none without aliases. The group serves either way."""
    listed = world.group.spec.model_aliases
    if not listed:
        return []
    taken = validate.taken_aliases(world)
    if not taken:
        return [Condition("AliasesServed", True, "AliasesServed", f"spec.model is also served as {', '.join(listed)}")]
    text = "; ".join(f"{alias} is a name of PromptGroup {other}" for alias, other in taken.items())
    message = f"{text}: remove it from spec.modelAliases, or from the other group"
    return [Condition("AliasesServed", False, "AliasTaken", message)]


def _room(world: World) -> list[Condition]:
    """Return whether the prompts of a host and its guests leave sessions room; none for a group that shares nothing."""
    if not world.prompts:
        return []
    fullest = room.fullest(_replicas(world))
    if fullest is None:
        return []
    message = room.told(fullest, world.prompts)
    if not room.is_full(fullest):
        return [Condition("PromptsFit", True, "PromptsFit", message)]
    out = "keep guests on fewer replicas (spec.placement.replicas), add replicas, or give engines more KV memory"
    return [Condition("PromptsFit", False, "PromptsOutgrowCache", f"{message}: {out}")]


def prompts_take(world: World) -> str:
    """Return what prompts take on the replica that they fill most; empty for a group that shares none."""
    fullest = room.fullest(_replicas(world)) if world.prompts else None
    return room.told(fullest, world.prompts) if fullest is not None else ""


def _replicas(world: World) -> Sequence[Pod]:
    """Return the replicas that serve a group: a guest's are all of its host's."""
    return world.host.pods if world.host is not None else [pod for revision in world.revisions for pod in revision.pods]


def _available(world: World, fingerprint: Fingerprint) -> int:
    """Return the replicas that a revision's Deployment counts as available; MANY while it has no status.

    `kubectl rollout status` and the group then say the same: the Deployment's controller counts a pod a moment after
    its readiness gate turns True.
    """
    revision = _find(world, fingerprint)
    live = world.live.get(("Deployment", revision.deployment)) if revision is not None else None
    status = live.get("status", {}) if live is not None else {}
    return int(status.get("availableReplicas", 0)) if "observedGeneration" in status else MANY


def _sizing(size: SizingDecision, cache: Diagnosis | None) -> list[Condition]:
    facts = []
    for kind, aspect in (("AbleToScale", size.able), ("ScalingLimited", size.limited), ("CacheEffective", cache)):
        if aspect is not None:
            facts.append(Condition(kind, aspect.status, aspect.reason, aspect.message))
    return facts


def _ready(warm: Problem, fault: Problem | None, released: Problem | None, *, served: bool) -> Condition:
    if served and released is None:
        return Condition("Ready", True, warm.reason, warm.message)
    why = fault or released or Problem("Warming", warm.message)
    return Condition("Ready", False, why.reason, why.message)


def _asleep(world: World, size: SizingDecision, sleep: Sleep | None) -> Condition | None:
    """Return the condition Ready of a group that sleeps; None for one that does not.

    Nothing is missing while nobody asks, so that such a group is Ready for whoever waits until it is.
    """
    if size.value or sleep is None or not sleep.since or not sleep.wake_timeout:
        return None
    whose = f"PromptGroup {world.host.name}, whose replicas serve this group, sleeps" if world.host is not None else ""
    if world.host is None and size.reason != "Asleep":
        return None
    took = f"; the latest start took {sleep.start} s" if sleep.start else ""
    return Condition(
        "Ready",
        True,
        "Asleep",
        f"{whose or 'the group sleeps'} since {sleep.since}: a request wakes it, and routers hold requests for up to "
        f"{sleep.wake_timeout} s meanwhile{took}",
    )


def _at_zero(world: World, sleep: Sleep | None) -> Condition:
    """Return the condition Ready of a group that wants no replica and is woken by nobody's request."""
    if world.host is not None and sleep is not None and sleep.woken:
        text = f"PromptGroup {world.host.name}, whose replicas serve this group, starts one since {sleep.woken}"
        return Condition("Ready", False, "Warming", text)
    if sleep is not None and sleep.since and (world.host is not None or world.group.spec.sizing is not None):
        return Condition("Ready", False, "RevisionComing", "routers are not told of the prompt yet")
    if sleep is not None and sleep.wake_timeout:
        held = f"routers hold requests for {sleep.wake_timeout} s (routing.wakeTimeout), until somebody raises it"
        return Condition("Ready", False, "ScaledToZero", f"spec.replicas is 0: {held}")
    text = "spec.replicas is 0: nothing serves the group, also no group that shares its engines"
    return Condition("Ready", False, "ScaledToZero", text)


def _progressing(fault: Problem | None, moves: Problem | str, count: str) -> Condition:
    if fault is not None:
        return Condition("Progressing", False, fault.reason, "the group makes no progress until this fault is fixed")
    if isinstance(moves, Problem):
        return Condition("Progressing", moves.reason != "Inconclusive", moves.reason, moves.message)
    return Condition("Progressing", moves != "", moves or "Settled", count)


NOT_BY_ITSELF = ("CrashLoopBackOff", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError")
"""Words of Kubernetes for a container that starts when somebody mends something, and not before."""


def stalled(facts: Sequence[Condition]) -> list[Condition]:
    """Return that a group waits for somebody, in the word that kstatus knows; none where time alone may do.

    What a spec refers to may be applied after it, and what could not be written is tried again.
    """
    result = {fact.type: fact for fact in facts}
    ready, progress, cause = (result.get(kind) for kind in ("Ready", "Progressing", "Degraded"))
    if ready is None or cause is None or not cause.status or ready.status or (progress and progress.status):
        return []
    accepted = result.get("Accepted")
    waits = cause.reason == "PodNotStarting" and any(word in cause.message for word in NOT_BY_ITSELF)
    if not waits and (accepted is None or accepted.status is not False):
        return []
    return [Condition("Stalled", True, cause.reason, cause.message)]


def _degraded(fault: Problem | None) -> Condition:
    if fault is None:
        return Condition("Degraded", False, "AsExpected", "nothing keeps the group from its desired state")
    return Condition("Degraded", True, fault.reason, fault.message)


def _stuck(world: World, plan: Mapping[Fingerprint, RevisionStep], serving: Fingerprint) -> Problem | None:
    """Return a pod of another revision that does not start: it serves nobody, and takes a place of the surge."""
    for revision in sorted(world.revisions, key=lambda item: item.fingerprint):
        pod = next((pod for pod in revision.pods if pod.trouble and not pod.deleting), None)
        if pod is not None and revision.fingerprint != serving:
            phase = plan[revision.fingerprint].phase.value
            subject = f"pod {pod.name} of {short(revision.fingerprint)} ({phase}) does not start: {pod.trouble}"
            return Problem("PodNotStarting", subject)
    return None


def _moving(
    revision: RevisionState | None,
    plan: Mapping[Fingerprint, RevisionStep],
    serving: Fingerprint,
    missing: int,
    size: SizingDecision,
) -> str:
    """Return what still changes while no release is under way, as a reason; empty at rest."""
    if missing or (revision is not None and revision.replicas < plan[serving].replicas):
        return "ReplicasWarming"
    if any(revision_step.phase is RevisionPhase.RETIRING for revision_step in plan.values()):
        return "RevisionRetiring"
    if plan[serving].due < size.value:
        return "ReplicasShared"
    return "ReplicasDraining" if revision is not None and revision.replicas > plan[serving].replicas else ""


def prefix_warm(world: World, step: RevisionStep, size: SizingDecision, ready: Mapping[Fingerprint, int]) -> Condition:
    """Return whether the prefix of a revision is proven warm; the message says where no proof is possible.

    Args:
        world: what the pass saw.
        step: of the revision that serves.
        size: replicas wanted of it.
        ready: fingerprint → slots that the route has Ready.
    """
    revision = _find(world, step.fingerprint)
    pods = revision.pods if revision is not None else ()
    cause, count = _cause(revision), _count(step.fingerprint, ready, size)
    missing = step.replicas - ready.get(step.fingerprint, 0)
    value = {pod.warm.reason: pod.warm.message for pod in pods if pod.is_warm and pod.warm is not None}
    if WarmReason.PROCEEDED in value:
        return Condition("PrefixWarm", False, WarmReason.PROCEEDED, value[WarmReason.PROCEEDED])
    if missing > 0:
        reason, message = (cause.reason, cause.message) if cause is not None else (WarmReason.STARTING, count)
        return Condition("PrefixWarm", False, reason, message)
    for reason in (WarmReason.PRESSED, WarmReason.EVICTED, WarmReason.SHORT, WarmReason.UNCACHED, WarmReason.BARE):
        if reason in value:
            return Condition("PrefixWarm", True, reason, value[reason])
    return Condition("PrefixWarm", True, WarmReason.PROVEN, count)


def _find(world: World, fingerprint: Fingerprint) -> RevisionState | None:
    return next((revision for revision in world.revisions if revision.fingerprint == fingerprint), None)


def _count(fingerprint: Fingerprint, ready: Mapping[Fingerprint, int], size: SizingDecision) -> str:
    """Return how many replicas of a revision are warm, for a message."""
    count = f"{ready.get(fingerprint, 0)} of {size.value} replicas of {short(fingerprint)} are warm"
    return f"{count}; {sum(ready.values())} replicas are warm over all revisions" if len(ready) > 1 else count


def _cause(revision: RevisionState | None) -> Problem | None:
    """Return why not all replicas of a revision serve; None when all do."""
    if revision is not None and revision.failure:
        return Problem("ReplicaFailure", revision.failure)
    return _worst(revision.pods) if revision is not None else None


def _worst(pods: Sequence[Pod]) -> Problem | None:
    """Return why a replica does not serve, in the words of the worst one; None when all do."""
    ordered = sorted(pods, key=lambda pod: pod.name)
    problems = [why_cold(pod) for pod in ordered if not pod.deleting and (pod.settling or not pod.is_warm)]
    return max(problems, key=lambda problem: problem.reason not in SELF_MENDING, default=None)


def why_cold(pod: Pod) -> Problem:
    """Return why a replica does not serve."""
    if pod.trouble:
        return Problem("PodNotStarting", pod.trouble)
    if pod.settling:
        text = "the replica is warm; it serves once it has been Ready for long enough that gateways have seen it"
        return Problem(WarmReason.STARTING, text)
    stale = warmup.stale_condition(pod)
    if stale is not None:
        return Problem(stale.reason, stale.message)
    if pod.warm is not None and pod.warm.status != "True":
        return Problem(pod.warm.reason, pod.warm.message)
    return Problem(WarmReason.STARTING, "the engine has the prefix in cache, but its container is not ready")


def build(
    world: World,
    facts: Sequence[Condition],
    plan: Mapping[Fingerprint, RevisionStep],
    ready: Mapping[Fingerprint, int],
    *,
    target: Fingerprint | None,
    wanted: int,
    now: datetime,
) -> dict[str, Any]:
    """Return the whole status object. Times of conditions that did not turn are kept."""
    group = world.group
    facts = [*facts, *stalled(facts)]
    replicas = len({pod.uid for revision in world.revisions for pod in revision.pods if not pod.deleting})
    warm = ready.get(target, 0) if target is not None else 0
    status: dict[str, Any] = {
        "observedGeneration": group.generation,
        "conditions": [_condition(group, fact, now) for fact in sorted(facts, key=lambda fact: fact.type)],
        "replicas": replicas,
        # an autoscaler would take the surge of a release for replicas that the load needs
        "scaleReplicas": min(replicas, wanted),
        "readyReplicas": sum(ready.values()),
        "warmReplicas": warm,
        "warm": f"{warm}/{wanted}",
        "revisions": [
            _revision(world, item, plan, ready)
            for item in sorted(world.revisions, key=lambda revision: revision.created, reverse=True)
        ],
    }
    status |= _cache(world, accepted=all(fact.status for fact in facts if fact.type == "Accepted"))
    if target is not None:
        # what autoscalers count: replicas of all revisions, since a release would else look like a small group
        counted = {"selector": f"{names.LABEL_GROUP}={group.key.name}"} if world.host is None else {}
        status |= {"fingerprint": target, "revision": short(target), **counted}
    return _at_rest(world, status)


def _cache(world: World, *, accepted: bool) -> dict[str, Any]:
    """Return the KV tiers of a group that has more than the GPU's memory; a spec that is refused changes nothing."""
    if not accepted:
        return {key: item for key, item in world.group.status.items() if key == "cache"}
    measured = engine_facts.together(
        engine_facts.of_replica(pod.measured, pod.ranks)
        for revision in world.revisions
        for pod in revision.pods
        if pod.is_warm
    )
    tier_statuses = tiers.tiers_on(world.group.spec, measured.kv_tokens)
    if not tier_statuses:
        return {}
    before = world.group.status.get("cache", {})
    items = {key: item for key, item in before.items() if key.endswith("HitRate")}
    rates = {"copyTokensPerSecond": measured.copy_rate, "prefillTokensPerSecond": measured.prefill_rate}
    items |= {key: rate for key, rate in rates.items() if rate}
    standing = {(item.get("tier"), item.get("source")): item for item in before.get("tiers", [])}
    return {"cache": {"tiers": [_tier(world, tier_status, standing) for tier_status in tier_statuses], **items}}


def _tier(world: World, tier_status: TierStatus, standing: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a tier as the status has it; what is unknown now is as it stands."""
    model_dump: dict[str, Any] = tier_status.model_dump(mode="json", exclude_none=True)
    before = standing.get((model_dump["tier"], model_dump.get("source")), {})
    if tier_status.tier is TierName.POOL:
        size = world.pool_answers.capacity if world.pool_answers is not None else 0
        capacity = f"{size / 2**30:.1f}Gi" if size else before.get("capacity")
        model_dump |= {"capacity": capacity} if capacity else {}
    return model_dump | ({"hitRate": before["hitRate"]} if "hitRate" in before else {})


HIT_RATE_STEP = 5
"""Percentage points by which the hit rate must differ to be written alone: under traffic its last digit never rests."""
MEASURED = frozenset(
    {"PromptsFit", "ScalingActive", "AbleToScale", "ScalingLimited", "CacheEffective", "CacheTierUseful"}
)
"""Conditions whose messages carry measured numbers: while status and reason stand, a message is not written alone."""


def _at_rest(world: World, status: dict[str, Any]) -> dict[str, Any]:
    """Return the status to write. Figures that never rest are written with other changes, or when they differ by much.

    Unknown is not zero: the last known figures stand.
    """
    standing: str | None = world.group.status.get("hitRate")
    calm = {**status, "conditions": [_unmoved(world.group, condition) for condition in status["conditions"]]}
    calm |= {"hitRate": standing} if standing is not None else {}
    figures = _tier_rates(world) if "cache" in status else {}
    by_tier = _rates_by_tier(world)
    near = (
        _is_near(world.hit_rate, standing)
        and all(_is_near(rate, status["cache"].get(key)) for key, rate in figures.items())
        and all(
            _is_near(by_tier.get(item["tier"]), item.get("hitRate"))
            for item in (status["cache"]["tiers"] if figures else ())
        )
    )
    if near and world.group.status == calm:
        return calm
    shown = _percent(world.hit_rate) or standing
    written = {**status, "hitRate": shown} if shown is not None else {**status}
    if figures:
        tiers_told = [
            item | ({"hitRate": _percent(rate)} if (rate := by_tier.get(item["tier"])) is not None else {})
            for item in status["cache"]["tiers"]
        ]
        rates = {key: _percent(rate) for key, rate in figures.items()}
        written["cache"] = {**status["cache"], **rates, "tiers": tiers_told}
    return written


_TIER_SOURCES = {
    TierName.MEMORY: ("memory",),
    TierName.VOLUME: ("volume",),
    TierName.POOL: ("peer", "pool"),
    TierName.ARGS: ("memory", "volume", "peer", "pool"),
}
"""Where tokens were, in a reading's words, by the tier that it stands for."""


def _rates_by_tier(world: World) -> dict[str, float]:
    """Return the hit rate of each tier; empty where no engine tells its tiers apart."""
    tier_hit_rates = world.tier_hit_rates
    if not tier_hit_rates:
        return {}
    return {
        tier.value: sum(tier_hit_rates.get(source, 0.0) for source in sources)
        for tier, sources in _TIER_SOURCES.items()
    }


def _tier_rates(world: World) -> dict[str, float]:
    """Return the hit rate by tier, by the field of its status; empty while unknown."""
    if world.hit_rate is None or world.tier_hit_rate is None:
        return {}
    return {"gpuHitRate": world.hit_rate - world.tier_hit_rate, "tierHitRate": world.tier_hit_rate}


def _percent(rate: float | None) -> str | None:
    return f"{round(100 * rate)}%" if rate is not None else None


def _is_near(rate: float | None, standing: str | None) -> bool:
    """Return True if a figure is unknown, or differs by little from the one that is written."""
    digits = (standing or "").removesuffix("%")
    return rate is None or (digits.isdecimal() and abs(round(100 * rate) - int(digits)) < HIT_RATE_STEP)


def _unmoved(group: GroupObject, condition: dict[str, Any]) -> dict[str, Any]:
    """Return the condition with the message that stands, where only measured numbers differ."""
    old = _old(group, condition["type"])
    same = all(old.get(key) == condition[key] for key in ("status", "reason"))
    return {**condition, "message": old["message"]} if same and condition["type"] in MEASURED else condition


def _revision(
    world: World,
    revision: RevisionState,
    plan: Mapping[Fingerprint, RevisionStep],
    ready: Mapping[Fingerprint, int],
) -> dict[str, Any]:
    step = plan.get(revision.fingerprint)
    deployed = {"deployment": name(world.group, revision.fingerprint)} if world.host is None else {}
    return {
        "fingerprint": revision.fingerprint,
        **deployed,
        "replicas": revision.replicas,
        "warm": sum(pod.is_warm for pod in revision.pods),
        "ready": ready.get(revision.fingerprint, 0),
        "weight": step.weight if step is not None else revision.weight,
        "phase": step.phase.value if step is not None else "",
    }


def unreadable(known: Mapping[str, Any], generation: int, message: str, now: datetime) -> dict[str, Any]:
    """Return the status of a group whose stored spec this version cannot read: `Accepted` turns False, all else stays.

    Args:
        known: the status as last written.
        generation: generation of the group.
        message: the field and the rule that it breaks.
        now: the time.
    """
    text = f"the stored spec is invalid: {message}; apply the group again"
    condition = _with_condition(known, Condition("Accepted", False, "InvalidSpec", text), generation, now)
    return {**condition, "observedGeneration": generation}


def unread(known: Mapping[str, Any], message: str, now: datetime) -> dict[str, Any]:
    """Return the status of a group of which nothing can be decided: `Degraded` turns True, all else stays.

    Args:
        known: the status as last written.
        message: what cannot be read, in the API server's words.
        now: the time.
    """
    degraded = Condition("Degraded", True, UNREAD, message)
    return _with_condition(known, degraded, known.get("observedGeneration", 0), now)


def _with_condition(known: Mapping[str, Any], fact: Condition, generation: int, now: datetime) -> dict[str, Any]:
    result = {condition["type"]: condition for condition in known.get("conditions", [])}
    old, word = result.get(fact.type, {}), _word(fact.status)
    result[fact.type] = {
        "type": fact.type,
        "status": word,
        "reason": fact.reason,
        "message": in_line(fact.message),
        "lastTransitionTime": old["lastTransitionTime"] if old.get("status") == word else timestamps.rfc3339(now),
        "observedGeneration": generation,
    }
    return {**known, "conditions": [result[kind] for kind in sorted(result)]}


def _condition(group: GroupObject, fact: Condition, now: datetime) -> dict[str, Any]:
    status = _word(fact.status)
    old = _old(group, fact.type)
    turned = old.get("status") != status
    return {
        "type": fact.type,
        "status": status,
        "reason": fact.reason,
        "message": in_line(fact.message),
        "lastTransitionTime": timestamps.rfc3339(now) if turned else old["lastTransitionTime"],
        "observedGeneration": group.generation,
    }


def _word(status: bool | None) -> str:
    return "Unknown" if status is None else str(status)


def last_reason(group: GroupObject, kind: str) -> str:
    """Return the reason of a condition as it was last written; empty when there is none."""
    reason: str = _old(group, kind).get("reason", "")
    return reason


def _old(group: GroupObject, kind: str) -> Mapping[str, Any]:
    return next((condition for condition in group.status.get("conditions", []) if condition["type"] == kind), {})


RELEASING = frozenset(
    {"RevisionComing", "RevisionGrowing", "StepPause", "TooFewRequests", "Undecided", "NoMetrics", "Paused"}
    | {"AwaitsPromotion", "EngineChanging", "Inconclusive"}
)
"""Reasons of a group that is not Ready because a release is under way: no fault."""
PROCEEDING = RELEASING - {"NoMetrics", "Paused", "AwaitsPromotion", "Inconclusive"}
"""Those of them that wait for nobody. A release goes to and fro between them: as events they would use up what a group
may emit (25 at once), and its end would have none. What ends a step has an event of its own, with its figures."""

EXPECTED = frozenset({"Warming", "ScaledToZero", "NoPool", "NoParent"})
"""Reasons that are steps on the way, or what the user asked for."""

EVENT_CONDITIONS = (
    "Ready",
    "Degraded",
    "PrefixWarm",
    "ScalingActive",
    "CacheEffective",
    "CachePoolReady",
    "GatewayProgrammed",
    "AliasesServed",
    "PromptsFit",
)
"""Conditions whose change is worth an event. Of several that change for one reason, the first tells it: its message is
that of the cause, where later ones may say only what follows from it."""


def events(group: GroupObject, facts: Sequence[Condition]) -> list[Event]:
    """Return an event for every reason of a condition that changed and is worth one: a cause is told once a pass."""
    result: dict[str, Event] = {}
    for fact in sorted((condition for condition in facts if condition.type in EVENT_CONDITIONS), key=_rank):
        old = _old(group, fact.type)
        if not _notable(fact, old.get("status"), old.get("reason")):
            continue
        bad = (
            fact.status
            if fact.type == "Degraded"
            else fact.status is False and fact.reason not in {*SELF_MENDING, *RELEASING, *EXPECTED}
        ) or fact.reason == WarmReason.PRESSED
        event = Event("Warning" if bad else "Normal", fact.reason, f"{fact.type}={_word(fact.status)}: {fact.message}")
        if fact.reason not in result or (bad and result[fact.reason].type == "Normal"):
            result[fact.reason] = event
    return list(result.values())


def _rank(fact: Condition) -> int:
    return EVENT_CONDITIONS.index(fact.type)


def _notable(fact: Condition, status: str | None, reason: str | None) -> bool:
    """Return True if a change of a condition is worth an event."""
    if fact.type == "ScalingActive":  # its reasons follow the load: what is told of them is the change of size
        return status in {"True", "Unknown"} and fact.status is False and fact.reason != "FixedReplicas"
    if fact.type in ("CacheEffective", "CachePoolReady", "PromptsFit"):
        return reason != fact.reason and (fact.status is False or (status == "False" and fact.status is True))
    if status is None and not fact.status and fact.type == "Degraded":
        return False  # a new group that is not degraded is no news
    if fact.type == "Ready" and reason in RELEASING and fact.reason in PROCEEDING:
        return False
    return (status, reason) != (_word(fact.status), fact.reason)


def rescaled(before: int | None, size: SizingDecision) -> list[Event]:
    """Return the change of a number of replicas that the operator decides, in HorizontalPodAutoscaler's words."""
    if before is None or before == size.value or not size.active:
        return []
    return [Event("Normal", "SuccessfulRescale", f"New size: {size.value}; reason: {size.reason}: {size.message}")]


def moved(group: GroupObject, plan: Mapping[Fingerprint, RevisionStep], serving: Fingerprint) -> list[Event]:
    """Return that sessions of a revision which goes move to the one that serves before they are over, once."""
    before = {revision["fingerprint"]: revision.get("phase") for revision in group.status.get("revisions", [])}
    return [
        Event("Normal", "SessionsMoved", f"sessions of {short(fingerprint)} move to {short(serving)}: {step.moves}")
        for fingerprint, step in plan.items()
        if step.moves and before.get(fingerprint) != step.phase
    ]


def passed(step: Problem | None) -> list[Event]:
    """Return the figures by which a release passed a step: its conditions speak of the next step already."""
    return [Event("Normal", step.reason, step.message)] if step is not None else []
