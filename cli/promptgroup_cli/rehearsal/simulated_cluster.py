"""A simulated cluster with one PromptGroup: plans are carried out, and nothing else changes. Does no I/O.

    controllers  Deployments, ReplicaSets and LeaderWorkerSets act at once: surge, order of deletion
    nodes        a pod is ready so long after its creation, a terminating one is removed once routers have dropped it
    engines      a warm-up succeeds at once, a replica that drains idles after IDLE_AFTER
    routers      follow the PromptRoute at once; sessions split as the weights say

`simulate` moves its time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count

from promptgroup_contract import names
from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_operator.base import timestamps
from promptgroup_operator.engines.drain_hook import ROUTED_SECONDS
from promptgroup_operator.nodes.leader_worker_set import as_deployment
from promptgroup_operator.observe import decode
from promptgroup_operator.plan import desired, prompt_route
from promptgroup_operator.plan.plan import Plan, route_unwritten, unwritten
from promptgroup_operator.world.effects import PodUpdate
from promptgroup_operator.world.samples import Flow, Stratum, StratumKey, Traffic
from promptgroup_operator.world.snapshot import (
    LEADER_WORKER_SET,
    NO_CONTAINER,
    WORKLOADS,
    ContainerId,
    GroupObject,
    Manifest,
    Pod,
    PodCondition,
    PromptText,
    RevisionState,
    World,
)
from promptgroup_operator.world.warming import Outcome, WarmReason

IDLE_AFTER = timedelta(seconds=5)
"""Time for the requests of a draining replica to end."""
TERMINATION = timedelta(seconds=ROUTED_SECONDS)
"""Time from a pod's deletion until it is removed."""

REQUESTS = 1_000_000
"""Requests of each step's sample: as many as the analysis may require."""
SAMPLED_AFTER = timedelta(minutes=1)
"""Time from the start of a step until its sample is complete."""


@dataclass(frozen=True, slots=True)
class SimulatedPace:
    """Assumptions about the cluster."""

    warm_after: timedelta
    """Time from a pod's creation until it is warm."""
    worse: bool = False
    """True if all requests of the canary fail."""


class SimulatedCluster:
    """A namespace with one PromptGroup.

    Args:
        group: the PromptGroup.
        text: its prompt.
        pace: the assumed pace of the cluster.
        now: the time at which the group is created.
    """

    def __init__(self, group: GroupObject, text: PromptText, pace: SimulatedPace, now: datetime) -> None:
        self.now = now
        self._group = group
        self._text = text
        self._pace = pace
        self._texts = {text.fingerprint: text.prompt}
        self._live: dict[tuple[str, str], Manifest] = {}
        self._pods: dict[str, Pod] = {}
        self._gone_at: dict[str, datetime] = {}
        self._made = 0

    def change(self, group: GroupObject, text: PromptText) -> None:
        """Apply another version of the group."""
        self._group = replace(group, generation=self._group.generation + 1, status=self._group.status)
        self._text = text
        self._texts[text.fingerprint] = text.prompt

    def world(self, at: datetime | None = None) -> World:
        """Return the world of a pass; at a later time, if nothing happens until then."""
        now = at or self.now
        standing = prompt_route.standing(self._live.get(("PromptRoute", self._group.key.name)))
        pods = [self._seen(pod, now) for pod in self._pods.values()]
        revisions = tuple(
            decode.revision_of(deployment, self._texts[decode.fingerprint_of(deployment)], pods, standing)
            for deployment in self._deployments()
        )
        traffic = self._traffic(revisions, now) if len(revisions) > 1 else None
        live = {**self._live, **{(item["kind"], item["metadata"]["name"]): item for item in self._deployments()}}
        return World(self._group, self._text, revisions, (), live, traffic=traffic)

    def _deployments(self) -> list[Manifest]:
        """Return the workloads, as Deployments."""
        return [
            as_deployment(item) if kind == LEADER_WORKER_SET else item
            for (kind, _), item in sorted(self._live.items())
            if kind in WORKLOADS
        ]

    def _seen(self, pod: Pod, now: datetime) -> Pod:
        if pod.draining_since is None:
            return pod
        return replace(pod, in_flight=0 if now >= pod.draining_since + IDLE_AFTER else 1)

    def _traffic(self, revisions: Sequence[RevisionState], now: datetime) -> Traffic:
        """Return traffic of short sessions that name the group; the sample of a step is complete or empty."""
        shares = {short(revision.fingerprint): REQUESTS * revision.weight / 100 for revision in revisions}
        flows = {name: Flow(share, share) for name, share in shares.items()}
        since = next(
            (revision.progress.since for revision in revisions if revision.progress and revision.progress.since), now
        )
        seen = REQUESTS if now - since >= SAMPLED_AFTER else 0
        failed = {self._text.fingerprint: seen if self._pace.worse else 0}
        samples = {
            short(revision.fingerprint): {StratumKey(): Stratum(seen, failed.get(revision.fingerprint, 0))}
            for revision in revisions
        }
        return Traffic(True, flows, samples)

    # --- what happens ----------------------------------------------------------------------------------------

    def perform(self, world: World, todo: Plan) -> None:
        """Perform the effects of one pass of the operator."""
        for change in todo.conditions:
            self._set_condition(change.pod, change.outcome)
        for manifest in unwritten(world, todo):
            self._apply(manifest)
        for mark in todo.pod_updates:
            self._mark(mark)
        if todo.route is not None and route_unwritten(world, todo):
            self._apply(todo.route)
        for deletion in todo.deletions:
            del self._live[deletion.kind, deletion.name]
        for job in todo.warmups:
            self._pods[job.pod] = replace(self._pods[job.pod], warmed=job.container_id)
            self._set_condition(job.pod, Outcome(WarmReason.PROVEN, "as rehearsed"))
        if todo.status is not None:
            self._group = replace(self._group, status=todo.status)

    def _apply(self, manifest: Manifest) -> None:
        key = manifest["kind"], manifest["metadata"]["name"]
        made = {"uid": "-".join(key), "creationTimestamp": timestamps.rfc3339(self.now)}
        if key in self._live:
            made = {name: self._live[key]["metadata"][name] for name in made}
        self._live[key] = {**manifest, "metadata": {**manifest["metadata"], **made}}

    def _set_condition(self, pod: str, outcome: Outcome) -> None:
        pod_condition = PodCondition(str(outcome.warm), outcome.reason, outcome.message, self.now)
        self._pods[pod] = replace(self._pods[pod], warm=pod_condition, ready_since=self.now if outcome.warm else None)

    def _mark(self, mark: PodUpdate) -> None:
        self._pods[mark.pod] = replace(
            self._pods[mark.pod],
            slot=mark.slot,
            draining_since=mark.draining_since,
            inference_pool=mark.inference_pool,
        )

    def happens_at(self) -> datetime | None:
        """Return when a pod starts or terminates next; None when none does."""
        starts = (
            _ready_at(pod, self._pace) for pod in self._pods.values() if not pod.container_id and not pod.deleting
        )
        return min([*starts, *self._gone_at.values()], default=None)

    def nodes(self) -> None:
        """Start and remove the pods that are due."""
        for name in [name for name, at in self._gone_at.items() if at <= self.now]:
            del self._gone_at[name], self._pods[name]
        for pod in list(self._pods.values()):
            if not pod.deleting and not pod.container_id and _ready_at(pod, self._pace) <= self.now:
                self._pods[pod.name] = replace(
                    pod,
                    address=f"{pod.name}:{self._group.spec.engine.port}",
                    container_id=ContainerId(f"rehearsed://{pod.name}"),
                    containers_ready=True,
                    containers_ready_since=self.now,
                )

    def controllers(self) -> bool:
        """Run the controllers of workloads. Return True if they did anything."""
        before = dict(self._pods)
        for deployment in self._deployments():
            self._roll(deployment)
        return self._pods != before

    def _roll(self, deployment: Manifest) -> None:
        """Create surge pods, then remove old ones as new ones become ready (pkg/controller/deployment/rolling.go)."""
        fingerprint, settings = decode.fingerprint_of(deployment), _settings(deployment)
        replicas: int = deployment["spec"]["replicas"]
        rolling: Mapping[str, int] = deployment["spec"]["strategy"]["rollingUpdate"]
        alive = [pod for pod in self._pods.values() if pod.fingerprint == fingerprint and not pod.deleting]
        new = [pod for pod in alive if pod.settings == settings]
        old = [pod for pod in alive if pod.settings != settings]
        room = replicas + (rolling["maxSurge"] if old else 0) - len(alive)
        for _ in range(min(room, replicas - len(new))):
            self._create(
                deployment["metadata"]["name"],
                fingerprint,
                settings,
                desired.deployment_ranks(deployment),
                ordered=deployment["kind"] == LEADER_WORKER_SET,
            )
        spare = sum(pod.is_warm for pod in alive) - replicas + rolling["maxUnavailable"]
        for pod in sorted(old, key=_rank):
            if not pod.is_warm or spare > 0:
                spare -= pod.is_warm
                self._delete(pod)
        for pod in sorted(new, key=_rank)[: max(0, len(new) - replicas)]:
            self._delete(pod)

    def _create(
        self, deployment: str, fingerprint: Fingerprint, settings: str, ranks: int = 1, *, ordered: bool = False
    ) -> None:
        """Create a pod; `ordered` for that of a StatefulSet, which gets the lowest free ordinal."""
        self._made += 1
        name = f"{deployment}-{self._made:04d}"
        taken = {pod.ordinal for pod in self._pods.values() if pod.fingerprint == fingerprint and not pod.deleting}
        self._pods[name] = Pod(
            name=name,
            uid=name,
            fingerprint=fingerprint,
            created=timestamps.rfc3339(self.now),
            deleting=False,
            address="",
            containers_ready=False,
            containers_ready_since=None,
            container_id=NO_CONTAINER,
            slot=None,
            warmed=NO_CONTAINER,
            warm=None,
            draining_since=None,
            settings=settings,
            ranks=ranks,
            ordinal=next(ordinal for ordinal in count() if ordinal not in taken) if ordered else None,
        )

    def _delete(self, pod: Pod) -> None:
        self._pods[pod.name] = replace(pod, deleting=True)
        self._gone_at[pod.name] = self.now + TERMINATION


def _ready_at(pod: Pod, pace: SimulatedPace) -> datetime:
    created = timestamps.parse_time(pod.created)
    assert created is not None  # noqa: S101 - written by `_create`
    return created + pace.warm_after


def _rank(pod: Pod) -> tuple[bool, int, str]:
    """Return the order of deletion (ActivePodsWithRanks): not ready, then the lowest deletion cost.

    Of the leaders of a LeaderWorkerSet, that with the highest ordinal is deleted first.
    """
    if pod.ordinal is not None:
        return False, -pod.ordinal, pod.name
    return pod.is_warm, PodUpdate(pod.name, pod.uid, pod.slot, pod.draining_since).deletion_cost, pod.name


def _settings(deployment: Manifest) -> str:
    return str(deployment["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_SETTINGS])
