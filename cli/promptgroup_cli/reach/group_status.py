"""Makes the status of a group from its PromptGroup, its PromptRoute and its pods. Does no I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from promptgroup_contract import names
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.base.timestamps import parse_time
from promptgroup_operator.guests import record
from promptgroup_operator.guests.record import Proof
from promptgroup_operator.observe.decode import pod_of
from promptgroup_operator.plan.status import why_cold
from promptgroup_operator.starts.phase import all_starting
from promptgroup_operator.world.snapshot import Key, Manifest, Pod


@dataclass(frozen=True, slots=True)
class Statement:
    """A condition whose status is not the wanted one."""

    condition: str
    reason: str
    words: str
    """Meaning of the condition."""
    message: str
    """Message of the operator."""
    holds: bool
    """True if it keeps the group from being Ready."""


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A slot with the pod that holds it, a slot that no pod holds, or a pod without a slot."""

    slot: int | None
    pod: str
    """Name of the pod; empty when none holds the slot."""
    state: str
    """Ready, Draining or Absent, as the PromptRoute has it; Terminating; Cold for a pod that has no slot yet."""
    warm: str
    """Status of the pod's condition prefix-warm: True, False, Unknown; empty without a live pod."""
    reason: str
    message: str
    """Message of that condition."""


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A revision of the group, with its replicas."""

    fingerprint: Fingerprint
    phase: str
    weight: int
    replicas: int
    warm: int
    ready: int
    slots: tuple[SlotRow, ...]


@dataclass(frozen=True, slots=True)
class SizingRow:
    """The number of replicas that sizing chose, and its reason."""

    least: int | None
    most: int | None
    """Limits of spec.sizing; None for a group without it."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class StartRow:
    """A replica that starts."""

    pod: str
    phase: str
    seconds: int | None
    """Seconds since the phase began; None where it is unknown."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of a group."""

    key: Key
    model: str
    aliases: tuple[str, ...]
    """Other names of the model."""
    adapter: str
    """Name of the LoRA adapter that it serves in the place of the model; empty without one."""
    host: str
    """The PromptGroup whose replicas serve it; empty for one with an engine of its own."""
    ready: bool
    """True if it is Ready for its present spec."""
    revision: str
    """Short fingerprint of the wanted revision; empty before the first pass of the operator."""
    warm: str
    """Warm and wanted replicas, as in 3/4."""
    replicas: int
    """Replicas of all revisions."""
    hit_rate: str
    """Hit rate, as in 93%; empty when it is unknown."""
    sizing: SizingRow
    starting: tuple[StartRow, ...]
    """Replicas that start, the least advanced first."""
    start: Mapping[str, Any]
    """Durations of the latest starts, as the status has them; empty where none is recorded."""
    prefetch: Mapping[str, Any]
    """Nodes that pull the weights ahead, as the status has them; empty for a group without that."""
    statements: tuple[Statement, ...]
    """Conditions that keep it from being Ready, causes before effects; then the notes."""
    revisions: tuple[RevisionRow, ...]
    """Revisions, the newest first."""


@dataclass(frozen=True, slots=True)
class _Meaning:
    wanted: str
    """Wanted status of the condition."""
    words: str
    holds: bool = True


MEANINGS: Final[Mapping[str, _Meaning]] = {
    "Accepted": _Meaning("True", "The spec is not accepted"),
    "ResolvedRefs": _Meaning("True", "An object that the spec refers to is missing"),
    "PrefixWarm": _Meaning("True", "Not every replica is warm"),
    "RouterProgrammed": _Meaning("True", "Routers have no replica to send to"),
    "Ready": _Meaning("True", "The group does not serve as wanted"),
    "GatewayProgrammed": _Meaning("True", "No gateway uses the group's InferencePool", holds=False),
    "GatewayLimits": _Meaning("False", "Fields of the group have no effect behind a gateway", holds=False),
    "AliasesServed": _Meaning("True", "An alias of the model stands for something else", holds=False),
    "PromptsFit": _Meaning("True", "Prompts leave sessions too little of the KV cache", holds=False),
    "Degraded": _Meaning("False", "The group is kept from its wanted state", holds=False),
    "CacheEffective": _Meaning("True", "Caches do not hold what prompts repeat", holds=False),
    "ScalingActive": _Meaning("True", "The load is not known, so the number of replicas is kept", holds=False),
    "ScalingLimited": _Meaning(
        "False", "Limits or policies keep the number of replicas from the wanted one", holds=False
    ),
}
"""Conditions, causes before effects."""


def group_status(
    group: Manifest,
    route: Manifest | None,
    pods: Sequence[Manifest],
    kubectl: str = "kubectl",
    now: datetime | None = None,
) -> GroupStatus:
    """Return the status of a group.

    Args:
        group: the PromptGroup.
        route: its PromptRoute, if there is one.
        pods: its pods.
        kubectl: beginning of the command lines that it names.
        now: the time; None to leave out how long no operator has acted.
    """
    metadata, spec, status = group["metadata"], group["spec"], group.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    seen = status.get("observedGeneration") == metadata["generation"]
    sizing, active = spec.get("sizing"), conditions.get("ScalingActive", {})
    decoded = [pod_of(pod, names.PORT_ENGINE) for pod in pods]
    return GroupStatus(
        key=Key(metadata["namespace"], metadata["name"]),
        model=spec.get("model", "") or (route["spec"]["model"] if route is not None else ""),  # a guest may name none
        aliases=tuple(spec.get("modelAliases", ())),
        adapter=spec.get("adapter", {}).get("name", ""),
        host=spec.get("engineFrom", {}).get("promptGroup", ""),
        ready=seen and conditions.get("Ready", {}).get("status") == "True",
        revision=status.get("revision", ""),
        warm=status.get("warm", ""),
        replicas=status.get("replicas", 0),
        hit_rate=status.get("hitRate", ""),
        sizing=SizingRow(
            least=sizing["minReplicas"] if sizing else None,
            most=sizing["maxReplicas"] if sizing else None,
            reason=active.get("reason", ""),
            message=active.get("message", ""),
        ),
        starting=tuple(_starting(decoded, now)),
        start=status.get("start", {}),
        prefetch=status.get("prefetch", {}),
        statements=(
            *_unseen(metadata, status, kubectl, now),
            *(_said(conditions, sized=bool(sizing)) if status.get("observedGeneration", -1) >= 0 else ()),
        ),
        revisions=tuple(_revisions(status, route, decoded)),
    )


def _starting(pods: Sequence[Pod], now: datetime | None) -> Iterator[StartRow]:
    for item in all_starting(pods):
        seconds = max(0, int((now - item.since).total_seconds())) if now and item.since else None
        yield StartRow(item.pod, item.phase.value, seconds)


SILENT = timedelta(minutes=1)
"""Time after a change from which on an operator that has not acted on it is not expected to: a pass takes seconds."""


def _unseen(metadata: Manifest, status: Mapping[str, Any], kubectl: str, now: datetime | None) -> Iterator[Statement]:
    """Yield that no operator has acted on the group as it is, and whether one still may."""
    generation, observed = metadata["generation"], status.get("observedGeneration", -1)
    if observed == generation:
        return
    subject = "this group" if observed < 0 else "the latest change"
    silence = now - _changed(metadata) if now is not None else timedelta()
    query = f"`{kubectl} get deployments -A -l app.kubernetes.io/name=promptgroup-operator`"
    if silence >= SILENT:
        words = f"No operator acts on {subject}"
        text = (
            f"{words}, made {_age(silence)} ago: none runs, or none serves namespace {metadata['namespace']} "
            f"(its flag --namespaces), or it cannot write; {query} shows whether one runs"
        )
        yield Statement("", "NobodyActs", words, text, holds=True)
    elif observed < 0:
        words = "No operator has seen this group yet"
        yield Statement("", "NotObserved", words, f"{words}; {query} shows whether one runs", holds=True)
    if observed >= 0:
        text = f"The operator has not seen generation {generation} yet; the following is of generation {observed}"
        yield Statement("", "NotObserved", "The operator has not acted on the latest change yet", text, holds=True)


def _changed(metadata: Manifest) -> datetime:
    """Return the time of the latest change of a group other than of its status."""
    fields = metadata.get("managedFields") or ()
    times = [field.get("time") for field in fields if not field.get("subresource")]
    result = [parse_time(item) for item in (metadata["creationTimestamp"], *times)]
    return max(item for item in result if item is not None)


def _age(span: timedelta) -> str:
    minutes = int(span.total_seconds()) // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def _said(conditions: Mapping[str, Manifest], *, sized: bool) -> Iterator[Statement]:
    result = set()
    for kind, meaning in MEANINGS.items():
        condition = conditions.get(kind)
        if condition is None or condition["status"] == meaning.wanted or (kind == "ScalingActive" and not sized):
            continue
        if kind == "CacheEffective" and condition["status"] == "Unknown":
            continue
        if condition["reason"] not in result:  # several conditions state one cause: the first of them is enough
            yield Statement(kind, condition["reason"], meaning.words, condition.get("message", ""), meaning.holds)
        result.add(condition["reason"])


def _revisions(status: Mapping[str, Any], route: Manifest | None, pods: Sequence[Pod]) -> Iterator[RevisionRow]:
    routed = {revision["fingerprint"]: revision for revision in route["spec"]["revisions"]} if route is not None else {}
    proofs = {recorded_revision.fingerprint: recorded_revision.proofs for recorded_revision in record.decode(route)}
    for revision in status.get("revisions", []):
        fingerprint = Fingerprint(revision["fingerprint"])
        own = [pod for pod in pods if pod.fingerprint == fingerprint]
        yield RevisionRow(
            fingerprint=fingerprint,
            phase=revision.get("phase", ""),
            weight=revision["weight"],
            replicas=revision["replicas"],
            warm=revision["warm"],
            ready=revision["ready"],
            slots=tuple(_slots(routed.get(fingerprint, {}).get("slots", []), own, proofs.get(fingerprint, {}))),
        )


def _slots(routed: Sequence[Mapping[str, Any]], pods: Sequence[Pod], proofs: Mapping[str, Proof]) -> Iterator[SlotRow]:
    """Yield the slots by number, then the pods that hold none. A guest has proofs on pods of its host."""
    by_name = {pod.name: pod for pod in pods}
    holders = set()
    for item in sorted(routed, key=lambda slot: int(slot["slot"])):
        pod = by_name.get(item.get("pod", ""))
        holders.add(item.get("pod", ""))
        if (proof := proofs.get(item.get("pod", ""))) is not None:
            condition = proof.condition
            yield SlotRow(
                item["slot"], item["pod"], item["state"], condition.status, condition.reason, condition.message
            )
            continue
        yield _slot(item["slot"], item["state"], item.get("pod", ""), pod)
    for pod in sorted(pods, key=lambda pod: pod.name):
        if pod.name not in holders:
            yield _slot(pod.slot, "Terminating" if pod.deleting else "Cold", pod.name, pod)


def _slot(number: int | None, state: str, name: str, pod: Pod | None) -> SlotRow:
    if pod is None or pod.deleting:
        return SlotRow(number, name, state, "", "", "")
    if pod.is_warm and pod.warm is not None:
        return SlotRow(number, name, state, pod.warm.status, pod.warm.reason, pod.warm.message)
    cold = why_cold(pod)
    return SlotRow(number, name, state, pod.warm.status if pod.warm else "Unknown", cold.reason, cold.message)
