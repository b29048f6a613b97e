"""A PromptGroup, its PromptRoute and its pods → what is told of it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from promptgroup_operator.kube.decode import pod_of
from promptgroup_operator.plan.status import why_cold
from promptgroup_operator.world.snapshot import Key, Manifest, Pod
from promptgroup_router.contract import names


@dataclass(frozen=True, slots=True)
class Statement:
    """A condition that is not as it should be."""

    condition: str
    reason: str
    words: str
    """What it means."""
    message: str
    """What the operator says of it."""
    holds: bool
    """Whether the group waits for it to be Ready; else it is only worth knowing."""


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A replica: a place on the ring with the pod that holds it, a place without one, or a pod without a place."""

    slot: int | None
    pod: str
    """Empty when nobody holds the slot."""
    state: str
    """Ready, Draining or Absent, as routers are told; Terminating; Cold where the pod has no slot yet."""
    warm: str
    """Status of its pod's condition prefix-warm: True, False, Unknown; empty where no pod is, or one that ends."""
    reason: str
    message: str
    """Why it is warm, or is not."""


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A prompt of the group, with its replicas."""

    fingerprint: str
    phase: str
    weight: int
    replicas: int
    warm: int
    ready: int
    slots: tuple[SlotRow, ...]


@dataclass(frozen=True, slots=True)
class SizingRow:
    """Why there are so many replicas."""

    least: int | None
    most: int | None
    """Bounds of spec.sizing; None where the operator does not decide the number."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """What is told of a group."""

    key: Key
    model: str
    ready: bool
    """Whether it is Ready for its present spec."""
    revision: str
    """Short fingerprint of the one that it wants to serve; empty before the operator has looked."""
    warm: str
    """As in 3/4."""
    replicas: int
    """Of all revisions."""
    hit_rate: str
    """As in 93%; empty when nothing is known."""
    sizing: SizingRow
    said: tuple[Statement, ...]
    """What it waits for first, in the order in which one leads to the next; then what is worth knowing."""
    revisions: tuple[RevisionRow, ...]
    """The newest first."""


@dataclass(frozen=True, slots=True)
class _Meaning:
    wanted: str
    """Status that is as it should be."""
    words: str
    holds: bool = True


MEANINGS: Final[Mapping[str, _Meaning]] = {
    "Accepted": _Meaning("True", "the spec cannot be acted on"),
    "ResolvedRefs": _Meaning("True", "something that the spec refers to is not there"),
    "PrefixWarm": _Meaning("True", "not every replica is proven warm"),
    "RouterProgrammed": _Meaning("True", "routers have no replica to send to"),
    "Ready": _Meaning("True", "it does not serve as wanted"),
    "Degraded": _Meaning("False", "something keeps it from its wanted state", holds=False),
    "CacheEffective": _Meaning("True", "what repeats in prompts is not found in cache", holds=False),
    "ScalingActive": _Meaning("True", "the load is not known, the number of replicas is held", holds=False),
    "ScalingLimited": _Meaning("False", "bounds or policies hold the number of replicas back", holds=False),
}
"""Conditions in the order in which one leads to the next."""


def group_status(group: Manifest, route: Manifest | None, pods: Sequence[Manifest]) -> GroupStatus:
    """What is told of a group.

    Args:
        group: the PromptGroup.
        route: its PromptRoute, if there is one.
        pods: its pods.
    """
    metadata, spec, status = group["metadata"], group["spec"], group.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    seen = status.get("observedGeneration") == metadata["generation"]
    sizing, active = spec.get("sizing"), conditions.get("ScalingActive", {})
    return GroupStatus(
        key=Key(metadata["namespace"], metadata["name"]),
        model=spec["model"],
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
        said=tuple(_said(metadata["generation"], status, conditions, sized=bool(sizing))),
        revisions=tuple(_revisions(status, route, [pod_of(each, names.PORT_ENGINE) for each in pods])),
    )


def _said(
    generation: int, status: Mapping[str, Any], conditions: Mapping[str, Manifest], *, sized: bool
) -> Iterator[Statement]:
    observed = status.get("observedGeneration", -1)
    if observed < 0:
        text = "is it running? `kubectl get deployments -A -l app.kubernetes.io/name=promptgroup-operator`"
        yield Statement("", "NotObserved", "no operator has looked at it yet", text, holds=True)
        return
    if observed != generation:
        text = f"generation {generation} is wanted, what follows is of {observed}"
        yield Statement("", "NotObserved", "the operator has not acted on the latest change yet", text, holds=True)
    told = set()
    for kind, meaning in MEANINGS.items():
        found = conditions.get(kind)
        if found is None or found["status"] == meaning.wanted or (kind == "ScalingActive" and not sized):
            continue
        if kind == "CacheEffective" and found["status"] == "Unknown":
            continue
        if found["reason"] not in told:  # one cause is told by several conditions: the first of them is enough
            yield Statement(kind, found["reason"], meaning.words, found.get("message", ""), meaning.holds)
        told.add(found["reason"])


def _revisions(status: Mapping[str, Any], route: Manifest | None, pods: Sequence[Pod]) -> Iterator[RevisionRow]:
    routed = {each["fingerprint"]: each for each in route["spec"]["revisions"]} if route is not None else {}
    for each in status.get("revisions", []):
        fingerprint = each["fingerprint"]
        own = [pod for pod in pods if pod.fingerprint == fingerprint]
        yield RevisionRow(
            fingerprint=fingerprint,
            phase=each.get("phase", ""),
            weight=each["weight"],
            replicas=each["replicas"],
            warm=each["warm"],
            ready=each["ready"],
            slots=tuple(_slots(routed.get(fingerprint, {}).get("slots", []), own)),
        )


def _slots(routed: Sequence[Mapping[str, Any]], pods: Sequence[Pod]) -> Iterator[SlotRow]:
    """Slots by number, then the pods that hold none."""
    by_name = {pod.name: pod for pod in pods}
    holders = set()
    for each in sorted(routed, key=lambda slot: int(slot["slot"])):
        pod = by_name.get(each.get("pod", ""))
        holders.add(each.get("pod", ""))
        yield _slot(each["slot"], each["state"], each.get("pod", ""), pod)
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
