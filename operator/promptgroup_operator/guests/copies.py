"""Decides on how many of its host's replicas a guest's prompt is kept warm, where its placement has bounds.

A prompt that brings a share s of the work of n replicas keeps s n of them busy. It gets HEADROOM times as many, so that
it is no more than half of what they do and its sessions have somewhere to go. The number falls only once it would be
enough for SLACK times the work, so that a load that rests moves nothing. Does no I/O and reads no clock.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from promptgroup_operator.api.prompt_group import PlacementSpec
from promptgroup_operator.world.load import ClientLoad
from promptgroup_operator.world.snapshot import GroupObject, Host, RevisionState

HEADROOM = 2.0
"""Replicas that keep a prompt warm, over those that its work keeps busy."""
SLACK = 1.5
"""Times the present work that fewer replicas must have room for."""


def share(guest: ClientLoad | None, host: ClientLoad | None) -> float | None:
    """Return the share of the work of a host's replicas that a guest brings; None where it is not known.

    Args:
        guest: what the clients of the guest had.
        host: what the clients of the host and of all of its guests had.
    """
    whole = _work(host) if host is not None else 0.0
    return min(1.0, _work(guest) / whole) if guest is not None and whole > 0 else None


def _work(clients: ClientLoad) -> float:
    """Return the tokens a second that engines computed for clients."""
    return clients.prompt_tokens * (1 - (clients.hit_rate or 0.0)) + clients.answer_tokens


def copies(placement: PlacementSpec, replicas: int, standing: int | None, share: float | None) -> int:
    """Return the replicas that keep the prompt warm.

    Args:
        placement: bounds of the number.
        replicas: those of the host that may serve it.
        standing: the number as it is; None for a guest that has none yet.
        share: share of the host's work that it brings; None where that is not known.
    """
    low, high = placement.min_replicas or 1, min(placement.max_replicas or replicas, replicas)
    desired = standing if standing is not None else low
    if share is not None:
        needed = _rounded_up(HEADROOM * share * replicas)
        desired = max(needed, min(desired, _rounded_up(HEADROOM * SLACK * share * replicas)))
    return min(high, max(low, desired))


def placed(group: GroupObject, host: Host, revisions: Iterable[RevisionState], share: float | None) -> GroupObject:
    """Return a guest with the number of replicas that its load asks for, where its placement has bounds.

    Args:
        group: the guest, with a spec that `guests.host.served` has filled in.
        host: its host.
        revisions: its revisions as they stand.
        share: share of the host's work that it brings; None where that is not known.
    """
    placement = group.spec.placement
    if placement is None or not placement.has_bounds:
        return group
    standing = max((revision.replicas for revision in revisions if revision.weight > 0), default=None)
    timings = copies(placement, len(host.pods), standing, share)
    return replace(group, spec=group.spec.model_copy(update={"replicas": timings}))


def _rounded_up(value: float) -> int:
    return math.ceil(round(value, 6))
