"""Decides which pod holds which slot of its revision's ring.

A slot is written on its pod as a label, so the assignment is read from the cluster and survives the operator.
Rules, in order:

    1. a pod that terminates holds nothing: its slot is free at once for the pod that replaces it
    2. of two pods that claim one slot the warm one keeps it, then the older
    3. a warm pod without a slot takes the lowest free one below the wanted number
    4. when none is free, it takes the slot of a holder that is not warm: an update of broken pods must not stick
    5. a pod above the wanted number moves down to a free slot only once nothing runs on it; until then it drains

Does no I/O and reads no clock.
"""

from collections.abc import Mapping, Sequence

from promptgroup_operator.world.snapshot import Pod


def assign(pods: Sequence[Pod], wanted: int) -> dict[str, int]:
    """Pod name → slot, for every pod of one revision that shall hold one.

    Args:
        pods: the pods of one revision.
        wanted: size of the ring; slots are 0 to wanted-1. A pod above it keeps its slot while it drains.
    """
    alive = sorted((pod for pod in pods if not pod.deleting), key=lambda pod: (not pod.is_warm, pod.created, pod.name))
    holders: dict[int, Pod] = {}
    for pod in alive:
        if pod.slot is not None:
            holders.setdefault(pod.slot, pod)
    held = {pod.name for pod in holders.values()}
    free = [slot for slot in range(wanted) if slot not in holders]
    for slot in sorted(slot for slot in holders if slot >= wanted):
        pod = holders[slot]
        if free and (pod.in_flight == 0 or not pod.is_warm):
            holders[free.pop(0)] = holders.pop(slot)
    for pod in alive:
        if not pod.is_warm or pod.name in held:
            continue
        if free:
            holders[free.pop(0)] = pod
            continue
        cold = next((slot for slot in sorted(holders) if slot < wanted and not holders[slot].is_warm), None)
        if cold is not None:
            holders[cold] = pod
    return {pod.name: slot for slot, pod in holders.items()}


def leaving(pods: Sequence[Pod], held: Mapping[str, int], wanted: int, deployed: int) -> set[str]:
    """Names of the pods that shall go: those above the ring, and those beside it while more are asked for than wanted.

    Beside a ring of the wanted size stand the pods of an update, which replace others; but one that was told to go
    does, until the number of pods says that it need not.

    Args:
        pods: the pods of one revision.
        held: pod name → slot, as assigned.
        wanted: size of the ring.
        deployed: replicas that the Deployment asks for.
    """
    alive = [pod for pod in pods if not pod.deleting]
    return {
        pod.name
        for pod in alive
        if (
            held[pod.name] >= wanted
            if pod.name in held
            else deployed > wanted or (pod.draining_since is not None and len(alive) > wanted)
        )
    }
