"""Many groups before an API server in memory, one pass at a time, with a count of the work that they make.

Controllers and kubelets act at once: a Deployment has its pods, whose containers run. Time passes when nothing is due.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from promptgroup_operator.act.group_writer import GroupWriter
from promptgroup_operator.base.errors import ClusterError, EngineError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.kube.leader_election import Term
from promptgroup_operator.kube.store import Store
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.passes import refresh_runner
from promptgroup_operator.passes.reconcile import Reconciler
from promptgroup_operator.passes.work_queue import WorkQueue
from promptgroup_operator.telemetry.metrics import OperatorMetrics
from promptgroup_operator.telemetry.pass_spans import PassSpans
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.lookup import KINDS
from promptgroup_operator.world.snapshot import Key, Reading, Spent
from promptgroup_operator.world.trimmed import trimmed
from promptgroup_operator.world.warming import Outcome, Refresh, RefreshAnswer, WarmReason, Warmup
from support.builders import CREATED

SPACE = "chat"
PREFIX = 96
"""Tokens of each prompt."""
COUNTERS = Reading(PREFIX, 0, 0, 0.0, 16, True, 400_000)
"""Of each engine: no client asks."""


class Warmups:
    """Warm-ups that end when the test says so."""

    def __init__(self) -> None:
        self.wanted: dict[Key, dict[str, Warmup]] = {}

    def want(self, key: Key, jobs: Any, now: object) -> None:
        self.wanted[key] = {job.container_id: job for job in jobs}

    def close(self) -> None:
        pass


class AtOnce:
    """A pool whose jobs run where they are submitted."""

    def submit(self, _: str, job: Callable[[], object]) -> None:
        job()

    def close(self) -> None:
        pass


class CountedFleet:
    """Groups of a namespace, the API server, and an operator whose passes run when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(EngineClient, "_request", _unanswered)
        monkeypatch.setattr(EngineClient, "read", lambda *_: COUNTERS)
        clock = SimpleNamespace(now=lambda _: self.began + timedelta(seconds=self.now))
        monkeypatch.setattr(refresh_runner, "datetime", clock)
        monkeypatch.setattr(refresh_runner, "_refreshed", self._refreshed)
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: Counter[str] = Counter()
        """Verb → requests."""
        self.passes: Counter[Key] = Counter()
        self.refreshed: Counter[str] = Counter()
        """Pod → refreshes of prompts in its cache."""
        self.began = datetime.now(UTC)  # warm-ups note when they end
        self.now = 0.0
        self.version = 0
        self.queue = WorkQueue(lambda: self.now, workers=8)
        self.queue._condition.wait = lambda _=None: setattr(self.queue, "_closed", True)  # type: ignore[method-assign]
        self.stores = {kind: Store(kind, self.queue.add) for kind in KINDS}
        reader = GroupReader(self, self.stores, clock=lambda: self.now)  # type: ignore[arg-type]
        writer = GroupWriter(self, Term(until=float("inf")), self.stores, reader.unwatched.cache)  # type: ignore[arg-type]
        self.engines = GroupEngines()
        self.reconciler = Reconciler(
            reader,
            writer,
            self.engines,
            queue=self.queue,
            settings=Settings(),
            metrics=OperatorMetrics(),
            spans=PassSpans({}),
        )
        self.reconciler._refreshes._pool = AtOnce()  # type: ignore[assignment]
        self.reconciler._warmups.close()
        self.warmups = self.reconciler._performer._warmups = Warmups()  # type: ignore[assignment]

    def close(self) -> None:
        self.reconciler.close()
        self.engines.close()

    # --- what a test does ------------------------------------------------------------------------------------

    def create(self, groups: int, replicas: int, prompt: str = "You are {}.") -> None:
        """Create groups, each with a prompt of its own; the youngest has its first pass first."""
        for number in range(groups):
            created = rfc3339(self.began - timedelta(seconds=number))
            spec = {"model": "llama", "prompt": {"system": prompt.format(number)}, "replicas": replicas}
            metadata = {"namespace": SPACE, "name": f"g{number:03}", "creationTimestamp": created}
            self.put({"kind": "PromptGroup", "metadata": metadata, "spec": {**spec, "engine": {"image": "vllm"}}})

    def create_guests(self, guests: int, replicas: int) -> None:
        """Create a host without a prompt, and guests with a prompt of each."""
        bare = {"model": "llama", "engine": {"image": "vllm"}, "replicas": replicas}
        for number in range(guests + 1):
            name = f"guest-{number:03}" if number else "pool"
            asked = {"engineFrom": {"promptGroup": "pool"}, "prompt": {"system": f"You are {name}."}}
            created = rfc3339(self.began - timedelta(seconds=number))
            metadata = {"namespace": SPACE, "name": name, "creationTimestamp": created}
            self.put({"kind": "PromptGroup", "metadata": metadata, "spec": asked if number else bare})

    def run(self, seconds: float = 0.0, most: int = 1_000_000) -> list[Key]:
        """Run what is due within some seconds, at most so many passes, and return the groups in order."""
        until, ran = self.now + seconds, []
        while len(ran) < most:
            key = self.queue.take()
            if key is not None:
                self.passes[key] += 1
                self.queue.done(key, self.reconciler.run(key, self.began + timedelta(seconds=self.now)))
                ran.append(key)
                continue
            self.queue._closed = False
            later = [self.queue._at(each) for each in self.queue._due]
            if not later or min(later) > until:
                self.now = until
                break
            self.now = min(later)
        return ran

    def warm_all(self) -> None:
        """End all warm-ups that are wanted."""
        for key, jobs in list(self.warmups.wanted.items()):
            for job in list(jobs.values()):
                self.warm(key, job)

    def warm(self, key: Key, job: Warmup) -> None:
        """End one warm-up; the kubelet sees the gate open."""
        proven = Outcome(WarmReason.PROVEN, "in cache", measured=Measured(prefix_tokens=PREFIX))
        self.reconciler._outcomes.report_warmup(key, job, proven)
        if job.shared:  # it opens no gate
            return
        pod = self.objects["Pod", job.pod]
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": CREATED}
        self.put({**pod, "status": {**pod["status"], "conditions": [*pod["status"]["conditions"], ready]}})

    def routed(self, key: Key) -> set[str]:
        """The pods that the group's route leads to."""
        route = self.objects.get(("PromptRoute", key.name), {"spec": {"revisions": []}})
        slots = (slot for revision in route["spec"]["revisions"] for slot in revision.get("slots", []))
        return {slot["pod"] for slot in slots if slot["state"] == "Ready"}

    def _refreshed(self, _: EngineClient, refresh: Refresh) -> RefreshAnswer:
        self.refreshed[refresh.pod] += 1
        return RefreshAnswer(COUNTERS, PREFIX, PREFIX, Spent(0, 0))

    def weights(self, name: str) -> list[int]:
        """The shares of the new sessions that a group's revisions get, the least first."""
        return sorted(item["weight"] for item in self.objects["PromptRoute", name]["spec"]["revisions"])

    # --- the API server --------------------------------------------------------------------------------------

    def put(self, found: dict[str, Any]) -> dict[str, Any]:
        """Store an object as somebody wrote it, and tell the watches of it."""
        self.version += 1
        kind, name = found["kind"], found["metadata"]["name"]
        known = {"uid": f"uid-{name}", "creationTimestamp": CREATED, "generation": 1}
        metadata = {**known, **found["metadata"], "resourceVersion": str(self.version)}
        self.objects[kind, name] = stored = {**found, "metadata": metadata}
        if kind in self.stores:
            self.stores[kind].put(trimmed(stored, kind))
        return stored

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str | None = None,
        query: Mapping[str, str] | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        self.calls["read" if method == "GET" else "write"] += 1
        path, status = path.removesuffix("/status"), path.endswith("/status")
        *_, plural, name = path.split("/")
        if method == "GET" and query is not None:
            return {"metadata": {"resourceVersion": str(self.version)}, "items": []}
        if method == "POST":
            assert body is not None
            name = body["metadata"].get("name", f"event-{self.version}")
            if (body["kind"], name) in self.objects:
                raise ClusterError("already exists", status=409)
            return self.put({**body, "metadata": {**body["metadata"], "name": name}})
        known = self.objects.get((_KINDS.get(plural, plural), name))
        if method == "GET":
            if known is None:
                raise ClusterError("not found", status=404)
            return known
        assert body is not None
        # server-side apply removes what its manager owns and does not name any more
        owned = {**(known or {}), "status": {}} if status and plural == "promptgroups" else known or {}
        merged = _merge(owned, {**body, "kind": _KINDS[plural]} if not status else dict(body))
        stored = self.put({**merged, "kind": _KINDS[plural]})
        if plural == "deployments":
            self._run_pods(stored)
        return stored

    def _run_pods(self, deployment: dict[str, Any]) -> None:
        template, name = deployment["spec"]["template"], deployment["metadata"]["name"]
        for number in range(deployment["spec"]["replicas"]):
            if ("Pod", pod := f"{name}-{number}") in self.objects:
                continue
            metadata = {"namespace": SPACE, "name": pod, **template["metadata"]}
            engine = {"name": "engine", "containerID": f"containerd://{pod}", "state": {"running": {}}, "ready": True}
            conditions = [{"type": "ContainersReady", "status": "True", "lastTransitionTime": CREATED}]
            status = {"phase": "Running", "podIP": "10.0.0.5", "containerStatuses": [engine], "conditions": conditions}
            self.put({"kind": "Pod", "metadata": metadata, "spec": template["spec"], "status": status})


_KINDS = {
    "deployments": "Deployment",
    "daemonsets": "DaemonSet",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "secrets": "Secret",
    "configmaps": "ConfigMap",
    "promptroutes": "PromptRoute",
    "promptgroups": "PromptGroup",
    "pods": "Pod",
}


def _merge(known: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Merge objects key by key, and conditions by type; null removes."""
    merged = dict(known)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = _merge(known.get(key) or {}, value)
        elif key == "conditions":
            types = {each["type"] for each in value}
            merged[key] = [*(each for each in known.get(key, []) if each["type"] not in types), *value]
        else:
            merged[key] = value
    return merged


def _unanswered(*_: object, **__: object) -> Any:
    raise EngineError("nobody answers")
