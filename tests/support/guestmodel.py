"""A guest and its host without a cluster: what a plan asks for happens at once, on pods that the test names."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import Prompt, PromptRef
from promptgroup_operator.api.prompt_group import PromptGroupSpec, parse_spec
from promptgroup_operator.guests import copies, host, record
from promptgroup_operator.guests import revisions as guest_revisions
from promptgroup_operator.guests.record import Proof
from promptgroup_operator.plan import desired, plan, prompt_route
from promptgroup_operator.plan.plan import Plan
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import GroupLoad
from promptgroup_operator.world.samples import Traffic
from promptgroup_operator.world.snapshot import (
    ContainerId,
    GroupObject,
    Key,
    Manifest,
    Pod,
    PodCondition,
    PromptText,
    World,
)
from support import builders


def guest_spec(**fields: Any) -> PromptGroupSpec:
    """The spec of a guest of `pool`."""
    raw = {"engineFrom": {"promptGroup": "pool"}, "prompt": {"system": builders.TEXT}, **fields}
    return parse_spec(raw)


@dataclass
class GuestModel:
    """A guest, its PromptRoute and what its warm-ups found."""

    pods: list[Pod]
    spec: PromptGroupSpec = field(default_factory=guest_spec)
    text: PromptText = field(default_factory=builders.text)
    host_spec: PromptGroupSpec | None = field(default_factory=builders.spec)
    name: str = "support"
    now: datetime = builders.NOW
    traffic: Traffic | None = None
    load: GroupLoad | None = None
    share: float | None = None
    """Share of the host's work that the guest brings."""
    refused: frozenset[str] = frozenset()
    """Pods whose warm-up fails."""
    status: Mapping[str, Any] = field(default_factory=dict)
    live: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    proofs: dict[tuple[ContainerId, Fingerprint], Proof] = field(default_factory=dict)
    texts: dict[Fingerprint, Prompt] = field(default_factory=dict)
    writes: int = 0
    warmed: list[tuple[str, Fingerprint]] = field(default_factory=list)
    """Pod and revision of every warm-up."""

    @property
    def route(self) -> Manifest | None:
        return self.live.get(("PromptRoute", self.name))

    def world(self) -> World:
        """The world of a pass."""
        problem = host.problem("pool", self.spec, self.host_spec)
        gateway = self.host_spec.gateway if self.host_spec is not None else None
        serving = host.replicas("pool", self.pods if problem is None else (), {}, problem, gateway=gateway)
        spec = host.served(self.spec, self.host_spec if problem is None else None, len(serving.pods), "llama")
        group = GroupObject(Key("chat", self.name), f"uid-{self.name}", 1, builders.CREATED, spec, self.status)
        self.texts[self.text.fingerprint] = self.text.prompt
        standing, holding = prompt_route.standing(self.route), guest_revisions.holders(self.route)
        found = [
            guest_revisions.revision(
                self.name,
                each,
                PromptRef(each.prompt_kind, desired.name(group, each.fingerprint)),
                self.texts[each.fingerprint],
                serving,
                standing=standing.get(each.fingerprint, (0, {})),
                holding=holding.get(each.fingerprint, {}),
            )
            for each in record.decode(self.route)
        ]
        return World(
            copies.placed(group, serving, found, self.share),
            self.text,
            guest_revisions.with_outcomes(found, self.proofs, serving.leaving),
            (),
            dict(self.live),
            traffic=self.traffic,
            load=self.load,
            host=serving,
        )

    def step(self) -> Plan:
        """Run a pass and let what it asks for happen."""
        world = self.world()
        todo = plan.decide(world, self.now)
        for manifest in [*plan.unwritten(world, todo), *([todo.route] if plan.route_unwritten(world, todo) else [])]:
            assert manifest is not None
            self.writes += 1
            metadata = {**manifest["metadata"], "uid": manifest["metadata"]["name"]}
            self.live[manifest["kind"], manifest["metadata"]["name"]] = {**manifest, "metadata": metadata}
        for deletion in todo.deletions:
            self.writes += 1
            del self.live[deletion.kind, deletion.name]
        for job in todo.warmups:
            self.warmed.append((job.pod, job.prompt.fingerprint))
            warm = job.pod not in self.refused
            reason, message = ("PrefixCached", "as rehearsed") if warm else ("WarmupRefused", "status 400")
            said = PodCondition(str(warm), reason, message, self.now)
            proof = Proof(job.container_id if warm else ContainerId(""), said, Measured(prefix_tokens=96))
            self.proofs[job.container_id, job.prompt.fingerprint] = proof
        if todo.status is not None and todo.status != self.status:
            self.writes += 1
            self.status = todo.status
        return todo

    def settle(self, most: int = 20) -> int:
        """Run passes until one writes nothing and wants no warm-up; return how many ran."""
        for count in range(1, most + 1):
            before = self.writes
            if not self.step().warmups and self.writes == before:
                return count
        raise AssertionError(f"no rest after {most} passes")

    def ready(self, system: str | None = None) -> set[str]:
        """Pods that the route lets routers send to, of the revision of a prompt."""
        wanted = builders.text(system).fingerprint if system is not None else self.text.fingerprint
        listed = self.route["spec"]["revisions"] if self.route is not None else []
        return {
            slot["pod"]
            for each in listed
            if each["fingerprint"] == wanted
            for slot in each["slots"]
            if slot["state"] == "Ready"
        }

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        return next((each["status"], each["reason"]) for each in self.status["conditions"] if each["type"] == kind)

    def restart(self) -> None:
        """Let another operator go on: what is not in the cluster is lost."""
        self.proofs.clear()

    def replace_container(self, name: str) -> None:
        """Let the engine of a pod be another process."""
        self.pods = [
            replace(pod, container_id=ContainerId(f"containerd://{name}-again")) if pod.name == name else pod
            for pod in self.pods
        ]


def host_pods(names: Iterable[str]) -> list[Pod]:
    """Warm replicas of a host."""
    return [builders.pod(name, slot) for slot, name in enumerate(names)]
