"""Decides on how many of its host's replicas a guest's prompt is warm, where its placement has bounds.

A prompt with a share s of the work of n replicas keeps s n of them busy. It gets HEADROOM times as many, so that it is
at most half of their work and its sessions can move to other replicas. The number falls only when the lower one would
suffice for SLACK times the work, so that small variations cause no change. Does no I/O and reads no clock.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from promptgroup_operator.api.prompt_group import PlacementSpec
from promptgroup_operator.world.load import ClientLoad
from promptgroup_operator.world.snapshot import GroupObject, Host, RevisionState

HEADROOM = 2.0
"""Ratio of the replicas that keep a prompt warm to those that its work keeps busy."""
SLACK = 1.5
"""Multiple of the current work for which fewer replicas must have capacity."""


def share(guest: ClientLoad | None, host: ClientLoad | None) -> float | None:
    """Return a guest's share of the work of its host's replicas; None if unknown.

    Args:
        guest: load of the guest's clients.
        host: load of the clients of the host and of all its guests.
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
        standing: the current number; None for a guest that has none yet.
        share: its share of the host's work; None if unknown.
    """
    low, high = placement.min_replicas or 1, min(placement.max_replicas or replicas, replicas)
    desired = standing if standing is not None else low
    if share is not None:
        needed = _rounded_up(HEADROOM * share * replicas)
        desired = max(needed, min(desired, _rounded_up(HEADROOM * SLACK * share * replicas)))
    return min(high, max(low, desired))


def placed(group: GroupObject, host: Host, revisions: Iterable[RevisionState], share: float | None) -> GroupObject:
    """Return a guest with the number of replicas that its load requires, if its placement has bounds.

    Args:
        group: the guest, with a spec that `guests.host.served` has filled in.
        host: its host.
        revisions: its current revisions.
        share: its share of the host's work; None if unknown.
    """
    placement = group.spec.placement
    if placement is None or not placement.has_bounds:
        return group
    standing = max((revision.replicas for revision in revisions if revision.weight > 0), default=None)
    count = copies(placement, len(host.pods), standing, share)
    return replace(group, spec=group.spec.model_copy(update={"replicas": count}))


def _rounded_up(value: float) -> int:
    return math.ceil(round(value, 6))
