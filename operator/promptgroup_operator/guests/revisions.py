"""Builds the revisions of a guest from the records in its PromptRoute and the pods of its host.

A pod of the host becomes a replica of each revision that is placed on it, with the slot and the proof of that revision.
A pass over the guest writes to no pod, so a view has neither a drain nor an InferencePool.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import Prompt, PromptRef, SlotState
from promptgroup_operator.guests.placement import placed
from promptgroup_operator.guests.record import Proof, RecordedRevision
from promptgroup_operator.rollout import annotations
from promptgroup_operator.warmth.warmup import SELF_MENDING
from promptgroup_operator.world.engine_facts import completed
from promptgroup_operator.world.snapshot import (
    NO_CONTAINER,
    ContainerId,
    Host,
    Manifest,
    Pod,
    RevisionState,
)

Outcomes = Mapping[tuple[ContainerId, Fingerprint], Proof]
"""Container and revision → result of a warm-up or refresh by this process, which may not be in the route yet."""


def revision(
    guest: str,
    recorded: RecordedRevision,
    prompt_from: PromptRef,
    prompt: Prompt | None,
    serving: Host,
    *,
    standing: tuple[int, Mapping[int, SlotState]],
    holding: Mapping[str, int],
) -> RevisionState:
    """Return a revision of a guest.

    Args:
        guest: name of the guest.
        recorded: the record in its PromptRoute.
        prompt_from: the object that holds its prompt.
        prompt: the prompt; None if that object does not exist.
        serving: its host. A replica that terminates or drains is included as long as the revision holds a slot there,
            since possibly no other replica is warm yet (`with_outcomes`).
        standing: its weight and slots in the PromptRoute.
        holding: pod → its slot there, for slots that do not drain.
    """
    weight, slots = standing
    chosen = placed(serving.pods, recorded.replicas, guest, holding.keys())
    chosen += [pod for pod in serving.leaving if pod.name in holding and recorded.replicas]
    return RevisionState(
        fingerprint=recorded.fingerprint,
        deployment=prompt_from.name,
        created=recorded.created,
        replicas=recorded.replicas,
        superseded_at=annotations.superseded_at(recorded.records),
        prompt_from=prompt_from,
        prompt=prompt,
        pods=tuple(
            _seen(pod, recorded.fingerprint, holding.get(pod.name), recorded.proofs.get(pod.name))
            for pod in sorted(chosen, key=lambda pod: pod.name)
        ),
        weight=weight,
        slots=slots,
        progress=annotations.progress(recorded.records),
        rolled_back=annotations.rolled_back(recorded.records),
    )


def holders(route: Manifest | None) -> dict[Fingerprint, dict[str, int]]:
    """Return fingerprint → pod → slot, for the slots that are Ready in a PromptRoute."""
    listed = route.get("spec", {}).get("revisions", []) if route is not None else []
    return {
        Fingerprint(item.get("fingerprint", "")): {
            slot["pod"]: slot["slot"]
            for slot in item.get("slots", [])
            if slot.get("pod") and slot.get("state") == SlotState.READY
        }
        for item in listed
    }


def with_outcomes(
    revisions: Sequence[RevisionState], outcomes: Outcomes, leaving: Iterable[Pod] = ()
) -> tuple[RevisionState, ...]:
    """Return the revisions with the results of warm-ups and refreshes since the PromptRoute was written.

    Args:
        revisions: the revisions according to their PromptRoute.
        outcomes: the results since then.
        leaving: replicas of the host that terminate or drain. They serve a revision until another replica is warm for
            it, or cannot become warm: a terminating engine answers until its requests have ended.
    """
    going = {pod.name for pod in leaving}

    def newest(pod: Pod) -> Pod:
        outcome = outcomes.get((pod.container_id, pod.fingerprint))
        return _with_proof(pod, outcome) if outcome is not None else pod

    def serving(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        stay = tuple(pod for pod in pods if pod.name not in going)
        comes = any(pod.warm is None or pod.warm.reason in SELF_MENDING for pod in stay)
        if any(pod.is_warm for pod in stay) or not comes:
            return stay
        return stay + tuple(replace(pod, deleting=False) for pod in pods if pod.name in going)

    return tuple(
        replace(revision_state, pods=serving(tuple(newest(pod) for pod in revision_state.pods)))
        for revision_state in revisions
    )


def _seen(pod: Pod, fingerprint: Fingerprint, slot: int | None, proof: Proof | None) -> Pod:
    """Return a host's pod in the view of a guest's revision."""
    own = replace(
        pod,
        fingerprint=fingerprint,
        slot=slot,
        warmed=NO_CONTAINER,
        warm=None,
        measured=replace(pod.measured, prefix_tokens=0),
        draining_since=None,
        inference_pool="",
        last_seen=None,
    )
    return _with_proof(own, proof) if proof is not None else own


def _with_proof(pod: Pod, proof: Proof) -> Pod:
    warm = proof.condition.status == "True"
    own = completed(proof.measured, pod.own_measured)
    return replace(
        pod,
        warmed=proof.container if warm else NO_CONTAINER,
        warm=proof.condition,
        own_measured=own,
        measured=completed(own, pod.measured),
    )
