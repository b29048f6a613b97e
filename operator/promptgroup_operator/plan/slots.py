"""Assigns the slots of a revision's ring to its pods.

A slot is stored as a label of its pod, so the assignment is read from the cluster and survives a restart of the
operator. Rules, in order:

    1. a pod that terminates, or whose node is about to go, holds no slot: it is free at once for the next pod
    2. of two pods that claim one slot, the warm one has it, or else the older one
    3. a warm pod without a slot gets the lowest free slot of the ring
    4. when none is free, it gets the slot of a pod that is not warm, so that an update of broken pods can proceed
    5. a pod whose slot left the ring gets a free slot only when it has no requests; until then it drains

`rollout/retained_slots.py` decides which slots the ring has.
"""

from collections.abc import Mapping, Sequence

from promptgroup_operator.world.snapshot import Pod, by_claim
from promptgroup_operator.world.snapshot import holders as holders_of


def assign(pods: Sequence[Pod], ring: frozenset[int]) -> dict[str, int]:
    """Return pod name → slot, for every pod of one revision that gets a slot.

    Args:
        pods: the pods of one revision.
        ring: its slots. A pod with another slot keeps that slot while it drains.
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
    """Return the names of the pods that drain.

    They are those whose slot left the ring, surplus pods without a slot, and those whose node is about to go. The pods
    of an update are temporarily without a slot and are not removed. But a pod that already drains is removed, unless
    the number of pods no longer exceeds the ring.

    Args:
        pods: the pods of one revision.
        held: pod name → slot, as assigned.
        ring: the slots that remain.
        deployed: replicas in the Deployment's spec.
    """
    alive = [pod for pod in pods if not pod.deleting]
    return {
        pod.name
        for pod in alive
        if pod.evacuated
        or (
            held[pod.name] not in ring
            if pod.name in held
            else deployed > len(ring) or (pod.draining_since is not None and len(alive) > len(ring))
        )
    }
