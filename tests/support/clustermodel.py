"""A model of the cluster, as far as a PromptGroup's life depends on it, that performs a plan's effects one at a time.

    users        edit the spec
    operator     begins a pass from a snapshot, performs its effects one by one, may die between any two
    controllers  Deployment and ReplicaSet: surge, order of deletion; garbage collection
    kubelet      starts containers, gates readiness, ends terminating pods
    engines      are warmed or not, hold requests
    routers      read the PromptRoute, at most `draining.PROPAGATION` late, and send to its Ready slots

Every actor moves only when told, so a test decides the order. What must never happen raises ViolationError.
Sources, in Kubernetes: pkg/controller/deployment/rolling.go, pkg/controller/controller_utils.go (ActivePodsWithRanks).
"""

import itertools
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from promptgroup_contract import names
from promptgroup_contract.encoding import decode_group
from promptgroup_contract.fingerprint import short
from promptgroup_contract.table import Group, Prompt, PromptRef, SlotState
from promptgroup_operator.api.prompt_group import parse_spec
from promptgroup_operator.plan import draining, prompt_route, references
from promptgroup_operator.plan.plan import Plan, decide, route_unwritten, unwritten
from promptgroup_operator.rollout import annotations as records
from promptgroup_operator.rollout import release, rollout
from promptgroup_operator.warmth.warmup import settle
from promptgroup_operator.world import engine_facts as measured
from promptgroup_operator.world.effects import Deletion, PodUpdate
from promptgroup_operator.world.samples import Flow, SlotUse, Stratum, StratumKey, Traffic
from promptgroup_operator.world.snapshot import (
    GroupObject,
    Key,
    Manifest,
    Pod,
    PodCondition,
    Problem,
    RevisionState,
    World,
)
from promptgroup_operator.world.warming import Outcome, WarmReason, Warmup

LEASE = timedelta(seconds=15)
"""A process that lost the lead writes nothing after so long."""

DRAIN_TIMEOUT = timedelta(minutes=5)
"""Default of `spec.rollout.drainTimeout`."""


KV_TOKENS, PREFILL_RATE, PREFIX_TOKENS = 400_000, 9_800, 96
"""What a warm-up measures; the rate only of a container that does not hold the prefix yet."""

KEY = Key("chat", "support")
"""The one PromptGroup."""


class ViolationError(AssertionError):
    """Something happened that must never happen."""


@dataclass(slots=True)
class ModelPod:
    """A pod as it really is; what the operator sees of it is made in `Model.world`."""

    name: str
    fingerprint: str
    deployment: str
    """Uid of the Deployment whose ReplicaSet owns it."""
    template: str
    created: datetime
    container: str = ""
    containers_ready: bool = False
    containers_ready_since: datetime | None = None
    engine: str = ""
    """Container that really holds the prefix in cache."""
    ready: bool = False
    """The kubelet's Ready condition: it follows containers and gate when the kubelet next looks."""
    ready_since: datetime | None = None
    deleting: bool = False
    slot: int | None = None
    inference_pool: str = ""
    warmed: str = ""
    measured: str = ""
    """The annotation."""
    gate: PodCondition | None = None
    draining_since: datetime | None = None
    cost: int = 0
    requests: int = 0

    @property
    def uid(self) -> str:
        return f"uid-{self.name}"

    @property
    def settings(self) -> str:
        """Of the template that it was made from."""
        return json.loads(self.template)["metadata"]["annotations"][names.ANNOTATION_SETTINGS]

    @property
    def serves(self) -> bool:
        """Whether a request sent to it would meet a warm engine."""
        return not self.deleting and self.containers_ready and self.container != "" and self.engine == self.container


@dataclass(slots=True)
class Effect:
    """One write of the operator."""

    name: str
    perform: Callable[[], None]


@dataclass(slots=True)
class Model:
    """A namespace with one PromptGroup."""

    now: datetime
    spec: dict[str, Any]
    values: dict[tuple[str, str], dict[str, str] | None] = field(default_factory=dict)
    """Objects that the prompt may refer to."""
    ahead: timedelta = timedelta()
    """Time by which the clock of the operator's node is ahead of all others."""
    generation: int = 1
    status: dict[str, Any] = field(default_factory=dict)
    live: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    sets: dict[str, dict[str, int]] = field(default_factory=dict)
    """Uid of a Deployment → pod template → replicas of its ReplicaSet."""
    pods: list[ModelPod] = field(default_factory=list)
    pending: list[Effect] = field(default_factory=list)
    """What the pass that runs has yet to do."""
    requeue_after: timedelta = timedelta()
    written: dict[str, int] = field(default_factory=dict)
    """Deployment → replicas that the pass asked of it."""
    alive: dict[str, int] = field(default_factory=dict)
    """Deployment → pods that it had when the pass began."""
    began: datetime | None = None
    """When the pass began."""
    rival: tuple[list[Effect], dict[str, int], dict[str, int], datetime | None] | None = None
    """The pass of another operator process that leads no more, or thinks that it still does."""
    jobs: dict[str, Warmup] = field(default_factory=dict)
    """Warm-ups that run, by container."""
    routed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What the routers know: pod → (fingerprint, incarnation) of the Ready slots."""
    published: list[tuple[datetime, dict[str, tuple[str, str]]]] = field(default_factory=list)
    """What was published since, and when: some router may not know it yet."""
    mix: tuple[float | None, float] | None = None
    """What routers tell, if any can be asked: share of requests that the wanted revision gets (None: as its weight
    says, sessions being short), and share of those that name the group."""
    quality: str = "good"
    """How the wanted revision does in what the routers tell: good, bad, or too few requests to say."""
    settled: bool = True
    """Whether the routers' counters were read for long enough."""
    busy: dict[str, datetime] = field(default_factory=dict)
    """Fingerprint → when its engines last worked for a client."""
    own: tuple[datetime, dict[str, datetime]] | None = None
    """Since when routers could be read, and fingerprint → when a request of its own last ended; None: they say nothing
    of it, and the engines' work counts."""
    use: dict[str, dict[int, SlotUse]] = field(default_factory=dict)
    """Fingerprint → slot → what the routers say that it holds and works on."""
    served: set[str] = field(default_factory=set)
    """Fingerprints that once had all new sessions and a replica that routers could send them to."""
    by_hand: bool = False
    """Whether somebody deleted a Deployment, the record of a revision: its prompt object then stays to the end."""
    _count: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _parsed: tuple[str, Any] | None = None

    # --- users ---------------------------------------------------------------------------------------------

    def edit(self, **fields: Any) -> None:
        """Change fields of the spec."""
        if any(self.spec.get(key) != value for key, value in fields.items()):
            self.spec = {**self.spec, **fields}
            self.generation += 1

    def remove(self, key: tuple[str, str]) -> None:
        """Delete one of the operator's objects by hand."""
        del self.live[key]
        self.by_hand |= key[0] == "Deployment"
        if key[0] == "PromptRoute":
            self.published.append((self.now, {}))

    def pass_time(self, by: timedelta) -> None:
        """Let time pass; routers learn of a route within its propagation."""
        self.now += by
        while self.published and self.now - self.published[0][0] >= draining.PROPAGATION:
            self.routed = self.published.pop(0)[1]

    # --- operator ------------------------------------------------------------------------------------------

    def change_leader(self) -> None:
        """Another operator process goes on with the pass that it began, if that is not too long ago."""
        mine = (self.pending, self.written, self.alive, self.began)
        self.pending, self.written, self.alive, self.began = self.rival or ([], {}, {}, self.now)
        self.rival = mine
        if self.began is None or self.now - self.began > LEASE:
            self.pending = []

    def operate(self, effects: int = 1000) -> int:
        """Begin a pass unless one runs, and perform so many of its effects. Returns how many it did."""
        if not self.pending:
            world = self.world()
            self.begin(world, decide(world, self.now + self.ahead))
        for done in range(effects):
            if not self.pending:
                return done
            self.pending.pop(0).perform()
        return effects

    def crash(self) -> None:
        """The operator dies; its warm-ups with it."""
        self.pending.clear()
        self.jobs.clear()

    def begin(self, world: World, todo: Plan) -> None:
        """Queue the effects of a plan in the order in which the operator performs them."""
        now = self.began = self.now
        self.written = {}
        self.alive = {each.deployment: sum(not pod.deleting for pod in each.pods) for each in world.revisions}
        self.requeue_after = todo.requeue_after
        queue: list[Effect] = []

        def add(name: str, perform: Callable[[], None]) -> None:
            queue.append(Effect(name, perform))

        for change in todo.conditions:
            add(f"condition {change.pod}", lambda c=change: self._condition(c.uid, c.outcome, c.outcome.warm, now))
        for manifest in unwritten(world, todo):
            add(f"apply {manifest['kind']} {manifest['metadata']['name']}", lambda m=manifest: self._apply(m, world))
        for mark in todo.pod_updates:
            add(f"mark {mark.pod}", lambda m=mark: self._mark(m))
        if todo.route is not None:
            self._check_route(world, todo.route, stands=not route_unwritten(world, todo))
            if route_unwritten(world, todo):
                add("apply PromptRoute", lambda m=todo.route: self._publish(world, m))
        elif ("PromptRoute", KEY.name) in world.live:
            self._check_route(world, world.live["PromptRoute", KEY.name], stands=True)
        for job in todo.warmups:
            if job.container_id not in self.jobs:
                add(f"warm {job.pod}", lambda j=job: self.jobs.__setitem__(j.container_id, j))
        for deletion in todo.deletions:
            add(f"delete {deletion.kind} {deletion.name}", lambda d=deletion: self._delete(d))
        if todo.status is not None and todo.status != world.group.status:
            add("status", lambda s=todo.status: self._write_status(s))
        self.pending = queue

    def world(self) -> World:
        """The snapshot that the operator takes."""
        text = json.dumps(self.spec, sort_keys=True)
        if self._parsed is None or self._parsed[0] != text:
            self._parsed = (text, parse_spec(self.spec))
        spec = self._parsed[1]
        standing = prompt_route.standing(self.live.get(("PromptRoute", KEY.name)))
        group = GroupObject(KEY, "uid-support", self.generation, "2026-01-01T00:00:00Z", spec, dict(self.status))
        return World(
            group=group,
            prompt=references.declared(spec, self.values),
            revisions=tuple(
                self._revision(each, standing) for (kind, _), each in sorted(self.live.items()) if kind == "Deployment"
            ),
            siblings=(),
            live=dict(self.live),
            traffic=self.traffic(),
        )

    @staticmethod
    def surge_of(world: World) -> int:
        """Replicas that all revisions together may have above those wanted."""
        return int(world.group.spec.rollout.max_surge)

    def traffic(self) -> Traffic | None:
        """What the routers tell."""
        if self.mix is None:
            return None
        share, named = self.mix
        standing = prompt_route.standing(self.live.get(("PromptRoute", KEY.name)))
        deployments = [each for (kind, _), each in sorted(self.live.items()) if kind == "Deployment"]
        found = [each["metadata"]["annotations"][names.ANNOTATION_FINGERPRINT] for each in deployments]
        wanted = references.declared(parse_spec(self.spec), self.values)
        target = wanted.fingerprint if not isinstance(wanted, Problem) else ""
        others = [each for each in found if each != target]
        if share is None:
            share = standing.get(target, (0, {}))[0] / 100
        flows = {}
        samples = {}
        for each in found:
            part = share if each == target else (1 - share) / len(others)
            requests = 1000 * part if self.quality != "few" else 0
            flows[short(each)] = Flow(requests, requests * named)
            failed = 90 if each == target and self.quality == "bad" else 0
            samples[short(each)] = {StratumKey(): Stratum(200 if self.quality != "few" else 3, failed)}
        since, own = self.own if self.own is not None else (None, {})
        return Traffic(self.settled, flows, samples, {short(each): at for each, at in own.items()}, since)

    def _revision(
        self, deployment: Manifest, standing: Mapping[str, tuple[int, Mapping[int, SlotState]]]
    ) -> RevisionState:
        metadata = deployment["metadata"]
        annotations = metadata["annotations"]
        full = annotations[names.ANNOTATION_FINGERPRINT]
        source = PromptRef(annotations[names.ANNOTATION_PROMPT], metadata["name"])
        data = self.live.get((source.kind, source.name), {}).get("data")
        weight, slots = standing.get(full, (0, {}))
        return RevisionState(
            fingerprint=full,
            deployment=metadata["name"],
            created=metadata["creationTimestamp"],
            replicas=deployment["spec"]["replicas"],
            superseded_at=records.superseded_at(annotations),
            prompt_from=source,
            prompt=Prompt(data["system"], data.get("tools", ""), adapter=data.get("adapter", "")) if data else None,
            pods=tuple(self._seen(pod) for pod in self.pods if pod.fingerprint == full),
            weight=weight,
            slots=slots,
            use=self.use.get(full, {}),
            progress=records.progress(annotations),
            rolled_back=records.rolled_back(annotations),
            size=records.size(annotations),
            quiet_since=self.busy.get(full),
        )

    def _seen(self, pod: ModelPod) -> Pod:
        return Pod(
            name=pod.name,
            uid=pod.uid,
            fingerprint=pod.fingerprint,
            created=f"{pod.created:%Y-%m-%dT%H:%M:%SZ}",
            deleting=pod.deleting,
            address=f"{pod.name}:8000" if pod.container else "",
            containers_ready=pod.containers_ready,
            containers_ready_since=pod.containers_ready_since,
            container_id=pod.container,
            slot=pod.slot,
            inference_pool=pod.inference_pool,
            warmed=pod.warmed,
            warm=pod.gate,
            draining_since=pod.draining_since,
            measured=measured.decode(pod.measured),
            settings=pod.settings,
            in_flight=pod.requests if pod.draining_since is not None else None,
            ready_since=pod.ready_since.replace(microsecond=0) if pod.ready_since is not None else None,
        )

    # --- the operator's writes -----------------------------------------------------------------------------

    def _find(self, uid: str) -> ModelPod | None:
        return next((pod for pod in self.pods if pod.uid == uid), None)

    def _condition(self, uid: str, outcome: Outcome, warm: bool, now: datetime) -> None:
        pod = self._find(uid)
        if pod is not None:
            pod.gate = PodCondition("True" if warm else "False", outcome.reason, outcome.message, now)

    def _mark(self, mark: PodUpdate) -> None:
        pod = self._find(mark.uid)
        if pod is not None:
            since = mark.draining_since.replace(microsecond=0) if mark.draining_since is not None else None
            pod.slot, pod.draining_since, pod.cost = mark.slot, since, mark.deletion_cost
            pod.inference_pool = mark.inference_pool

    def _apply(self, manifest: Manifest, seen: World) -> None:
        """Refused when the object is not the one that was seen (optimistic locking): the pass ends."""
        key = manifest["kind"], manifest["metadata"]["name"]
        old = self.live.get(key)
        if (old or {}).get("metadata", {}) != seen.live.get(key, {}).get("metadata", {}):
            self.pending.clear()
            return
        made = {"uid": f"uid-{next(self._count)}", "creationTimestamp": f"{self.now:%Y-%m-%dT%H:%M:%SZ}"}
        if old is not None:
            made = {name: old["metadata"][name] for name in made}
        made["resourceVersion"] = str(next(self._count))
        if manifest["kind"] == "Deployment":
            self._check_surge(manifest, old, seen)
            wanted = seen.prompt.fingerprint if not isinstance(seen.prompt, Problem) else None
            kept = wanted not in (None, manifest["metadata"]["annotations"][names.ANNOTATION_FINGERPRINT])
            if kept and old is not None and manifest["spec"]["template"] != old["spec"]["template"]:
                raise ViolationError(f"pods of {key[1]}, which is not wanted, would be replaced")
        self.live[key] = {**manifest, "metadata": {**manifest["metadata"], **made}}

    def _delete(self, deletion: Deletion) -> None:
        key = deletion.kind, deletion.name
        if self.live.get(key, {}).get("metadata", {}).get("uid") == deletion.uid:
            if deletion.kind == "Deployment":
                for pod in self.pods:
                    if pod.deployment == deletion.uid:
                        self._check_leaving(pod, "its Deployment is deleted")
            del self.live[key]

    def _write_status(self, status: Any) -> None:
        self.status = json.loads(json.dumps(status))

    def _publish(self, world: World, route: Manifest) -> None:
        self._check_release(world, route)
        self._apply(route, world)
        if self.live.get(("PromptRoute", KEY.name), {}).get("spec") != route["spec"]:
            return  # a conflict
        group = decode_group("chat", "support", route["spec"])
        ready = ((each, slot) for each in group.revisions for slot in each.slots if slot.state == "Ready")
        self.published.append((self.now, {slot.pod: (each.fingerprint, slot.incarnation) for each, slot in ready}))
        self.served |= {
            each.fingerprint
            for each in group.revisions
            if each.weight == 100 and any(slot.state == "Ready" for slot in each.slots)
        }

    # --- what must never happen ----------------------------------------------------------------------------

    def _check_route(self, world: World, manifest: Manifest, *, stands: bool) -> None:
        """Against the snapshot that the route was decided from."""
        route = decode_group("chat", "support", manifest["spec"])
        warm = {pod.name: pod for each in world.revisions for pod in each.pods if pod.is_warm}
        taken: set[str] = set()
        self._check_choice(world, route)
        self._check_known(world, route)
        for revision in route.revisions:
            for slot in revision.slots:
                if slot.state == "Absent":
                    continue
                if slot.pod in taken:
                    raise ViolationError(f"pod {slot.pod} holds two slots")
                taken.add(slot.pod)
                if slot.state != "Ready":
                    continue
                pod = warm.get(slot.pod)
                if pod is None:
                    raise ViolationError(
                        f"slot {slot.index} is Ready, its pod {slot.pod} is not warm (stands: {stands})"
                    )
                if pod.address != slot.address or not pod.container_id.endswith(slot.incarnation):
                    raise ViolationError(f"slot {slot.index} leads to another engine than {slot.pod}'s")
                if revision.engine.settings not in ("", pod.settings):
                    raise ViolationError(f"slot {slot.index} would be lent as what {slot.pod} is not")
                if pod.fingerprint != revision.fingerprint:
                    raise ViolationError(f"slot {slot.index} leads to a pod of another revision")

    def _check_known(self, world: World, route: Group) -> None:
        """A replica that comes beside another which serves is offered when gateways have had two seconds to know it."""
        before = world.live.get(("PromptRoute", KEY.name))
        if before is None or world.group.spec.gateway is None or self.ahead:  # of another clock than the kubelet's
            return
        slots = [slot for each in decode_group("chat", "support", before["spec"]).revisions for slot in each.slots]
        named = {slot.pod for slot in slots if slot.pod}
        warm = {pod.name: pod for each in world.revisions for pod in each.pods if pod.is_warm}
        if not any(slot.state == "Ready" and slot.pod in warm for slot in slots):
            return
        for slot in (slot for each in route.revisions for slot in each.slots if slot.state == "Ready"):
            since = warm[slot.pod].ready_since if slot.pod in warm else self.now
            if slot.pod not in named and (since is None or self.now - since < timedelta(seconds=2)):
                raise ViolationError(f"slot {slot.index} is Ready, and gateways may not know {slot.pod} yet")

    def _check_choice(self, world: World, route: Group) -> None:
        """What was told to go is not called back while another is told to go in its place."""
        before = {each.fingerprint: each for each in world.revisions}
        for revision in route.revisions:
            known = before[revision.fingerprint]
            told = {pod.slot for pod in known.pods if pod.draining_since is not None and pod.slot is not None}
            states = {slot.index: slot.state for slot in revision.slots}
            back = {slot for slot in told if states.get(slot) is SlotState.READY and slot not in known.routed}
            chosen = {slot for slot in known.routed if states.get(slot) is SlotState.DRAINING}
            if back and chosen:
                raise ViolationError(f"the slots {chosen} are told to go, and {back} are called back")

    def _check_surge(self, manifest: Manifest, old: Manifest | None, seen: World) -> None:
        """All revisions together stay within wanted and surge, whatever stood before aside, by what the pass saw.

        Of two processes that both believe to lead neither sees what the other writes to another Deployment.
        """
        name, wanted = manifest["metadata"]["name"], manifest["spec"]["replicas"]
        if wanted <= max(old["spec"]["replicas"] if old is not None else 0, self.alive.get(name, 0)):
            return
        self.written[name] = wanted
        others = {each.deployment: each.alive for each in seen.revisions} | self.written
        total = sum(others.values())
        asked = seen.group.spec.replicas or 0
        if total > asked + self.surge_of(seen) and wanted > (asked if total == wanted else 0):
            raise ViolationError(f"{name} asks for {wanted}, together {others}: {asked} are wanted")

    def _check_release(self, world: World, manifest: Manifest) -> None:
        """Weights rise only as far as warm replicas carry them, and nobody stops serving for a release."""
        old = self.live.get(("PromptRoute", KEY.name))
        if old is None:
            return
        before, after = (decode_group("chat", "support", each["spec"]) for each in (old, manifest))
        weights = {each.fingerprint: each.weight for each in before.revisions}
        ready = {each.fingerprint: sum(slot.state == "Ready" for slot in each.slots) for each in after.revisions}
        wanted = world.group.spec.replicas or 0
        target = target_of(self, world)
        if target in ready and sum(each.weight for each in after.revisions) != 100:
            raise ViolationError("the weights do not add up")
        self._check_take_over(world, weights, {each.fingerprint: each.weight for each in after.revisions}, ready)
        named = rollout.named(world.traffic)
        for each in after.revisions:
            heirs = any(ready[other] and weights.get(other) for other in ready if other != each.fingerprint)
            serve = wanted - (self.surge_of(world) == 0)
            carries = 100 * ready[each.fingerprint] / max(1, serve * named) + 1
            if (
                each.fingerprint == target
                and heirs
                and each.weight > max(weights.get(each.fingerprint, 0), carries)
                and wanted
                and not (each.weight == 100 and self._is_late(world, target))
            ):
                raise ViolationError(f"weight {each.weight} for {ready[each.fingerprint]} of {wanted} replicas")
        serving = sum(len(each.serving) for each in world.revisions)
        alone = sum(each.alive > 0 for each in world.revisions) <= 1
        left = sum(
            slot.state == "Ready" and slot.index in each.serving
            for each in world.revisions
            for revision in after.revisions
            if revision.fingerprint == each.fingerprint
            for slot in revision.slots
        )
        given_up = sum(
            each.prompt is None or (pod.warm is not None and pod.warm.reason == WarmReason.NOT_CACHED)
            for each in world.revisions
            if each.fingerprint != target
            for pod in each.pods
            if not pod.is_warm and not pod.deleting
        )
        if left < min(serving, wanted - given_up - (self.surge_of(world) == 0)) and not alone:
            raise ViolationError(f"{left} replicas serve of {wanted} wanted: {serving} did")

    def _is_late(self, world: World, target: str) -> bool:
        """Whether the sessions of the old revision have held up the take-over for as long as they may."""
        noted = next((each.progress for each in world.revisions if each.fingerprint == target), None)
        deadline = release.policy(world.group.spec.rollout, 1).retire_deadline
        return noted is not None and noted.grows is not None and self.now + self.ahead - noted.grows >= deadline

    def _check_take_over(
        self, world: World, before: Mapping[str, int], after: Mapping[str, int], ready: Mapping[str, int]
    ) -> None:
        """Nobody who served loses all to one that never did: while that has nothing warm, or the release is held."""
        spec, target = world.group.spec, target_of(self, world)
        losers = [each for each in self.served if before.get(each) and not after.get(each, 100)]
        if target in self.served or after.get(target) != 100 or before.get(target) == 100 or not losers:
            return
        held = spec.rollout.paused or not spec.rollout.auto_promote
        if held or (spec.replicas and not ready[target]):
            raise ViolationError(f"{losers} served and would lose all to {target} (held: {held})")

    def _check_leaving(self, pod: ModelPod, why: str) -> None:
        """No replica that serves goes before the routers have left it and its requests have ended.

        One that the kubelet does not call Ready yet is the ReplicaSet's first choice; nothing can guard it.
        """
        if not pod.serves or not pod.ready:
            return
        if self.routed.get(pod.name, ("", ""))[1] == pod.container:
            raise ViolationError(f"pod {pod.name} goes ({why}) while routers send to it")
        timely = pod.draining_since is None or self.now + self.ahead - pod.draining_since < DRAIN_TIMEOUT
        if pod.requests and timely:
            raise ViolationError(f"pod {pod.name} goes ({why}) with {pod.requests} requests")

    # --- controllers ---------------------------------------------------------------------------------------

    def control(self, tie: int = 0) -> bool:
        """One sync of every controller. `tie` decides between pods that Kubernetes may delete in any order."""
        changed = self._collect_garbage()
        for (kind, _), deployment in sorted(self.live.items()):
            if kind == "Deployment":
                changed |= self._sync(deployment, tie)
        return changed

    def _collect_garbage(self) -> bool:
        owners = {each["metadata"]["uid"] for (kind, _), each in self.live.items() if kind == "Deployment"}
        gone = [pod for pod in self.pods if pod.deployment not in owners and not pod.deleting]
        for pod in gone:
            pod.deleting = True
        return bool(gone)

    def _sync(self, deployment: Manifest, tie: int) -> bool:
        uid, wanted = deployment["metadata"]["uid"], deployment["spec"]["replicas"]
        current = json.dumps(deployment["spec"]["template"], sort_keys=True)
        sets = self.sets.setdefault(uid, {})
        before = dict(sets)
        sets.setdefault(current, 0)
        old = [template for template in sets if template != current and sets[template] > 0]
        if not old:
            sets[current] = wanted
        else:
            self._roll(uid, sets, current, old, wanted, **deployment["spec"]["strategy"]["rollingUpdate"])
        changed = sets != before
        for template, replicas in list(sets.items()):
            changed |= self._fill(deployment, template, replicas, tie, scaling=not old)
            if replicas == 0 and template != current:
                del sets[template]
        return changed

    def _roll(
        self,
        uid: str,
        sets: dict[str, int],
        current: str,
        old: list[str],
        wanted: int,
        *,
        maxSurge: int,  # noqa: N803 - as the field is called
        maxUnavailable: int,  # noqa: N803
    ) -> None:
        """One step of a rolling update."""
        total = sum(sets.values())
        if sets[current] > wanted:
            sets[current] = wanted
            return
        grow = min(wanted - sets[current], wanted + maxSurge - total)
        if grow > 0:
            sets[current] += grow
            return
        ready = {template: len([p for p in self._active(uid, template) if p.ready]) for template in sets}
        room = total - wanted + maxUnavailable - (sets[current] - ready[current])
        for template in old:  # unhealthy ones first
            cut = min(max(0, room), max(0, sets[template] - ready[template]))
            sets[template] -= cut
            room -= cut
        spare = sum(ready.values()) - wanted + maxUnavailable
        for template in old:
            cut = min(max(0, spare), sets[template])
            sets[template] -= cut
            spare -= cut

    def _active(self, uid: str, template: str) -> list[ModelPod]:
        return [
            each for each in self.pods if each.deployment == uid and each.template == template and not each.deleting
        ]

    def _fill(self, deployment: Manifest, template: str, replicas: int, tie: int, *, scaling: bool) -> bool:
        uid = deployment["metadata"]["uid"]
        pods = self._active(uid, template)
        for _ in range(replicas - len(pods)):
            full = deployment["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_FINGERPRINT]
            number = next(self._count)
            self.pods.append(ModelPod(f"p{number}", full, uid, template, self.now))
        if len(pods) <= replicas:
            return len(pods) < replicas
        ranked = sorted(
            pods,
            key=lambda each: (
                each.container != "",
                each.ready,
                each.cost,
                zlib.crc32(f"{each.name} {tie}".encode()),
                each.name,
            ),
        )
        for pod in ranked[: len(pods) - replicas]:
            if scaling:
                self._check_leaving(pod, "scaled down")
            pod.deleting = True
        return True

    # --- kubelet -------------------------------------------------------------------------------------------

    def kubelet(self, pod: ModelPod) -> bool:
        """The next thing that happens to a pod on its node."""
        if pod.deleting:
            self.pods.remove(pod)
            return True
        if not pod.container:
            pod.container = f"c{next(self._count)}"
        elif not pod.containers_ready:
            pod.containers_ready, pod.containers_ready_since = True, self.now
        else:
            ready = pod.gate is not None and pod.gate.status == "True"
            if ready == pod.ready:
                return False
            pod.ready, pod.ready_since = ready, self.now if ready else None
        return True

    def kill(self, pod: ModelPod, *, at_once: bool) -> None:
        """Delete a pod: with grace, or as when its node is gone for good."""
        if at_once:
            self.pods.remove(pod)
        else:
            pod.deleting = True

    def restart(self, pod: ModelPod, *, seen: bool) -> None:
        """The engine's container dies. It comes back as another, at once unless the gap is to be seen."""
        pod.requests = 0
        pod.container = "" if seen else f"c{next(self._count)}"
        pod.containers_ready = not seen and pod.containers_ready
        if not pod.containers_ready:
            pod.containers_ready_since = pod.ready_since = None
            pod.ready = False

    # --- engines and routers -------------------------------------------------------------------------------

    def finish_warmup(self, job: Warmup, *, proven: bool, torn: bool = False) -> None:
        """A warm-up ends. Torn: the operator dies between its two writes."""
        self.jobs.pop(job.container_id)
        pod = self._find(job.uid)
        if pod is None:
            return
        cold = pod.engine != job.container_id
        before = measured.decode(pod.measured) if pod.warmed == job.container_id else measured.UNKNOWN
        fresh = measured.Measured(KV_TOKENS, PREFILL_RATE if cold else 0, PREFIX_TOKENS)
        found = measured.completed(fresh, before)
        reason = WarmReason.PROVEN if proven else WarmReason.NOT_CACHED
        outcome = settle(Outcome(reason, "as told", found), job, self.now)
        if proven:
            if pod.container == job.container_id:
                pod.engine = job.container_id
            pod.warmed, pod.measured = job.container_id, measured.encode(outcome.measured)
        if torn:
            self.crash()
            return
        self._condition(job.uid, outcome, proven, self.now)

    def routers_look(self) -> None:
        """Every router reads the PromptRoute."""
        if self.published:
            self.routed = self.published[-1][1]
            self.published.clear()

    def request(self, pod: ModelPod) -> None:
        """A router sends a request to a pod, if it may."""
        if pod.name in self.routed and pod.serves:
            pod.requests += 1
            self.busy[pod.fingerprint] = self.now

    def answer(self, pod: ModelPod) -> None:
        """The requests of a pod end."""
        if pod.requests:
            self.busy[pod.fingerprint] = self.now
        pod.requests = 0

    # --- at rest -------------------------------------------------------------------------------------------

    def surroundings(self) -> bool:
        """Everything but the operator goes on until it rests; warm-ups succeed. Returns whether anything happened."""
        happened = False
        while True:
            changed = self.control()
            for pod in list(self.pods):
                changed |= self.kubelet(pod)
            for pod in self.pods:
                self.answer(pod)
            for job in list(self.jobs.values()):
                self.finish_warmup(job, proven=True)
                changed = True
            if not changed:
                return happened
            happened = True

    def settle(self, quiet: timedelta, passes: int = 1000) -> list[str]:
        """Run until nothing was written for so long. Returns the names of the last effects, for messages.

        Raises:
            ViolationError: it does not come to rest.
        """
        while self.pending:
            self.operate()
        last: list[str] = []
        rests: datetime | None = None
        for _ in range(passes):
            happened = self.surroundings()
            world = self.world()
            self.begin(world, decide(world, self.now + self.ahead))
            if self.pending:
                last = [effect.name for effect in self.pending]
            happened |= bool(self.pending)
            self.operate()
            if happened:
                rests = None
                self.pass_time(timedelta(milliseconds=100))  # a watch event begins the next pass
                continue
            rests = rests or self.now
            if self.now - rests >= quiet:
                return last
            self.pass_time(self.requeue_after)
        raise ViolationError(f"no rest after {passes} passes; the last wrote {last}")


def target_of(model: Model, world: World | None = None) -> str:
    """Fingerprint of the prompt that the spec asks for."""
    if world is not None:
        return world.prompt.fingerprint if not isinstance(world.prompt, Problem) else ""
    found = references.declared(parse_spec(model.spec), model.values)
    assert not isinstance(found, Problem)
    return found.fingerprint
