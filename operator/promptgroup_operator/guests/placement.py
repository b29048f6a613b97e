"""Decides which of a host's replicas keep a revision of a guest warm.

A replica that holds a slot of the revision stays, so that no prompt moves when the host grows. Further replicas are
chosen by rendezvous hashing over the names of pods, seeded with the guest (Thaler and Ravishankar 1998): guests spread
over the host, and the revisions of one guest share replicas. A replica whose engine answers is preferred to one whose
engine does not, and new prompts avoid a replica whose cache is full of other prompts.
"""

import hashlib
from collections.abc import Collection, Iterable

from promptgroup_operator.guests.room import is_full
from promptgroup_operator.world.snapshot import Pod


def placed(pods: Iterable[Pod], desired: int, guest: str, holding: Collection[str]) -> list[Pod]:
    """Return the pods that keep a revision warm, at most `desired`, in the order of preference.

    Args:
        pods: the host's pods that may serve.
        desired: replicas that the revision shall have.
        guest: the guest's name.
        holding: names of the pods that hold a slot of the revision.
    """

    def rank(pod: Pod) -> tuple[bool, bool, bool, bytes]:
        return not pod.containers_ready, pod.name not in holding, is_full(pod), _weight(guest, pod.name)

    return sorted(pods, key=rank)[:desired]


def _weight(guest: str, pod: str) -> bytes:
    return hashlib.blake2b(f"{guest}/{pod}".encode(), digest_size=8).digest()
