"""Encodes and decodes the records of a guest, which are stored in its PromptRoute.

The revisions of other groups are recorded on their Deployments, and their proofs on pods. A guest has neither, and the
pods of its host may serve hundreds of guests. So both are stored in the guest's PromptRoute: it is written anyway when
a slot or a weight changes, it is watched, and it is deleted with the guest.

An entry that cannot be decoded was written by another program, and is ignored. Does no I/O and reads no clock.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.api.guest_memory import GuestProof, GuestRevision, RouteGuest
from promptgroup_operator.base.timestamps import parse_time, rfc3339
from promptgroup_operator.world.engine_facts import MAX_NUMBER, UNKNOWN, Measured
from promptgroup_operator.world.snapshot import ContainerId, Manifest, Pod, PodCondition

MOST_REPLICAS = 2000
"""Maximum number of replicas of a revision, and of its proofs: twice the maximum of a host."""
MOST_REVISIONS = 200
"""Maximum number of revisions that are decoded: twice the longest history."""
MOST_MESSAGE = 512
"""Maximum number of characters of a proof's message that are stored."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The state of a guest's prompt on one container: warm there, or why it is not."""

    container: ContainerId
    condition: PodCondition
    measured: Measured = UNKNOWN
    """Facts that the guest's own warm-up measured: the length of the prefix, and the rate at which it was computed."""


@dataclass(frozen=True, slots=True)
class RecordedRevision:
    """A revision of a guest, as its PromptRoute records it."""

    fingerprint: Fingerprint
    created: str
    """RFC 3339."""
    replicas: int
    """Number of the host's replicas that keep it warm."""
    prompt_kind: str
    """Kind of the object that holds its prompt."""
    records: Mapping[str, str] = field(default_factory=dict)
    """The records of its release, as `rollout.annotations` encodes them."""
    proofs: Mapping[str, Proof] = field(default_factory=dict)
    """Pod → its proof."""


def encode(revisions: Iterable[RecordedRevision]) -> dict[str, Any]:
    """Encode `spec.guest` of a PromptRoute."""
    route_guest = RouteGuest(revisions=[_encode(revision) for revision in revisions])
    return route_guest.model_dump(mode="json", by_alias=True, exclude_none=True)


def _encode(revision: RecordedRevision) -> GuestRevision:
    return GuestRevision(
        fingerprint=revision.fingerprint,
        created=revision.created,
        replicas=revision.replicas,
        prompt_kind="Secret" if revision.prompt_kind == "Secret" else "ConfigMap",
        records=dict(revision.records) or None,
        warm=[_encode_proof(pod, proof) for pod, proof in sorted(revision.proofs.items())] or None,
    )


def _encode_proof(pod: str, proof: Proof) -> GuestProof:
    condition = proof.condition
    return GuestProof(
        pod=pod,
        container=proof.container,
        reason=condition.reason,
        message=condition.message[:MOST_MESSAGE],
        since=rfc3339(condition.since) if condition.since is not None else None,
        prefix_tokens=proof.measured.prefix_tokens,
        prefill_tokens_per_second=proof.measured.prefill_rate,
    )


def proofs_of(pods: Iterable[Pod]) -> dict[str, Proof]:
    """Return the proofs of the pods of a revision that are warm."""
    return {
        pod.name: Proof(pod.container_id, pod.warm, pod.own_measured)
        for pod in pods
        if pod.is_warm and pod.warm is not None
    }


def decode(route: Manifest | None) -> list[RecordedRevision]:
    """Decode the records of a guest in its PromptRoute; empty for another group, or without a route."""
    spec = route.get("spec") if route is not None else None
    guest = spec.get("guest") if isinstance(spec, Mapping) else None
    listed = guest.get("revisions") if isinstance(guest, Mapping) else None
    result = {}
    for raw in listed[:MOST_REVISIONS] if isinstance(listed, list) else ():
        revision = _decode(raw)
        if revision is not None:
            result[revision.fingerprint] = revision
    return list(result.values())


def _decode(raw: object) -> RecordedRevision | None:
    """Decode a revision; None if it is invalid. Invalid proofs are left out."""
    if not isinstance(raw, Mapping):
        return None
    try:
        revision = GuestRevision.model_validate({**raw, "warm": None}, strict=True)
    except ValidationError:
        return None
    if parse_time(revision.created) is None:
        return None
    warm = raw.get("warm")
    return RecordedRevision(
        fingerprint=revision.fingerprint,
        created=revision.created,
        replicas=min(revision.replicas, MOST_REPLICAS),
        prompt_kind=revision.prompt_kind,
        records=revision.records or {},
        proofs=dict(_decode_proofs(warm[:MOST_REPLICAS])) if isinstance(warm, list) else {},
    )


def _decode_proofs(listed: Iterable[object]) -> Iterator[tuple[str, Proof]]:
    for raw in listed:
        try:
            proof = GuestProof.model_validate(raw, strict=True)
        except ValidationError:
            continue
        if proof.pod and proof.container and proof.reason:
            since = parse_time(proof.since) if proof.since is not None else None
            condition = PodCondition("True", proof.reason, proof.message[:MOST_MESSAGE], since)
            measured = Measured(
                prefill_rate=_number(proof.prefill_tokens_per_second),
                prefix_tokens=_number(proof.prefix_tokens),
            )
            yield proof.pod, Proof(ContainerId(proof.container), condition, measured)


def _number(value: int) -> int:
    return value if value <= MAX_NUMBER else 0
