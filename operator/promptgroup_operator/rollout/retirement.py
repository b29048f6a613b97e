"""When a revision that serves no more goes, and which of those that went are kept. Pure.

A retired revision is a Deployment without replicas beside its prompt's object: the history. Applying its prompt again
finds it by its name.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from promptgroup_operator.rollout.release import Goal, Phase, RevisionStep
from promptgroup_operator.world.snapshot import RevisionState

ROOM_AFTER = timedelta(minutes=1)
"""A superseded revision makes room for the next release once it was idle for so long, before `retireAfter` is over."""


def superseded(revision: RevisionState, goal: Goal) -> RevisionStep:
    """What becomes of a revision that another took over from, or that is not wanted before it took over."""
    since = revision.superseded_at or goal.now
    if retires(revision, goal):
        return retiring(revision, since)
    return RevisionStep(revision.fingerprint, Phase.SUPERSEDED, 0, superseded_at=since)


def retiring(revision: RevisionState, since: datetime | None) -> RevisionStep:
    """It goes."""
    return RevisionStep(revision.fingerprint, gone(revision), 0, superseded_at=since)


def gone(revision: RevisionState) -> Phase:
    """How far it has gone."""
    return Phase.RETIRING if revision.replicas or revision.pods else Phase.RETIRED


def retires(revision: RevisionState, goal: Goal) -> bool:
    """Whether nobody will miss it."""
    if revision.ready == 0 and (revision.replicas == 0 or (revision.superseded_at is None and revision.weight == 0)):
        return True  # nothing of it is warm and nothing will be missed: scaled to nothing, or it never took over
    left = retires_in(revision, goal.policy.retire_after, goal.now)
    return left is not None and left <= timedelta()


def retires_in(revision: RevisionState, retire_after: timedelta, now: datetime) -> timedelta | None:
    """Time until a superseded revision retires if nobody asks for it any more; None for one that is not superseded."""
    if revision.superseded_at is None:
        return None
    quiet = max(revision.superseded_at, revision.quiet_since or revision.superseded_at)
    return quiet + retire_after - now


def makes_room(
    others: Sequence[RevisionState], plan: Mapping[str, RevisionStep], most: int, goal: Goal
) -> list[RevisionState]:
    """Superseded revisions that a release has no room for and that idle, the oldest first."""
    kept = sorted(
        (
            each
            for each in others
            if plan[each.fingerprint].phase is Phase.SUPERSEDED and each.superseded_at is not None
        ),
        key=lambda each: (each.superseded_at, each.created, each.fingerprint),
    )
    too_many = len(kept) - (goal.replicas + goal.policy.surge - most - 1)
    idle = [
        each for each in kept if (left := retires_in(each, ROOM_AFTER, goal.now)) is not None and left <= timedelta()
    ]
    return idle[: max(0, too_many)]


def forgotten(
    revisions: Sequence[RevisionState], plan: Mapping[str, RevisionStep], target: str, history: int
) -> list[RevisionState]:
    """Retired revisions beyond those that are kept, which are the ones superseded last."""
    retired = [
        each for each in revisions if each.fingerprint != target and plan[each.fingerprint].phase is Phase.RETIRED
    ]
    retired.sort(key=lambda each: (str(each.superseded_at or ""), each.created, each.fingerprint), reverse=True)
    return retired[history:]
