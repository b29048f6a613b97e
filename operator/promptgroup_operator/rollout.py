"""Which revision serves, which waits, which goes.

A revision comes up beside the old one, takes over when it is warm at full size, and the old one stays routable for
those who still send the old text until `retireAfter` has passed and its engines are quiet:

    coming ─warm at full size─▶ serving ─another took over─▶ superseded ─retireAfter, quiet─▶ retiring ─drained─▶ gone

What must be remembered is written on the old Deployment (`superseded_at`), so any pass can go on from it.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from promptgroup_operator.observed import Pod, Revision

PROPAGATION = timedelta(seconds=2)
"""Time for routers to learn that a slot drains, before nothing in flight means that nothing will come."""

DRAIN_TIMEOUT = timedelta(minutes=5)
"""Longest wait for the requests of a draining replica; an answer that takes longer is cut."""


class Phase(enum.StrEnum):
    """Where a revision is in its life."""

    COMING = "Coming"
    SERVING = "Serving"
    SUPERSEDED = "Superseded"
    RETIRING = "Retiring"


@dataclass(frozen=True, slots=True)
class Step:
    """What a pass does with one revision."""

    fingerprint: str
    phase: Phase
    weight: int
    replicas: int
    """Size of its ring: slots at or above drain."""
    superseded_at: datetime | None


def steps(
    revisions: Sequence[Revision], target: str, replicas: int, retire_after: timedelta, now: datetime
) -> dict[str, Step]:
    """Fingerprint → step, for every revision that exists and for the target.

    Args:
        revisions: the revisions that have a Deployment.
        target: fingerprint that the group wants to serve.
        replicas: size wanted of the revision that serves.
        retire_after: how long a superseded revision stays routable.
        now: the time of the pass.
    """
    wanted = next((revision for revision in revisions if revision.fingerprint == target), None)
    others = [revision for revision in revisions if revision.fingerprint != target]
    ready = wanted.ready if wanted is not None else 0
    holder = _holder(others)
    takes_over = holder is None or ready >= max(replicas, 1)
    plan = {
        target: Step(
            fingerprint=target,
            phase=Phase.SERVING if takes_over else Phase.COMING,
            weight=100 if takes_over else 0,
            replicas=replicas,
            superseded_at=None,
        )
    }
    for revision in others:
        step = Step(revision.fingerprint, Phase.SUPERSEDED, 0, revision.replicas, revision.superseded_at or now)
        if revision is holder and not takes_over:
            step = Step(revision.fingerprint, Phase.SERVING, 100, replicas, None)
        elif _retires(revision, retire_after, now):
            step = replace(step, phase=Phase.RETIRING, replicas=0)
        plan[revision.fingerprint] = step
    return plan


def _holder(others: Sequence[Revision]) -> Revision | None:
    """The revision that serves until the target can: never one that was superseded, else the one with the traffic."""
    candidates = [revision for revision in others if revision.superseded_at is None and revision.ready > 0]
    return max(candidates, key=lambda revision: (revision.weight, revision.created), default=None)


def _retires(revision: Revision, retire_after: timedelta, now: datetime) -> bool:
    if revision.superseded_at is None:
        # It never took over and has nothing warm: nobody can miss it. One that serves elsewhere never comes here.
        return revision.weight == 0 and revision.ready == 0
    quiet = max(revision.superseded_at, revision.quiet_since or revision.superseded_at)
    return now - quiet >= retire_after


def drained(pod: Pod, now: datetime) -> bool:
    """Whether a draining replica may go: told to routers, and idle or out of time."""
    if pod.deleting or not pod.is_warm:
        return True
    if pod.draining_since is None or now - pod.draining_since < PROPAGATION:
        return False
    return pod.in_flight == 0 or now - pod.draining_since >= DRAIN_TIMEOUT
