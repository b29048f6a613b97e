"""Plan and world → conditions and status fields, and the events that report a change.

condition         True when                                                     abnormal
Ready             the desired revision serves, or the previous one while the
                  desired one is rolled back; every desired replica, at least
                  one, is warm and routed; and no release is in progress        False
Progressing       a release of a prompt or an engine is under way, replicas are
                  missing or draining                                           -
Degraded          something keeps the group from its wanted state               True
Stalled           a user must act before the group can be Ready; else absent    True
Accepted          the spec can be acted on (no conflict, fingerprint holds)     False
ResolvedRefs      what the spec refers to exists                                False
PrefixWarm        every replica of the serving revision was proven warm         False
RouterProgrammed  the PromptRoute is as desired and has a replica               False
ScalingActive     the operator decides the number of replicas, and can          -
AbleToScale       the operator decides it; the reason may name a window         -
ScalingLimited    bounds or policies limit the number of replicas               -
CacheEffective    repeated parts of prompts are served from cache               False
GatewayProgrammed a gateway uses the InferencePool that the replicas are in     False
GatewayLimits     fields of the group have no effect behind a gateway           True
CachePoolReady    every server of the group's KV pool answers and stores        False
AliasesServed     each alias refers to the group's model in the namespace       False
PromptsFit        prompts of a host and its guests leave memory for sessions    False
CacheTierUseful   KV tiers supply evicted tokens, or would if there were any    -
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from promptgroup_contract import names
from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_contract.table import Sleep
from promptgroup_operator.api.cache import TierName, TierStatus
from promptgroup_operator.api.starts import SHOWN
from promptgroup_operator.base import timestamps
from promptgroup_operator.base.printable import in_line
from promptgroup_operator.engines import tiers
from promptgroup_operator.gateway.inference_pool import GatewayVerdict
from promptgroup_operator.guests import room
from promptgroup_operator.leaving_nodes import evacuation
from promptgroup_operator.plan import validate
from promptgroup_operator.plan.desired import name
from promptgroup_operator.rollout.release import RevisionPhase, RevisionStep
from promptgroup_operator.sizing.diagnosis import Diagnosis
from promptgroup_operator.sizing.recommend import SizingDecision
from promptgroup_operator.starts import start_times
from promptgroup_operator.starts.phase import all_starting, summary
from promptgroup_operator.warmth import warmup
from promptgroup_operator.warmth.warmup import SELF_MENDING
from promptgroup_operator.weights import prefetch
from promptgroup_operator.world import engine_facts
from promptgroup_operator.world.effects import Event
from promptgroup_operator.world.snapshot import GroupObject, Pod, Problem, RevisionState, World
from promptgroup_operator.world.warming import WarmReason

REFUSED, FAILED = "ObjectRefused", "WriteFailed"
"""Reasons when an object of a group cannot be written: the API server rejects it; the write failed and is retried."""
UNREAD = "ReadFailed"
"""Reason when an object of a group cannot be read; its last state is used meanwhile."""

MANY = 10**6
"""More replicas than any group has."""

NO_SPARE = "set rollout.maxSurge to 0 to let one replica leave before another one comes"
"""The remedy for a change whose replica cannot be scheduled because there is no free GPU."""

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
"""Problems of objects that the spec refers to, not of the spec itself."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition without its times."""

    type: str
    status: bool | None
    """None means Unknown."""
    reason: str
    message: str


def rejected(world: World, problem: Problem, warm: Condition | None = None) -> list[Condition]:
    """Return the conditions of a group whose spec cannot be applied; what already serves continues to serve.

    Args:
        world: the observed state.
        problem: the reason why the spec cannot be applied.
        warm: `prefix_warm` of the revision that serves meanwhile; None where there is none.
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


NO_FAULT = SELF_MENDING | {evacuation.NODE_LEAVING}
"""Reasons of a replica that does not serve, and that need no action."""


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
    """Return the conditions of a group whose spec is applied.

    Args:
        world: the observed state.
        plan: fingerprint → step.
        target: fingerprint that the group wants to serve.
        serving: fingerprint that messages refer to: the target, or the revision that serves after a roll-back.
        size: its desired replicas.
        cache: diagnosis of its caches; None where they are not observed.
        ready: fingerprint → number of slots that are Ready in the route.
        waits: the reason why the release of the target or of its engine waits, or was rolled back; None without a
            release.
        sleep: the sleep that is published to routers for a group that may have no replica.
    """
    revision = _find(world, serving)
    asleep = _asleep(world, size, sleep) if serving in ready else None  # else no router has its revision
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
    fault = cause if cause is not None and cause.reason not in NO_FAULT else None
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
    """Return the problem that replicas of the serving revision run an earlier engine than the spec's; None if none do.

    Args:
        world: the observed state.
        target: fingerprint of the revision; it follows the group's engine.
        settings: digest of the group's engine settings. A replica with unknown settings is not replaced.
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
    """Return the conditions of a group with a gateway. `Ready` does not depend on them: routers serve the group too."""
    result = {"GatewayProgrammed": programmed, "GatewayLimits": limits}
    return [
        Condition(kind, gateway_verdict.status, gateway_verdict.reason, gateway_verdict.message)
        for kind, gateway_verdict in result.items()
        if gateway_verdict is not None
    ]


def tier(verdict: Diagnosis | None) -> list[Condition]:
    """Return the condition CacheTierUseful; none while it is unknown."""
    return [Condition("CacheTierUseful", verdict.status, verdict.reason, verdict.message)] if verdict else []


def _pool(world: World) -> list[Condition]:
    """Return the condition CachePoolReady of a group with a KV pool; engines continue to serve without the pool."""
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
    """Return the condition AliasesServed; none without aliases. The group serves in either case."""
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
    """Return the condition PromptsFit of a host or a guest; none for a group that shares no replicas."""
    if not world.prompts:
        return []
    fullest = room.fullest(_replicas(world))
    if fullest is None:
        return []
    message = room.describe(fullest, world.prompts)
    if not room.is_full(fullest):
        return [Condition("PromptsFit", True, "PromptsFit", message)]
    out = "keep guests on fewer replicas (spec.placement.replicas), add replicas, or give engines more KV memory"
    return [Condition("PromptsFit", False, "PromptsOutgrowCache", f"{message}: {out}")]


def prompts_take(world: World) -> str:
    """Describe the memory that prompts take on the fullest replica; empty for a group that shares no replicas."""
    fullest = room.fullest(_replicas(world)) if world.prompts else None
    return room.describe(fullest, world.prompts) if fullest is not None else ""


def _replicas(world: World) -> Sequence[Pod]:
    """Return the replicas that serve a group: a guest's are all of its host's."""
    return world.host.pods if world.host is not None else [pod for revision in world.revisions for pod in revision.pods]


def _available(world: World, fingerprint: Fingerprint) -> int:
    """Return the available replicas in the status of a revision's Deployment; MANY while it has no status.

    So the group agrees with `kubectl rollout status`: the Deployment's controller counts a pod shortly after its
    readiness gate turns True.
    """
    revision = _find(world, fingerprint)
    live = world.live.get((revision.workload, revision.deployment)) if revision is not None else None
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

    No replica is missing while there are no requests, so the group is Ready for any tool that waits for this condition.
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
    """Return the condition Ready of a group that wants no replica and is not asleep."""
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
"""Kubernetes' reasons of a container that does not start until a user fixes the cause."""


def stalled(facts: Sequence[Condition]) -> list[Condition]:
    """Return the condition Stalled, which kstatus evaluates, if a user must act; none if the problem may end by itself.

    For example, a referenced object may be applied later, and a failed write is retried.
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
    """Return the problem of a pod of another revision that does not start: it serves nothing and occupies the surge."""
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
    """Return the reason why the group still changes while there is no release; empty if it does not change."""
    if missing or (revision is not None and revision.replicas < plan[serving].replicas):
        return "ReplicasWarming"
    if any(revision_step.phase is RevisionPhase.RETIRING for revision_step in plan.values()):
        return "RevisionRetiring"
    if plan[serving].due < size.value:
        return "ReplicasShared"
    return "ReplicasDraining" if revision is not None and revision.replicas > plan[serving].replicas else ""


def prefix_warm(world: World, step: RevisionStep, size: SizingDecision, ready: Mapping[Fingerprint, int]) -> Condition:
    """Return the condition PrefixWarm of a revision; the message states where no proof is possible.

    Args:
        world: the observed state.
        step: the step of the serving revision.
        size: its desired replicas.
        ready: fingerprint → number of slots that are Ready in the route.
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
    """Return the number of warm replicas of a revision, for a message."""
    count = f"{ready.get(fingerprint, 0)} of {size.value} replicas of {short(fingerprint)} are warm"
    return f"{count}; {sum(ready.values())} replicas are warm over all revisions" if len(ready) > 1 else count


def _cause(revision: RevisionState | None) -> Problem | None:
    """Return the reason why not all replicas of a revision serve; None when all do."""
    if revision is not None and revision.failure:
        return Problem("ReplicaFailure", revision.failure)
    return _worst(revision.pods) if revision is not None else None


def _worst(pods: Sequence[Pod]) -> Problem | None:
    """Return the most severe reason why a replica does not serve; None when all do."""
    ordered = sorted(pods, key=lambda pod: pod.name)
    problems = [
        evacuation.why(pod) if pod.evacuated else why_cold(pod)
        for pod in ordered
        if not pod.deleting and (pod.settling or pod.evacuated or not pod.is_warm)
    ]
    return max(problems, key=lambda problem: problem.reason not in NO_FAULT, default=None)


def why_cold(pod: Pod) -> Problem:
    """Return the reason why a replica does not serve."""
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
    """Return the whole status object. Conditions whose status did not change keep their transition time."""
    group = world.group
    facts = [*facts, *stalled(facts)]
    replicas = len({pod.uid for revision in world.revisions for pod in revision.pods if not pod.deleting})
    warm = ready.get(target, 0) if target is not None else 0
    status: dict[str, Any] = {
        "observedGeneration": group.generation,
        "conditions": [_condition(group, fact, now) for fact in sorted(facts, key=lambda fact: fact.type)],
        "replicas": replicas,
        # An autoscaler would mistake the surge of a release for replicas that the load needs.
        "scaleReplicas": min(replicas, wanted),
        "readyReplicas": sum(ready.values()),
        "warmReplicas": warm,
        "warm": f"{warm}/{wanted}",
        "revisions": [
            _revision(world, item, plan, ready)
            for item in sorted(world.revisions, key=lambda revision: revision.created, reverse=True)
        ],
    }
    status |= _starts(world)
    status |= _cache(world, accepted=all(fact.status for fact in facts if fact.type == "Accepted"))
    if target is not None:
        # Autoscalers count the replicas of all revisions, or a release would appear to shrink the group.
        counted = {"selector": f"{names.LABEL_GROUP}={group.key.name}"} if world.host is None else {}
        status |= {"fingerprint": target, "revision": short(target), **counted}
    return _at_rest(world, status)


def _starts(world: World) -> dict[str, Any]:
    """Return the replicas that start, and what starts took; nothing of a guest, whose replicas are its host's."""
    if world.host is not None:
        return {}
    pods = [pod for revision in world.revisions for pod in revision.pods]
    starting = all_starting(pods)
    result: dict[str, Any] = {}
    if starting:
        result["starting"] = summary(starting)
        result["startingReplicas"] = [
            {"pod": item.pod, "phase": item.phase.value}
            | ({"since": timestamps.rfc3339(item.since)} if item.since is not None else {})
            for item in starting[:SHOWN]
        ]
    record = start_times.remembered(world.group.status.get("start", {}), pods)
    return result | _prefetch(world) | ({"start": dict(record)} if record else {})


def _prefetch(world: World) -> dict[str, Any]:
    """Return the number of nodes that have the weights; the last known one while the DaemonSet's is not current."""
    if not prefetch.is_wanted(world.group.spec.engine):
        return {}
    counts = prefetch.status(world.live.get((prefetch.KIND, prefetch.name(world.group.key.name))))
    if counts is None:
        return {key: value for key, value in world.group.status.items() if key == "prefetch"}
    return {"prefetch": counts.model_dump(mode="json")}


def _cache(world: World, *, accepted: bool) -> dict[str, Any]:
    """Return the KV tiers of a group that has any beyond the GPU's memory; a rejected spec leaves them unchanged."""
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
    """Return the status of a tier; values that are unknown now keep their last state."""
    model_dump: dict[str, Any] = tier_status.model_dump(mode="json", exclude_none=True)
    before = standing.get((model_dump["tier"], model_dump.get("source")), {})
    if tier_status.tier is TierName.POOL:
        size = world.pool_answers.capacity if world.pool_answers is not None else 0
        capacity = f"{size / 2**30:.1f}Gi" if size else before.get("capacity")
        model_dump |= {"capacity": capacity} if capacity else {}
    return model_dump | ({"hitRate": before["hitRate"]} if "hitRate" in before else {})


HIT_RATE_STEP = 5
"""Difference in percentage points that alone justifies a write of the hit rate, which under traffic changes always."""
MEASURED = frozenset(
    {"PromptsFit", "ScalingActive", "AbleToScale", "ScalingLimited", "CacheEffective", "CacheTierUseful"}
)
"""Conditions with measured numbers in messages: a change of the message alone does not cause a write."""


def _at_rest(world: World, status: dict[str, Any]) -> dict[str, Any]:
    """Return the status to write. Changing figures are written with other changes, or when they differ by much.

    Unknown is not zero: the last known figures are preserved.
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
        tiers_written = [
            item | ({"hitRate": _percent(rate)} if (rate := by_tier.get(item["tier"])) is not None else {})
            for item in status["cache"]["tiers"]
        ]
        rates = {key: _percent(rate) for key, rate in figures.items()}
        written["cache"] = {**status["cache"], **rates, "tiers": tiers_written}
    return written


_TIER_SOURCES = {
    TierName.MEMORY: ("memory",),
    TierName.VOLUME: ("volume",),
    TierName.POOL: ("peer", "pool"),
    TierName.ARGS: ("memory", "volume", "peer", "pool"),
}
"""Tier → the sources in a reading that belong to it."""


def _rates_by_tier(world: World) -> dict[str, float]:
    """Return the hit rate of each tier; empty where no engine distinguishes its tiers."""
    tier_hit_rates = world.tier_hit_rates
    if not tier_hit_rates:
        return {}
    return {
        tier.value: sum(tier_hit_rates.get(source, 0.0) for source in sources)
        for tier, sources in _TIER_SOURCES.items()
    }


def _tier_rates(world: World) -> dict[str, float]:
    """Return status field → hit rate of the GPU and of the tiers; empty while unknown."""
    if world.hit_rate is None or world.tier_hit_rate is None:
        return {}
    return {"gpuHitRate": world.hit_rate - world.tier_hit_rate, "tierHitRate": world.tier_hit_rate}


def _percent(rate: float | None) -> str | None:
    return f"{round(100 * rate)}%" if rate is not None else None


def _is_near(rate: float | None, standing: str | None) -> bool:
    """Return True if a figure is unknown, or differs little from the one in the status."""
    digits = (standing or "").removesuffix("%")
    return rate is None or (digits.isdecimal() and abs(round(100 * rate) - int(digits)) < HIT_RATE_STEP)


def _unmoved(group: GroupObject, condition: dict[str, Any]) -> dict[str, Any]:
    """Return the condition with its current message if only measured numbers differ.

    Numbers replace a message without any: a group may be healthy before its traffic is measured again.
    """
    old = _old(group, condition["type"])
    same = all(old.get(key) == condition[key] for key in ("status", "reason"))
    if not same or condition["type"] not in MEASURED or _has_numbers(condition) > _has_numbers(old):
        return condition
    return {**condition, "message": old["message"]}


def _has_numbers(condition: Mapping[str, Any]) -> bool:
    return any(character.isdigit() for character in condition["message"])


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


def unreadable(written: Mapping[str, Any], generation: int, message: str, now: datetime) -> dict[str, Any]:
    """Return the status of a group whose stored spec this version cannot parse: only `Accepted` changes, to False.

    Args:
        written: the status as last written.
        generation: generation of the group.
        message: the field and the rule that it breaks.
        now: the time.
    """
    text = f"the stored spec is invalid: {message}; apply the group again"
    condition = _with_condition(written, Condition("Accepted", False, "InvalidSpec", text), generation, now)
    return {**condition, "observedGeneration": generation}


def unread(written: Mapping[str, Any], message: str, now: datetime) -> dict[str, Any]:
    """Return the status of a group about which nothing can be decided: only `Degraded` changes, to True.

    Args:
        written: the status as last written.
        message: the API server's message about the object that cannot be read.
        now: the time.
    """
    degraded = Condition("Degraded", True, UNREAD, message)
    return _with_condition(written, degraded, written.get("observedGeneration", 0), now)


def _with_condition(written: Mapping[str, Any], fact: Condition, generation: int, now: datetime) -> dict[str, Any]:
    result = {condition["type"]: condition for condition in written.get("conditions", [])}
    old, word = result.get(fact.type, {}), _word(fact.status)
    result[fact.type] = {
        "type": fact.type,
        "status": word,
        "reason": fact.reason,
        "message": in_line(fact.message),
        "lastTransitionTime": old["lastTransitionTime"] if old.get("status") == word else timestamps.rfc3339(now),
        "observedGeneration": generation,
    }
    return {**written, "conditions": [result[kind] for kind in sorted(result)]}


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
"""Reasons of a group that is not Ready because a release is in progress, which is no fault."""
PROCEEDING = RELEASING - {"NoMetrics", "Paused", "AwaitsPromotion", "Inconclusive"}
"""Release reasons that need no action. A release alternates between them: events about them would exhaust the limit per
group (25 at once), so that its end would have none. The end of each step has its own event, with its figures."""

EXPECTED = frozenset({"Warming", "ScaledToZero", "NoPool", "NoParent"})
"""Reasons that are intermediate steps, or that the user requested."""

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
"""Conditions whose change is reported as an event. If several change for one reason, the first is reported: its message
describes the cause, while those of later ones may describe only consequences."""


def events(group: GroupObject, facts: Sequence[Condition]) -> list[Event]:
    """Return an event for every reason of a notable change of a condition: one event for each reason in a pass."""
    result: dict[str, Event] = {}
    for fact in sorted((condition for condition in facts if condition.type in EVENT_CONDITIONS), key=_rank):
        old = _old(group, fact.type)
        if not _notable(fact, old.get("status"), old.get("reason")):
            continue
        bad = (
            fact.status
            if fact.type == "Degraded"
            else fact.status is False and fact.reason not in {*NO_FAULT, *RELEASING, *EXPECTED}
        ) or fact.reason == WarmReason.PRESSED
        event = Event("Warning" if bad else "Normal", fact.reason, f"{fact.type}={_word(fact.status)}: {fact.message}")
        if fact.reason not in result or (bad and result[fact.reason].type == "Normal"):
            result[fact.reason] = event
    return list(result.values())


def _rank(fact: Condition) -> int:
    return EVENT_CONDITIONS.index(fact.type)


def _notable(fact: Condition, status: str | None, reason: str | None) -> bool:
    """Return True if a change of a condition is reported as an event."""
    if fact.type == "ScalingActive":  # its reasons follow the load: only the change of size is reported
        return status in {"True", "Unknown"} and fact.status is False and fact.reason != "FixedReplicas"
    if fact.type in ("CacheEffective", "CachePoolReady", "PromptsFit"):
        return reason != fact.reason and (fact.status is False or (status == "False" and fact.status is True))
    if status is None and not fact.status and fact.type == "Degraded":
        return False  # a new group that is not degraded needs no event
    if fact.type == "Ready" and reason in RELEASING and fact.reason in PROCEEDING:
        return False
    return (status, reason) != (_word(fact.status), fact.reason)


def rescaled(before: int | None, size: SizingDecision) -> list[Event]:
    """Return the event of a changed number of replicas, as HorizontalPodAutoscaler reports it."""
    if before is None or before == size.value or not size.active:
        return []
    return [Event("Normal", "SuccessfulRescale", f"New size: {size.value}; reason: {size.reason}: {size.message}")]


def moved(group: GroupObject, plan: Mapping[Fingerprint, RevisionStep], serving: Fingerprint) -> list[Event]:
    """Return one event for each retiring revision whose sessions move to the serving one before they end."""
    before = {revision["fingerprint"]: revision.get("phase") for revision in group.status.get("revisions", [])}
    return [
        Event("Normal", "SessionsMoved", f"sessions of {short(fingerprint)} move to {short(serving)}: {step.moves}")
        for fingerprint, step in plan.items()
        if step.moves and before.get(fingerprint) != step.phase
    ]


def passed(step: Problem | None) -> list[Event]:
    """Return an event with the figures of a completed release step: the conditions already describe the next step."""
    return [Event("Normal", step.reason, step.message)] if step is not None else []
