"""Decides which slots remain when a revision gets fewer replicas: those whose removal would cost most.

A ring may have any slot numbers, so any slot may be removed, and the others keep their numbers: a new number would move
a slot's sessions. New replicas reuse the lowest free numbers, so that the old sessions of a slot return to it.

The choice is made once. A slot that drains in the PromptRoute, or whose pod is marked as draining, was chosen before
and stays chosen regardless of newer data, as long as the ring does not grow.
"""

from collections.abc import Sequence
from itertools import chain, count, islice

from promptgroup_contract.table import SlotState
from promptgroup_operator.nodes.slot_order import by_ordinal
from promptgroup_operator.world.samples import SlotUse
from promptgroup_operator.world.snapshot import LEADER_WORKER_SET, RevisionState, holders

NOTHING = SlotUse()
"""The use of a slot that no router reports."""


def keep_order(revision: RevisionState) -> list[int]:
    """Return the current slots of a revision, in the order of priority in which they remain.

    Slots that do not drain come first; among these, slots of warm replicas; then the slots with most tokens to
    recompute, then with most requests, then the lowest numbers. A LeaderWorkerSet leaves no choice (`slot_order`).
    """
    held = holders(revision.pods)
    listed = {slot for slot, state in revision.slots.items() if state is not SlotState.DRAINING}
    if revision.workload == LEADER_WORKER_SET:
        return by_ordinal(listed | held.keys(), held)

    def loss(slot: int) -> tuple[bool, bool, float, float, int]:
        pod, use = held.get(slot), revision.use.get(slot, NOTHING)
        marked = pod is not None and pod.draining_since is not None
        draining = marked or revision.slots.get(slot) is SlotState.DRAINING
        warm = pod is not None and pod.is_warm
        return draining, not warm, -use.tokens, -use.requests, slot

    return sorted(listed | held.keys(), key=loss)


def ring(order: Sequence[int], size: int) -> frozenset[int]:
    """Return the slots of a ring of `size` slots: the first of the order, then the lowest numbers that are free.

    Args:
        order: the current slots, from `keep_order`.
        size: number of replicas.
    """
    standing = frozenset(order)
    free = (slot for slot in count() if slot not in standing)
    return frozenset(islice(chain(order, free), size))
