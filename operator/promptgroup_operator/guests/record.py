"""Encodes and decodes what is remembered of a guest, in its PromptRoute.

The revisions of other groups are remembered on their Deployments, and their proofs on pods. A guest has neither, and
the pods of its host may serve hundreds of guests. So both stand in the guest's PromptRoute: it is written anyway when a
slot or a weight changes, it is watched, and it is deleted with the guest.

Whatever cannot be read, somebody else wrote: it is as good as not there. Does no I/O and reads no clock.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.base.timestamps import parse_time, rfc3339
from promptgroup_operator.world.engine_facts import MAX_NUMBER, UNKNOWN, Measured
from promptgroup_operator.world.snapshot import ContainerId, Manifest, Pod, PodCondition

MOST_REPLICAS = 2000
"""Most replicas that a revision is taken to have: twice what a host may have."""
MOST_REVISIONS = 200
"""Most revisions that are read: twice the longest history."""
MOST_MESSAGE = 512
"""Most characters that are kept of a proof's message."""
_FINGERPRINT = 32


@dataclass(frozen=True, slots=True)
class Proof:
    """The state of a guest's prompt on one container: warm there, or why it is not."""

    container: ContainerId
    condition: PodCondition
    measured: Measured = UNKNOWN
    """Facts that the guest's own warm-up measured: the length of the prefix, and the rate at which it was computed."""


@dataclass(frozen=True, slots=True)
class RecordedRevision:
    """A revision of a guest, as its PromptRoute remembers it."""

    fingerprint: Fingerprint
    created: str
    """RFC 3339."""
    replicas: int
    """Replicas of the host that shall keep it warm."""
    prompt_kind: str
    """Kind of the object that holds its prompt."""
    records: Mapping[str, str] = field(default_factory=dict)
    """The records of its release, as `rollout.annotations` encodes them."""
    proofs: Mapping[str, Proof] = field(default_factory=dict)
    """Pod → its proof."""


def encode(revisions: Iterable[RecordedRevision]) -> dict[str, Any]:
    """Encode `spec.guest` of a PromptRoute."""
    return {"revisions": [_encode(revision) for revision in revisions]}


def _encode(revision: RecordedRevision) -> dict[str, Any]:
    result: dict[str, Any] = {
        "fingerprint": revision.fingerprint,
        "created": revision.created,
        "replicas": revision.replicas,
        "promptKind": revision.prompt_kind,
    }
    if revision.records:
        result["records"] = dict(revision.records)
    if revision.proofs:
        result["warm"] = [_encode_proof(pod, proof) for pod, proof in sorted(revision.proofs.items())]
    return result


def _encode_proof(pod: str, proof: Proof) -> dict[str, Any]:
    condition = proof.condition
    result = {
        "pod": pod,
        "container": proof.container,
        "reason": condition.reason,
        "message": condition.message[:MOST_MESSAGE],
        "prefixTokens": proof.measured.prefix_tokens,
        "prefillTokensPerSecond": proof.measured.prefill_rate,
    }
    return result | ({"since": rfc3339(condition.since)} if condition.since is not None else {})


def proofs_of(pods: Iterable[Pod]) -> dict[str, Proof]:
    """Return the proofs of the pods of a revision that are warm."""
    return {
        pod.name: Proof(pod.container_id, pod.warm, pod.own_measured)
        for pod in pods
        if pod.is_warm and pod.warm is not None
    }


def decode(route: Manifest | None) -> list[RecordedRevision]:
    """Decode what a PromptRoute remembers of a guest; nothing if it is none, or there is no route."""
    spec = route.get("spec") if route is not None else None
    guest = spec.get("guest") if isinstance(spec, Mapping) else None
    listed = guest.get("revisions") if isinstance(guest, Mapping) else None
    result = {}
    for item in listed[:MOST_REVISIONS] if isinstance(listed, list) else ():
        revision = _decode(item)
        if revision is not None:
            result[revision.fingerprint] = revision
    return list(result.values())


def _decode(raw: object) -> RecordedRevision | None:
    if not isinstance(raw, Mapping):
        return None
    fingerprint, created, replicas = _text(raw, "fingerprint"), _text(raw, "created"), raw.get("replicas")
    digits = len(fingerprint) == _FINGERPRINT and all(digit in "0123456789abcdef" for digit in fingerprint)
    if not digits or parse_time(created) is None or type(replicas) is not int or replicas < 0:
        return None
    records = raw.get("records")
    warm = raw.get("warm")
    return RecordedRevision(
        fingerprint=Fingerprint(fingerprint),
        created=created,
        replicas=min(replicas, MOST_REPLICAS),
        prompt_kind="Secret" if raw.get("promptKind") == "Secret" else "ConfigMap",
        records={key: value for key, value in records.items() if isinstance(key, str) and isinstance(value, str)}
        if isinstance(records, Mapping)
        else {},
        proofs=dict(_decode_proofs(warm[:MOST_REPLICAS])) if isinstance(warm, list) else {},
    )


def _decode_proofs(raw: Iterable[object]) -> Iterator[tuple[str, Proof]]:
    for item in raw:
        if not isinstance(item, Mapping):
            continue
        pod, container, reason = _text(item, "pod"), _text(item, "container"), _text(item, "reason")
        if pod and container and reason:
            since = parse_time(_text(item, "since"))
            pod_condition = PodCondition("True", reason, _text(item, "message")[:MOST_MESSAGE], since)
            rate, tokens = _number(item, "prefillTokensPerSecond"), _number(item, "prefixTokens")
            yield pod, Proof(ContainerId(container), pod_condition, Measured(prefill_rate=rate, prefix_tokens=tokens))


def _number(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    return value if type(value) is int and 0 <= value <= MAX_NUMBER else 0


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""
