"""Decides which pod holds which slot of its revision's ring.

A slot is written on its pod as a label, so the assignment is read from the cluster and survives the operator.
Rules, in order:

    1. a pod that terminates holds nothing: its slot is free at once for the pod that replaces it
    2. of two pods that claim one slot the warm one keeps it, then the older
    3. a warm pod without a slot takes the lowest free one of the ring
    4. when none is free, it takes the slot of a holder that is not warm: an update of broken pods must not stick
    5. a pod whose slot left the ring takes a free one only once nothing runs on it; until then it drains

`rollout/kept_slots.py` decides which slots the ring has.
"""

from collections.abc import Mapping, Sequence

from promptgroup_operator.world.snapshot import Pod, by_claim
from promptgroup_operator.world.snapshot import holders as holders_of


def assign(pods: Sequence[Pod], ring: frozenset[int]) -> dict[str, int]:
    """Return pod name → slot, for every pod of one revision that shall hold one.

    Args:
        pods: the pods of one revision.
        ring: its slots. A pod with another one keeps it while it drains.
    """
    holders = holders_of(pods)
    held = {pod.name for pod in holders.values()}
    free = sorted(ring - holders.keys())
    for slot in sorted(holders.keys() - ring):
        pod = holders[slot]
        if free and (pod.in_flight == 0 or not pod.is_warm):
            holders[free.pop(0)] = holders.pop(slot)
    for pod in by_claim(pods):
        if not pod.is_warm or pod.name in held:
            continue
        if free:
            holders[free.pop(0)] = pod
            continue
        cold = next((slot for slot in sorted(ring & holders.keys()) if not holders[slot].is_warm), None)
        if cold is not None:
            holders[cold] = pod
    return {pod.name: slot for slot, pod in holders.items()}


def leaving(pods: Sequence[Pod], held: Mapping[str, int], ring: frozenset[int], deployed: int) -> set[str]:
    """Return the names of the pods to remove: those whose slot left the ring, and those without one where too many are.

    Beside the ring stand the pods of an update, which replace others; but one that was told to go does, until the
    number of pods says that it need not.

    Args:
        pods: the pods of one revision.
        held: pod name → slot, as assigned.
        ring: the slots that stay.
        deployed: replicas that the Deployment asks for.
    """
    alive = [pod for pod in pods if not pod.deleting]
    return {
        pod.name
        for pod in alive
        if (
            held[pod.name] not in ring
            if pod.name in held
            else deployed > len(ring) or (pod.draining_since is not None and len(alive) > len(ring))
        )
    }
