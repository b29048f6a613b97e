"""Orders the slots of a revision by the ordinals of their leaders.

The StatefulSet of a LeaderWorkerSet removes the leader with the highest ordinal, and no annotation changes that. So the
slot of that leader has to drain when the revision shrinks.
"""

from collections.abc import Collection, Mapping
from itertools import count

from promptgroup_operator.world.snapshot import Pod


def by_ordinal(slots: Collection[int], held: Mapping[int, Pod]) -> list[int]:
    """Return the slots in the order in which they remain: that of the lowest ordinal first.

    A slot that no leader holds waits for one that starts, so it counts as that of a free ordinal, the lowest slot
    first.

    Args:
        slots: the slots of the revision.
        held: slot → the leader that holds it.
    """
    ordinals = {slot: pod.ordinal for slot, pod in held.items() if pod.ordinal is not None}
    taken = frozenset(ordinals.values())
    free = (ordinal for ordinal in count() if ordinal not in taken)
    waiting = {slot: next(free) for slot in sorted(slots) if slot not in ordinals}
    return sorted(slots, key=(waiting | ordinals).__getitem__)
