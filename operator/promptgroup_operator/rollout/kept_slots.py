"""Decides which slots stay when a revision gets fewer replicas: those whose loss would cost most.

A ring may have any slots, so any of them may leave, and the others keep their numbers: to renumber one would move its
sessions. A free number is taken again by the next replica that comes, the lowest first, and its old sessions with it.

What leaves is chosen once. A slot that drains in the PromptRoute, or whose pod is marked as draining, was chosen before
and stays so whatever is known of it since, as long as the ring does not grow.
"""

from collections.abc import Sequence
from itertools import chain, count, islice

from promptgroup_contract.table import SlotState
from promptgroup_operator.world.samples import SlotUse
from promptgroup_operator.world.snapshot import RevisionState, holders

NOTHING = SlotUse()
"""The use of a slot that no router tells of."""


def keep_order(revision: RevisionState) -> list[int]:
    """Return the slots of a revision as they stand, in the order in which they are kept.

    Those that were not told to go come first; of these the ones that a warm replica holds; of these the one with most
    tokens to compute again, then the one with most requests, then the lowest.
    """
    held = holders(revision.pods)
    listed = {slot for slot, state in revision.slots.items() if state is not SlotState.DRAINING}

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
        order: the slots as they stand, from `keep_order`.
        size: number of replicas.
    """
    standing = frozenset(order)
    free = (slot for slot in count() if slot not in standing)
    return frozenset(islice(chain(order, free), size))
