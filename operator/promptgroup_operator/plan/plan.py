"""`decide(world, now)` returns the `Plan` of one pass.

It calls these modules, in this order:


validate      validation of the spec, and the prompt that it declares
settling      the warm replicas that gateways may not know yet; evacuation: those whose node is about to go
sizing        the number of replicas; sleep: zero replicas while there are no requests
rollout       the revision that serves, the new one, and the retiring ones; analysis: comparison of the new one
replica_split the number of replicas per revision; retained_slots: the slots that remain
slots         the assignment of pods to slots of the ring
draining      the removal of replicas
warmup        the pods to warm, and the conditions to correct
refresh       the warm pods to refresh
desired       the objects
prompt_route  the published routes for routers
inference_pool the InferencePool for gateways; router_features: fields of the spec that have no effect there
status        the status for users
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from promptgroup_contract import table
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import PromptRef
from promptgroup_operator.adapters import identity
from promptgroup_operator.base import durations
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.gateway import inference_pool, router_features, settling
from promptgroup_operator.gateway.inference_pool import PoolDecision
from promptgroup_operator.guests import record
from promptgroup_operator.guests.record import RecordedRevision
from promptgroup_operator.leaving_nodes import evacuation
from promptgroup_operator.plan import desired, diff, draining, prompt, prompt_route, references, slots, validate
from promptgroup_operator.plan import status as group_status
from promptgroup_operator.rollout import annotations, release, replica_split, retirement, rollout
from promptgroup_operator.rollout.release import RevisionPhase, RevisionStep
from promptgroup_operator.sizing import diagnosis, recommend
from promptgroup_operator.sizing.diagnosis import Diagnosis
from promptgroup_operator.sizing.recommend import SizingDecision
from promptgroup_operator.sizing.tier_use import tier_use
from promptgroup_operator.sleep import decision as sleep
from promptgroup_operator.sleep import route_sleep
from promptgroup_operator.starts import start_times
from promptgroup_operator.warmth import refresh, warmup
from promptgroup_operator.weights import prefetch
from promptgroup_operator.world.effects import ConditionChange, Deletion, Event, PodUpdate
from promptgroup_operator.world.snapshot import WORKLOADS, Manifest, Pod, Problem, PromptText, RevisionState, World
from promptgroup_operator.world.warming import Refresh, Warmup

SETTLED = timedelta(minutes=1)
"""Time to the next pass over an idle group: watches may miss an event, and the hit rate is read again."""
MOVING = timedelta(seconds=1)
"""Time to the next pass while replicas drain, or settle."""
WAITING = timedelta(seconds=5)
"""Time to the next pass while something is missing: objects that a spec refers to are not watched, since a watch needs
permission to list them. Also while revisions share the traffic, which only the routers' counters show."""
REFERENCED = timedelta(seconds=15)
"""Time to the next pass over a group that depends on something that is not watched: another object, an InferencePool,
or the servers of a KV pool. A change is detected within this time."""


TEMPLATE_PROBLEMS = frozenset({group_status.REFUSED, group_status.FAILED})
"""Problems that the group's pod template may cause: it is not written while they persist."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of one pass, in the order in which they are performed."""

    conditions: tuple[ConditionChange, ...] = ()
    objects: tuple[Manifest, ...] = ()
    pod_updates: tuple[PodUpdate, ...] = ()
    route: Manifest | None = None
    pool: Manifest | None = None
    """The InferencePool; None where the group does not own one."""
    deletions: tuple[Deletion, ...] = ()
    status: Mapping[str, Any] | None = None
    events: tuple[Event, ...] = ()
    warmups: tuple[Warmup, ...] = ()
    refreshes: tuple[Refresh, ...] = ()
    peers_key: bool = False
    """True if the Secret with the namespace's signing key for routers must be created."""
    size: SizingDecision | None = None
    """The number of replicas, with the sizing state for the next pass; None before there is anything to size."""
    requeue_after: timedelta = SETTLED


def decide(world: World, now: datetime) -> Plan:
    """Return the plan for a group from the observed state."""
    if not world.revisions and prompt.awaits_sibling(world.group, world.siblings, now, world.first_seen):
        return Plan(requeue_after=MOVING)
    result = validate.validate(world)
    if isinstance(result, PromptText):
        return _plan(_with_text(world, result), result.fingerprint, result, None, now)
    revision_state = _revision_to_keep(world, result)
    if revision_state is None:
        return _refused(world, result, now)
    if result.reason == "Conflict" and not any(_may_have_served(revision) for revision in world.revisions):
        return replace(
            _refused(world, result, now), route=None, deletions=(*_pool_deletion(world, None), *_everything(world))
        )
    return _plan(_with_adapter_of(world, revision_state), revision_state.fingerprint, None, result, now)


def _with_adapter_of(world: World, revision: RevisionState) -> World:
    """Give the spec the adapter of a revision that is not the declared one: its engines were started with that one."""
    adapter = identity.decode(revision.prompt.adapter) if revision.prompt is not None else None
    if adapter is None:
        return world
    spec = world.group.spec.model_copy(update={"adapter": identity.to_spec(adapter)})
    return replace(world, group=replace(world.group, spec=spec))


def _with_text(world: World, text: PromptText) -> World:
    """Fill in the text of a revision whose stored copy is missing: it continues to serve while the copy is restored."""
    revisions = (
        replace(revision, prompt=text.prompt)
        if revision.prompt is None and revision.fingerprint == text.fingerprint
        else revision
        for revision in world.revisions
    )
    return replace(world, revisions=tuple(revisions))


def _revision_to_keep(world: World, problem: Problem) -> RevisionState | None:
    """Choose the target while the spec cannot be applied: the revision being released, else the one with traffic.

    If an older group claims the same prompt, the revision of that prompt is chosen only if no other one serves, since
    routers send its requests to the older group.
    """
    lost = _lost(world, problem)
    serving = [revision for revision in world.revisions if revision.fingerprint != lost and revision.weight > 0]
    revisions = world.revisions if lost is None else serving or world.revisions
    return max(
        revisions,
        key=lambda revision: (
            revision.rolled_back is not None or (revision.progress is not None and revision.superseded_at is None),
            revision.weight,
            revision.superseded_at is None,
            revision.ready,
            revision.created,
        ),
        default=None,
    )


def _lost(world: World, problem: Problem | None) -> Fingerprint | None:
    """Return the prompt that an older group claims; None for any other problem."""
    if problem is None or problem.reason != "Conflict" or not isinstance(world.prompt, PromptText):
        return None
    return world.prompt.fingerprint


def _may_have_served(revision: RevisionState) -> bool:
    """Return True if the revision took over once, had a replica that was proven warm, or is scaled to zero.

    Pods alone are not sufficient: those of a revision that has served for weeks may all have just been replaced.
    """
    return revision.progress is None or not revision.replicas or any(pod.warmed for pod in revision.pods)


def _everything(world: World) -> list[Deletion]:
    """Return all objects of a group that never served and has a conflict; Deployments, their record, are last."""
    owned = [item for item in sorted(world.live.items()) if validate.may_delete(world.group, item[1])]
    return [
        Deletion(kind, name, live["metadata"]["uid"])
        for (kind, name), live in sorted(owned, key=lambda item: item[0][0] in WORKLOADS)
    ]


def _refused(world: World, problem: Problem, now: datetime) -> Plan:
    """Create nothing for a spec that cannot be applied, and remove the revisions from an existing route."""
    conditions = group_status.rejected(world, problem)
    return Plan(
        route=_route(world, prompt_route.route(world.group, (), {}, {}, world.live, now=now))
        if _live_route(world) is not None
        else None,
        status=group_status.build(
            world, conditions, {}, {}, target=None, wanted=recommend.least(world.group.spec), now=now
        ),
        events=tuple(group_status.events(world.group, conditions)),
        requeue_after=WAITING,
    )


def _plan(world: World, target: Fingerprint, text: PromptText | None, problem: Problem | None, now: datetime) -> Plan:
    group = world.group
    pool = _pool(world)
    routed = prompt_route.sends_to(_live_route(world)) | world.guests_routed
    if pool.member_of or (world.host is not None and world.host.gateway is not None):
        world = replace(
            world, revisions=settling.mark(world.revisions, routed, prompt_route.leads_to(_live_route(world)), now)
        )
    if world.host is None:  # guests follow the drain of their host's pods
        world = replace(world, revisions=evacuation.mark(world.revisions))
    before = replica_split.wanted(world.revisions, target)
    size = _size(world, target, before, now)
    cache = _diagnosis(world, size)
    policy = release.policy(group.spec.rollout, size.value)
    if problem is not None:
        policy = replace(policy, paused=True)
    settings = desired.engine_settings(group)
    goal = release.Goal(target, size.value, policy, settings, world.traffic, now, lost=_lost(world, problem))
    stage = rollout.decide(world.revisions, goal)
    steps = replica_split.allot(world.revisions, stage, goal)
    waits = _with_holders(world, steps, stage, goal)
    if world.host is None:
        waits = waits or group_status.engine_change(world, target, settings)
    serving = _serving(steps, target)
    assigned = {
        revision.fingerprint: slots.assign(revision.pods, steps[revision.fingerprint].ring)
        for revision in world.revisions
    }
    pod_updates = [
        update
        for revision in world.revisions
        for update in draining.pod_updates(
            revision,
            steps[revision.fingerprint].ring,
            assigned[revision.fingerprint],
            routed,
            now,
            inference_pool=pool.member_of,
        )
    ]
    rest = _sleep(world, target, size.value, now)
    route = prompt_route.route(group, world.revisions, steps, assigned, world.live, now=now, sleep=rest)
    ready = prompt_route.ready(route)
    conditions = (
        [
            *group_status.conditions(
                world, steps, target, size, cache, serving=serving, ready=ready, waits=waits, sleep=rest
            ),
            *group_status.tier(_tier_use(world)),
        ]
        if problem is None
        else group_status.rejected(world, problem, group_status.prefix_warm(world, steps[serving], size, ready))
    )
    conditions += group_status.gateway(pool.verdict, router_features.decide(group.spec, world.host))
    keeps = problem is not None and (
        problem.reason in TEMPLATE_PROBLEMS
        or desired.template_problem(group) is not None
        or _has_unknown_adapter(world, target)
    )
    if world.host is not None:  # the pods are the host's to mark
        pod_updates, changes = [], []
        objects = _prompt_objects(world, text)
    else:
        changes = _condition_changes(world.revisions)
        objects = _objects(world, steps, assigned, goal, text, keeps=keeps)
        if problem is None and prefetch.is_wanted(group.spec.engine):
            objects.append(desired.weights_daemon_set(group))
    return Plan(
        conditions=tuple(changes),
        objects=tuple(objects),
        pod_updates=tuple(pod_updates),
        route=_route(world, route, _remembered(world, steps, target, text, history=policy.history, now=now)),
        pool=desired.inference_pool(group, pool.spec) if pool.spec is not None else None,
        deletions=(
            *_deletions(world, steps, target, policy.history, text),
            *_pool_deletion(world, pool.spec),
            *(_prefetch_deletion(world) if problem is None else ()),
        ),
        status=group_status.build(world, conditions, steps, ready, target=serving, wanted=size.value, now=now),
        events=(
            *group_status.rescaled(before, size),
            *group_status.passed(stage.passed),
            *group_status.moved(group, steps, serving),
            *group_status.events(group, conditions),
        ),
        warmups=tuple(_warmups(world, steps)),
        refreshes=tuple(_refreshes(world, steps, now)),
        peers_key=not world.peers_key,
        size=size,
        requeue_after=min(
            _requeue_after(world, steps, assigned, stage.waits or problem or _absent(world), now),
            (size.requeue_after if _follows_load(world) else None) or SETTLED,
        ),
    )


def _has_unknown_adapter(world: World, target: Fingerprint) -> bool:
    """Return True if the engines of the target may have another adapter than the spec: its prompt cannot be read."""
    unread = any(revision.fingerprint == target and revision.prompt is None for revision in world.revisions)
    return unread and world.group.spec.adapter is not None


def _follows_load(world: World) -> bool:
    """Return True if the next reading of the load may change the plan; for most guests it changes only the status."""
    placement = world.group.spec.placement
    return world.host is None or (placement is not None and placement.has_bounds)


def _serving(steps: Mapping[Fingerprint, RevisionStep], target: Fingerprint) -> Fingerprint:
    """Return the fingerprint that the status refers to: the target, or the serving revision if it was rolled back."""
    if steps[target].rolled_back is None:
        return target
    return next((step.fingerprint for step in steps.values() if step.phase is release.RevisionPhase.SERVING), target)


def _with_holders(
    world: World, steps: Mapping[Fingerprint, RevisionStep], stage: release.Release, goal: release.Goal
) -> Problem | None:
    """Return the reason why the release waits, with the revisions that hold the replicas it needs, and the remedies."""
    step = steps[goal.target]
    held = replica_split.holders(world.revisions, steps, goal) if step.replicas < stage.most else ""
    if stage.waits is None or not held or step.rolled_back is not None:
        return stage.waits
    out = "raise rollout.maxSurge for more room, or lower rollout.retireDeadline to move their sessions sooner"
    text = f"{stage.waits.message}; it has no room for more replicas while others have theirs: {held}; {out}"
    return replace(stage.waits, message=text)


def _size(world: World, target: Fingerprint, before: int | None, now: datetime) -> SizingDecision:
    seen = recommend.SizingInput(
        current=before,
        serving=sum(len(revision.serving) for revision in world.revisions),
        revision=target,
        load=world.load,
        releasing=sum(revision.alive > 0 for revision in world.revisions) > 1,
        others=world.pool,
        start=start_times.expected(world.group.status.get("start", {})),
    )
    size = recommend.replicas(world.group.spec, seen, world.sizing, now)
    if world.host is not None:
        where = f"{size.value} of {len(world.host.pods)} replicas of PromptGroup {world.host.name}"
        return replace(size, message=f"the prompt is kept warm on {where}, whose number is decided there")
    sizing = world.group.spec.sizing
    if sizing is None or not route_sleep.may_sleep(world.group.spec):
        return size
    rest = sleep.decide(
        sizing,
        sleep.Seen(
            standing=prompt_route.sleep_of(_live_route(world)) or route_sleep.AWAKE,
            load=world.load,
            calls=world.calls,
            idle_since=world.sizing.idle_since,
            releasing=seen.releasing,
            ready=_serves(world),
        ),
        size.value,
        now,
    )
    return sleep.sized(size, rest, sizing)


def _serves(world: World) -> bool:
    return any(revision.serving for revision in world.revisions)


def _sleep(world: World, target: Fingerprint, value: int, now: datetime) -> table.Sleep | None:
    """Return the sleep that is published to routers for a group that may have no replica."""
    if world.host is not None:
        return route_sleep.of_guest(world.group.spec, world.host.sleep)
    return route_sleep.own(
        world.group.spec,
        prompt_route.sleep_of(_live_route(world)) or route_sleep.AWAKE,
        value=value,
        ready=_serves(world),
        failure=next((revision.failure for revision in world.revisions if revision.fingerprint == target), ""),
        now=now,
    )


def _diagnosis(world: World, size: SizingDecision) -> Diagnosis | None:
    """Diagnose the caches of a group whose load is observed."""
    if world.group.spec.caches_nothing:
        return diagnosis.UNCACHED
    if world.load is None and world.group.spec.sizing is None:
        return None
    before = group_status.last_reason(world.group, "CacheEffective")
    return diagnosis.diagnose(world.load, size.wave, before, group_status.prompts_take(world))


def _tier_use(world: World) -> Diagnosis | None:
    """Return the usefulness of a KV tier for the group; None without caching, where nothing is evicted.

    Engines count the tokens from tiers for all prompts together, so only the host reports them.
    """
    if world.group.spec.caches_nothing or world.host is not None:
        return None
    return tier_use(world.load, group_status.last_reason(world.group, "CacheTierUseful"))


def _live_route(world: World) -> Manifest | None:
    return world.live.get(("PromptRoute", world.group.key.name))


def _route(world: World, route: table.Group, remembered: Sequence[RecordedRevision] = ()) -> Manifest | None:
    """Return the PromptRoute to write, or None if an object with another owner has its name."""
    live_route = _live_route(world)
    if live_route is not None and not validate.is_owned(world.group, live_route):
        return None
    guest = record.encode(remembered) if world.host is not None else None
    return desired.prompt_route(world.group, route, guest)


def _remembered(
    world: World,
    steps: Mapping[Fingerprint, RevisionStep],
    target: Fingerprint,
    text: PromptText | None,
    *,
    history: int,
    now: datetime,
) -> list[RecordedRevision]:
    """Return the record of a guest's revisions, without those beyond the history."""
    if world.host is None:
        return []
    gone = {
        revision_state.fingerprint for revision_state in retirement.forgotten(world.revisions, steps, target, history)
    }
    existing = {revision_state.fingerprint: revision_state for revision_state in world.revisions}
    result = []
    for fingerprint, step in steps.items():
        if fingerprint in gone:
            continue
        revision = existing.get(fingerprint)
        recorded_revision = RecordedRevision(
            fingerprint,
            revision.created if revision is not None else rfc3339(now),
            step.replicas,
            _prompt_from(world, fingerprint, revision, text).kind,
            annotations.encode(step.superseded_at, step.progress, step.rolled_back, None),
            record.proofs_of(revision.pods) if revision is not None and step.replicas else {},
        )
        result.append(recorded_revision)
    return sorted(result, key=lambda item: (item.created, item.fingerprint))


def _prompt_objects(world: World, text: PromptText | None) -> list[Manifest]:
    """Return the objects of a guest: the one that holds the prompt of the target."""
    if text is None:
        return []
    revision = next(
        (revision_state for revision_state in world.revisions if revision_state.fingerprint == text.fingerprint), None
    )
    source = _prompt_from(world, text.fingerprint, revision, text)
    if text.secret and source.kind != "Secret":
        return []
    return [desired.prompt_object(world.group, text.fingerprint, text.prompt, source.kind)]


def _own_pool(world: World) -> Manifest | None:
    return world.inference_pools.by_name.get(world.group.key.name)


def _pool(world: World) -> PoolDecision:
    own = _own_pool(world)
    taken = own is not None and not validate.is_owned(world.group, own)
    return inference_pool.decide(world.group, world.inference_pools, taken=taken)


def _absent(world: World) -> Problem | None:
    """Return the reason why no InferencePool can be read, if the spec requests one."""
    problem = world.inference_pools.problem
    requested = inference_pool.name(world.group) != ""
    return problem if requested and problem is not None and problem.reason in inference_pool.ABSENT else None


def _pool_deletion(world: World, spec: Mapping[str, Any] | None) -> list[Deletion]:
    """Return the deletion of the group's own InferencePool if it should not have one."""
    own = _own_pool(world)
    if spec is not None or own is None or not validate.may_delete(world.group, own):
        return []
    return [Deletion("InferencePool", world.group.key.name, own["metadata"]["uid"])]


def _prefetch_deletion(world: World) -> list[Deletion]:
    """Return the deletion of the group's own DaemonSet of weights if it should not have one."""
    live = world.live.get((prefetch.KIND, prefetch.name(world.group.key.name)))
    if live is None or prefetch.is_wanted(world.group.spec.engine) or not validate.may_delete(world.group, live):
        return []
    return [Deletion(prefetch.KIND, live["metadata"]["name"], live["metadata"]["uid"])]


def _condition_changes(revisions: Sequence[RevisionState]) -> list[ConditionChange]:
    changes = []
    for revision in revisions:
        for pod in revision.pods:
            outcome = warmup.stale_condition(pod)
            if outcome is not None:
                changes.append(ConditionChange(pod.name, pod.uid, outcome))
    return changes


def _objects(
    world: World,
    steps: Mapping[Fingerprint, RevisionStep],
    assigned: Mapping[Fingerprint, Mapping[str, int]],
    goal: release.Goal,
    text: PromptText | None,
    *,
    keeps: bool,
) -> list[Manifest]:
    """Return Deployments with the budgets of those that serve, and the target's prompt object after its Deployment.

    Objects of a revision never exist without its Deployment, which is the record of it. Only the target follows the
    group's engine settings: pods of another revision would be replaced without need. With `keeps` the target does not
    either, so that it can be scaled while its template is rejected. On other revisions, an engine change without a warm
    replica is reverted: its pods would occupy the surge, which the target needs, for as long as the revision serves.
    """
    objects: list[Manifest] = []
    existing = {revision_state.fingerprint: revision_state for revision_state in world.revisions}
    timeout = durations.parse(world.group.spec.rollout.drain_timeout)
    for fingerprint, step in steps.items():
        revision = existing.get(fingerprint)
        source = _prompt_from(world, fingerprint, revision, text)
        if revision is None:
            replicas = step.replicas
        else:
            replicas = draining.deployment_replicas(revision, step.ring, assigned[fingerprint], timeout, goal.now)
        live = world.live.get((revision.workload, revision.deployment)) if revision is not None else None
        standing_template = (
            desired.standing_template(live) if live is not None and (keeps or fingerprint != goal.target) else None
        )
        if revision is not None and revision.warm_template is not None and fingerprint != goal.target:
            standing_template = dict(
                revision.warm_template
            )  # pods that never served are removed, which frees capacity for the target
        if keeps and standing_template is None:
            continue  # its template is unknown
        size = goal.replicas if fingerprint == goal.target and world.group.spec.sizing is not None else None
        noted = annotations.encode(step.superseded_at, step.progress, step.rolled_back, size)
        deployment = desired.deployment(
            world.group, fingerprint, replicas, source, records=noted, template=standing_template, live=live
        )
        objects.append(desired.workload(world.group, deployment, live if standing_template is not None else None))
        if step.phase not in release.GOING:
            objects.append(desired.budget(world.group, fingerprint))
        if text is not None and fingerprint == text.fingerprint and (source.kind == "Secret" or not text.secret):
            objects.append(desired.prompt_object(world.group, fingerprint, text.prompt, source.kind))
    return objects


def _prompt_from(
    world: World, fingerprint: Fingerprint, revision: RevisionState | None, text: PromptText | None
) -> PromptRef:
    """Return the object that holds a revision's prompt: a Secret, once a part of the text comes from one.

    An earlier ConfigMap with the text is deleted first, so that a pass that is interrupted leaves no copy behind.
    """
    if text is not None and fingerprint == text.fingerprint:
        if text.secret and _exposed(world, text) is None:
            return PromptRef("Secret", desired.name(world.group, fingerprint))
        if revision is None:
            return PromptRef("ConfigMap", desired.name(world.group, fingerprint))
    assert revision is not None  # noqa: S101 - only the target may have no Deployment yet, and only with its text
    return revision.prompt_from


def _exposed(world: World, text: PromptText | None) -> Manifest | None:
    """Return the group's own ConfigMap with a text that now comes from a Secret; None where there is none."""
    if text is None or not text.secret:
        return None
    live = world.live.get(("ConfigMap", desired.name(world.group, text.fingerprint)))
    return live if live is not None and validate.may_delete(world.group, live) else None


def _deletions(
    world: World, steps: Mapping[Fingerprint, RevisionStep], target: Fingerprint, history: int, text: PromptText | None
) -> list[Deletion]:
    """Return the deletions: budgets of revisions that do not serve, and retired revisions beyond the history.

    A revision's Deployment comes last. A ConfigMap with a text that must be only in a Secret is deleted as well.
    """
    serving = {
        desired.name(world.group, step.fingerprint) for step in steps.values() if step.phase not in release.GOING
    }
    deletions = [
        Deletion(kind, object_name, live["metadata"]["uid"])
        for (kind, object_name), live in sorted(world.live.items())
        if kind == "PodDisruptionBudget" and object_name not in serving and validate.may_delete(world.group, live)
    ]
    exposed = _exposed(world, text)
    if exposed is not None:
        deletions.append(Deletion("ConfigMap", exposed["metadata"]["name"], exposed["metadata"]["uid"]))
    for revision in retirement.forgotten(world.revisions, steps, target, history):
        for kind in (revision.prompt_from.kind, revision.workload):
            live = world.live.get((kind, revision.deployment))
            if live is not None and validate.may_delete(world.group, live):
                deletions.append(Deletion(kind, revision.deployment, live["metadata"]["uid"]))
    return deletions


def _warmups(world: World, steps: Mapping[Fingerprint, RevisionStep]) -> list[Warmup]:
    clients = world.load.clients if world.load is not None and world.host is not None else None
    traffic = clients.requests if clients is not None else 0.0
    return [
        job
        for revision in world.revisions
        if revision.prompt is not None and steps[revision.fingerprint].replicas > 0
        for job in warmup.warmups(revision.pods, revision.prompt, world.group.spec, traffic)
    ]


def _refreshes(world: World, steps: Mapping[Fingerprint, RevisionStep], now: datetime) -> list[Refresh]:
    refreshes = (
        refresh.due_refresh(pod, revision.prompt, world.group.spec, world.refresh_every, now)
        for revision in world.revisions
        if revision.prompt is not None and steps[revision.fingerprint].replicas > 0
        for pod in revision.pods
    )
    return [item for item in refreshes if item is not None]


def _requeue_after(
    world: World,
    steps: Mapping[Fingerprint, RevisionStep],
    assigned: Mapping[Fingerprint, Mapping[str, int]],
    waits: Problem | None,
    now: datetime,
) -> timedelta:
    """Return the time to the next pass if there is no event: at the latest, the next change that depends on time."""
    leaves = any(
        slots.leaving(
            revision.pods, assigned[revision.fingerprint], steps[revision.fingerprint].ring, revision.replicas
        )
        for revision in world.revisions
    )
    settles = any(pod.settling for revision in world.revisions for pod in revision.pods)
    if leaves or settles or any(step.phase is RevisionPhase.RETIRING for step in steps.values()):
        return MOVING
    shared = sum(step.replicas > 0 for step in steps.values()) > 1
    # A guest is notified of changes of its host's pods, which may be many and not warm for long.
    unsettled = world.host is None and _unsettled(world.revisions, steps)
    if waits is not None or shared or len(world.revisions) < len(steps) or unsettled:
        return WAITING
    spec = world.group.spec
    unwatched = references.references(spec) or spec.gateway or world.pool_answers is not None
    # the adapters of guests that are gone must be unloaded
    unwatched = unwatched or (world.host is None and spec.engine.adapters is not None)
    regular = REFERENCED if unwatched else SETTLED
    refreshes = (refresh.next_at(pod, world.refresh_every, now) for item in world.revisions for pod in item.pods)
    return min([regular, *(max(WAITING, at - now) for at in refreshes if at is not None)])


def _unsettled(revisions: Sequence[RevisionState], steps: Mapping[Fingerprint, RevisionStep]) -> bool:
    return any(
        revision.ready < steps[revision.fingerprint].replicas or any(not _is_settled(pod) for pod in revision.pods)
        for revision in revisions
    )


def _is_settled(pod: Pod) -> bool:
    return pod.is_warm or pod.deleting


def with_failed_writes(world: World, problem: Problem, now: datetime) -> Plan:
    """Return the plan while an object of a group cannot be written: it serves on, and the status has the reason.

    Args:
        world: the observed state.
        problem: the failed write; its reason is `status.REFUSED` or `status.FAILED`.
        now: the time.
    """
    return decide(replace(world, prompt=problem), now)


def unwritten(world: World, plan: Plan) -> list[Manifest]:
    """Return the plan's objects that differ from the live ones, without the route: it is written after pod updates."""
    return [item for item in plan.objects if diff.must_write(live(world, item), item)]


def is_complete(world: World, manifest: Manifest) -> bool:
    """Return True if the live object of an unwritten one only has something that is not desired any more."""
    return diff.is_complete(live(world, manifest), manifest)


def route_unwritten(world: World, plan: Plan) -> bool:
    """Return True if the PromptRoute differs from the live one."""
    return plan.route is not None and diff.must_write(live(world, plan.route), plan.route)


def pool_unwritten(world: World, plan: Plan) -> bool:
    """Return True if the InferencePool must be written, since it differs from the live one."""
    return plan.pool is not None and diff.must_write(_own_pool(world), plan.pool)


def live(world: World, manifest: Manifest) -> Manifest | None:
    """Return the observed object of a manifest's kind and name; None if there is none."""
    if manifest["kind"] == "InferencePool":
        return world.inference_pools.by_name.get(manifest["metadata"]["name"])
    return world.live.get((manifest["kind"], manifest["metadata"]["name"]))
