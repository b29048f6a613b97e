"""Which revision serves, which waits, which goes.

A revision comes up beside the old one, takes over when it is warm at full size, and the old one stays routable for
those who still send the old text until `retireAfter` has passed and its engines are quiet:

    coming ─warm at full size─▶ serving ─another took over─▶ superseded ─retireAfter, quiet─▶ retiring ─drained─▶ gone

A revision that is wanted again takes the first step from wherever it is. What must be remembered is written where any
pass finds it: on the old Deployment since when it is superseded, in the PromptRoute who has the traffic.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from promptgroup_operator.observed import Pod, Revision

PROPAGATION = timedelta(seconds=2)
"""Time for routers to learn that a slot drains, before nothing in flight means that nothing will come."""

RESOLUTION = timedelta(seconds=1)
"""Times on objects are whole seconds, rounded down: less than this has passed when they seem a second old."""

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
    holder = _holder(others)
    takes_over = holder is None or (wanted is not None and (_serves(wanted) or _can_serve(wanted, replicas)))
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
        if revision is holder and not takes_over:
            step = Step(revision.fingerprint, Phase.SERVING, 100, replicas, None)
        elif _retires(revision, retire_after, now):
            step = Step(revision.fingerprint, Phase.RETIRING, 0, 0, revision.superseded_at)
        else:
            since = revision.superseded_at or now
            step = Step(revision.fingerprint, Phase.SUPERSEDED, 0, revision.replicas, since)
        plan[revision.fingerprint] = step
    return plan


def _serves(revision: Revision) -> bool:
    """Whether it has the traffic already: losing a replica does not hand it back to another."""
    return revision.superseded_at is None and revision.weight > 0


def _can_serve(revision: Revision, replicas: int) -> bool:
    return revision.ready_below(replicas) >= max(replicas, 1)


def _holder(others: Sequence[Revision]) -> Revision | None:
    """The revision that serves until the target can: the one with the traffic, else one that was never superseded.

    The route says who has the traffic: a revision that was marked superseded in a pass which then ended before the
    route was written serves still.
    """
    candidates = [each for each in others if each.ready > 0 and (each.weight > 0 or each.superseded_at is None)]
    return max(candidates, key=lambda each: (each.weight, each.superseded_at is None, each.created), default=None)


def _retires(revision: Revision, retire_after: timedelta, now: datetime) -> bool:
    if revision.ready == 0 and (revision.replicas == 0 or (revision.superseded_at is None and revision.weight == 0)):
        return True  # nothing of it is warm and nothing will be missed: scaled to nothing, or it never took over
    left = retires_in(revision, retire_after, now)
    return left is not None and left <= timedelta()


def retires_in(revision: Revision, retire_after: timedelta, now: datetime) -> timedelta | None:
    """Time until a superseded revision retires if nobody asks for it any more; None for one that is not superseded."""
    if revision.superseded_at is None:
        return None
    quiet = max(revision.superseded_at, revision.quiet_since or revision.superseded_at)
    return quiet + retire_after - now


def drained(pod: Pod, now: datetime) -> bool:
    """Whether a replica may go: routers were told, and it is idle, cold or out of time."""
    if pod.deleting:
        return True
    if pod.draining_since is None or now - pod.draining_since < PROPAGATION + RESOLUTION:
        return False
    return not pod.is_warm or pod.in_flight == 0 or now - pod.draining_since >= DRAIN_TIMEOUT
