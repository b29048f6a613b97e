"""Decides when a superseded revision is scaled to zero, and which retired revisions remain.

A revision is quiet while no request of its own ends: by the routers' counters, which count a request for the revision
that it addresses, or else by its engines' counters, which also include requests of other groups that they served. Does
no I/O and reads no clock.

A retired revision is a Deployment without replicas, together with its prompt's object: the history. If its prompt is
applied again, the Deployment is reused by its name.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_operator.rollout.release import Goal, RevisionPhase, RevisionStep
from promptgroup_operator.world.snapshot import Progress, RevisionState

ROOM_AFTER = timedelta(minutes=1)
"""Quiet time after which a superseded revision may be retired for the next release, before `retireAfter` has passed."""


def superseded(revision: RevisionState, goal: Goal) -> RevisionStep:
    """Return the step of a revision that was replaced, or that is no longer desired although it never took over."""
    since = min(revision.superseded_at or goal.now, goal.now)  # at the latest now, if another clock wrote it
    if retires(revision, goal):
        return retiring(revision, since)
    if is_overdue(revision, goal):
        return retiring(revision, since, "rollout.retireDeadline has passed")
    return RevisionStep(revision.fingerprint, RevisionPhase.SUPERSEDED, 0, superseded_at=since, progress=anew(revision))


def retiring(revision: RevisionState, since: datetime | None, moves: str = "") -> RevisionStep:
    """Return the step of a revision that is being scaled to zero.

    Args:
        revision: the revision.
        since: time since which it is superseded.
        moves: the reason why its sessions move to the serving revision before they end; empty if they have ended.
    """
    return RevisionStep(
        revision.fingerprint, gone(revision), 0, superseded_at=since, progress=anew(revision), moves=moves
    )


def anew(revision: RevisionState) -> Progress | None:
    """Return the progress of a revision that never took over: if it is desired again, it begins with the first step."""
    return Progress(0, None) if revision.progress is not None else None


def gone(revision: RevisionState) -> RevisionPhase:
    """Return the phase of a revision that is scaled to zero: Retiring until its last pod is deleted."""
    return RevisionPhase.RETIRING if revision.replicas or revision.pods else RevisionPhase.RETIRED


def retires(revision: RevisionState, goal: Goal) -> bool:
    """Return True if the revision may be scaled to zero."""
    if revision.fingerprint == goal.lost:
        return True  # its requests belong to another group
    never = revision.weight == 0 if revision.superseded_at is None else revision.progress is not None
    if revision.ready == 0 and (revision.replicas == 0 or never):
        return True  # it has no warm replica, and is scaled to zero or never took over
    left = retires_in(revision, goal.policy.retire_after, goal)
    return left is not None and left <= timedelta()


def is_overdue(revision: RevisionState, goal: Goal) -> bool:
    """Return True if a superseded revision has had replicas for its sessions for `retireDeadline`."""
    since = revision.superseded_at
    return since is not None and goal.now - since >= goal.policy.retire_deadline


def quiet_since(revision: RevisionState, goal: Goal) -> datetime | None:
    """Return since when no request of the revision's own has ended; None where routers report nothing about it."""
    own = goal.traffic.quiet_since(short(revision.fingerprint)) if goal.traffic is not None else None
    return own if own is not None else revision.quiet_since


def retires_in(revision: RevisionState, retire_after: timedelta, goal: Goal) -> timedelta | None:
    """Return the time until a superseded revision retires if it stays quiet; None for one that is not superseded."""
    if revision.superseded_at is None:
        return None
    quiet = max(revision.superseded_at, quiet_since(revision, goal) or revision.superseded_at)
    return quiet + retire_after - goal.now


def makes_room(
    others: Sequence[RevisionState],
    plan: Mapping[Fingerprint, RevisionStep],
    reserved: int,
    goal: Goal,
    *,
    releasing: bool,
) -> list[RevisionStep]:
    """Return the steps of superseded revisions that retire early for lack of capacity, the oldest first.

    During a release only quiet ones retire. Otherwise the serving revision needs its replicas: superseded ones may use
    only the surge, and the sessions of surplus ones move, except for a revision whose traffic needs several replicas.

    Args:
        others: the revisions other than the target.
        plan: fingerprint → step.
        reserved: replicas that the target and the serving revision need, of those that the group may have.
        goal: the desired state of the group.
        releasing: True if a release is in progress.
    """
    revision_states = sorted(
        (
            other
            for other in others
            if plan[other.fingerprint].phase is RevisionPhase.SUPERSEDED and other.superseded_at is not None
        ),
        key=lambda item: (item.superseded_at, item.created, item.fingerprint),
    )
    too_many = max(0, len(revision_states) - (goal.replicas + goal.policy.surge - reserved))
    idle = [
        revision_state
        for revision_state in revision_states
        if (left := retires_in(revision_state, ROOM_AFTER, goal)) is not None and left <= timedelta()
    ]
    steps = [retiring(revision_state, revision_state.superseded_at) for revision_state in idle[:too_many]]
    if not releasing:
        busy = [
            revision_state
            for revision_state in revision_states
            if revision_state not in idle and revision_state.replicas <= 1
        ]
        why = "what serves needs the replica, and rollout.maxSurge has no more of them"
        steps += [
            retiring(revision_state, revision_state.superseded_at, why)
            for revision_state in busy[: too_many - len(steps)]
        ]
    return steps


def forgotten(
    revisions: Sequence[RevisionState], plan: Mapping[Fingerprint, RevisionStep], target: Fingerprint, history: int
) -> list[RevisionState]:
    """Return the retired revisions beyond the history, which contains the most recently superseded ones."""
    retired = [
        revision
        for revision in revisions
        if revision.fingerprint != target and plan[revision.fingerprint].phase is RevisionPhase.RETIRED
    ]
    retired.sort(
        key=lambda revision_state: (
            str(revision_state.superseded_at or ""),
            revision_state.created,
            revision_state.fingerprint,
        ),
        reverse=True,
    )
    return retired[history:]
