"""Decides which revision serves, which one is released, which ones retire, and their shares of the new sessions.

A new revision starts in parallel to the serving one, gets its share step by step, and takes over; the old one stays
routable for clients that still send the old text until `retireAfter` has passed and its engines are quiet:

    Coming ─warm─▶ Canary ─passed every step─▶ Serving ─another took over─▶ Superseded ─quiet─▶ Retiring ─▶ Retired
      ▲               └─worse than the old one─▶ RolledBack ─quiet─▶ Retiring                                 │
      └──────────────────────────────────────── wanted again ─────────────────────────────────────────────────┘

A step is a weight. The weight rises to it no faster than warm replicas can serve it, falls only when replicas are lost,
and `replica_split` lets replicas follow the traffic: a step begins when there are replicas for clients that send the
prompt as well. Without steps the only step is the take-over, for which the revision needs every replica that the
others' traffic leaves. The state between passes is stored in the cluster: the step and its start on the Deployment of a
revision that never took over, the time of its replacement on the old one, and the traffic's weights in the PromptRoute.
The first revision of a group takes over with its first warm replica, so that a revision that has served can be
distinguished from one that never could.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_operator.base import timestamps
from promptgroup_operator.rollout import replica_split, retirement
from promptgroup_operator.rollout.analysis import AnalysisOutcome, AnalysisResult, analyse
from promptgroup_operator.rollout.release import ALL, GOING, Goal, Release, RevisionPhase, RevisionStep, step_at
from promptgroup_operator.world.samples import Flow, Traffic
from promptgroup_operator.world.snapshot import Problem, Progress, RevisionState, RolledBack

UNDECIDED = frozenset({"Undecided", "Inconclusive"})
"""Reasons of a step whose revision is worse, but not significantly."""
HANGS_ON_LOAD = frozenset({"TimeToFirstToken", "HitRate"})
"""Reasons of a failed analysis that may be caused by too few replicas."""

NOTHING = Flow()
"""The requests of a revision that no router reports."""


def decide(revisions: Sequence[RevisionState], goal: Goal) -> Release:
    """Return a step for every revision that has a Deployment and for the target. `replica_split` adds the sizes."""
    target = goal.target
    revision = next((item for item in revisions if item.fingerprint == target), None)
    others = [item for item in revisions if item.fingerprint != target]
    stable = _stable(others)
    mark = revision.rolled_back if revision is not None else None
    if stable is not None and revision is not None and mark is not None and mark.settings == goal.settings:
        release = _taken_back(revision, mark, goal)
    elif stable is None or _takes_over(revision, stable, goal):
        step = RevisionStep(target, RevisionPhase.SERVING, ALL, progress=_until_warm(revision))
        release = Release({target: step}, goal.replicas, None)
        stable = None
    else:
        release = _released(revision, stable, others, goal)
    step = release.steps[target]
    plan = {target: step}
    for other in others:
        if other is stable:
            plan[other.fingerprint] = RevisionStep(
                other.fingerprint, RevisionPhase.SERVING, ALL - step.weight, progress=other.progress
            )
        else:
            plan[other.fingerprint] = retirement.superseded(other, goal)
    if stable is None:
        reserved = release.most
    elif step.rolled_back is not None:  # the serving one has all its replicas again, and the rolled back one has one
        reserved = goal.replicas + (step.phase is RevisionPhase.ROLLED_BACK)
    else:
        reserved = 1 + release.most
    releasing = stable is not None and step.rolled_back is None
    early = retirement.makes_room(others, plan, reserved, goal, releasing=releasing)
    plan |= {revision_step.fingerprint: revision_step for revision_step in early}
    return replace(release, steps=plan)


# --- The serving revision ----------------------------------------------------------------------------------


def _stable(others: Sequence[RevisionState]) -> RevisionState | None:
    """Return the revision that serves until the target does: it took over once, and has not been replaced.

    The weights of the route decide: a revision that was marked as superseded in a pass that ended before the route was
    written still serves. A revision that never had a warm replica is not considered. One that had still serves if its
    pods were replaced: the new pods are not warm yet, but will be.
    """
    candidates = [
        other
        for other in others
        if (other.weight > 0 or other.superseded_at is None) and (other.progress is None or _was_warm(other))
    ]
    return max(
        candidates,
        key=lambda candidate: (
            candidate.progress is None,
            candidate.weight,
            candidate.superseded_at is None,
            candidate.created,
        ),
        default=None,
    )


def _takes_over(revision_state: RevisionState | None, stable: RevisionState, goal: Goal) -> bool:
    """Return True if the take-over is complete or may be completed now: the others are then superseded.

    A revision that took over stays in place, warm or not. To take over, it needs a warm replica, or a group that serves
    nothing: no replica is desired, and the previous revision has none.
    """
    may = not goal.policy.paused and goal.policy.weights[-1] == ALL
    if may and goal.replicas == 0 and not stable.alive:
        return True
    if revision_state is None or revision_state.weight < ALL:
        return False
    return revision_state.progress is None or (may and revision_state.ready > 0)


def _until_warm(revision_state: RevisionState | None) -> Progress | None:
    """Return the progress of a target that has all traffic: None once it had a warm replica."""
    if revision_state is None:
        return Progress(0, None)
    return None if _was_warm(revision_state) else revision_state.progress


def _was_warm(revision: RevisionState) -> bool:
    return any(pod.warmed for pod in revision.pods)


# --- The new revision --------------------------------------------------------------------------------------


def _released(
    revision_state: RevisionState | None, stable: RevisionState, others: Sequence[RevisionState], goal: Goal
) -> Release:
    """Return the release of the target, with the target's own step only."""
    target, policy, now = goal.target, goal.policy, goal.now
    returns = revision_state is not None and revision_state.progress is None and revision_state.weight > 0
    weights = (ALL,) if returns else policy.weights
    progress = (revision_state.progress if revision_state is not None else None) or Progress(0, None)
    index = step_at(weights, progress.weight)
    since = progress.since if 0 < weights[index] == progress.weight < ALL else None
    since = min(since, now) if since is not None else None  # no later, whatever clock wrote it
    if revision_state is None:
        step = RevisionStep(target, RevisionPhase.COMING, 0, progress=Progress(0, None))
        return Release({target: step}, replica_split.most(None, weights[0], goal), _warming(target))
    grows = progress.grows if progress.since is None or since is not None else None  # the steps were edited
    if since is None:
        grows = min(grows or now, now) if revision_state.weight else None
    overdue = grows is not None and now - grows >= policy.retire_deadline
    late = since is None and overdue and revision_state.ready >= revision_state.alive
    lacks = _lacks(revision_state, others, weights[index], goal)
    grown = revision_state.weight >= weights[index] > 0 and not lacks
    if (
        since is None
        and weights[index] < ALL
        and revision_state.weight
        and (grown or (overdue and not _comes(revision_state)))
    ):
        since = now
    result = passed = None
    come_to = weights[index] if since is not None else progress.weight
    if since is not None:
        # With too few replicas it is busier than the old revision and would seem slower: the step starts again later.
        anew = bool(lacks) and grows is not None and not overdue and _brought_more(revision_state, weights[index], goal)
        result = _judged(revision_state, stable, since, goal)
        if result.outcome is AnalysisOutcome.FAIL and not (anew and result.reason in HANGS_ON_LOAD):
            mark = RolledBack(now, goal.settings, Problem(result.reason, result.message))
            return _taken_back(revision_state, mark, goal)
        done = result.outcome is AnalysisOutcome.PASS and now - since >= policy.pauses[index] and not anew
        deserted = weights[-1] == ALL and _deserted(revision_state, stable, goal)
        if not policy.paused and (deserted or (done and index + 1 < len(weights))):
            if not deserted:
                at = f"step {index + 1} of {len(policy.pauses)}"
                passed = Problem(result.reason, f"{short(target)} passed {at}: {result.message}")
            index = len(weights) - 1 if deserted else index + 1
            come_to, since, grows, result = weights[index], None, None, None
        elif anew:
            since = result = None
    weight = _weight(revision_state, others, weights[index], goal, late=late)
    if returns:  # it has served before, so its weight does not fall while its replicas are replaced
        weight = max(weight, revision_state.weight)
    if policy.paused:
        weight = min(weight, revision_state.weight)
    step = RevisionStep(
        target,
        RevisionPhase.CANARY if weight else RevisionPhase.COMING,
        weight,
        progress=Progress(come_to, since, grows),
    )
    lacks = _lacks(revision_state, others, weights[index], goal) if weight >= weights[index] else 0
    waits = _waits(revision_state, step, index, weights[index], result=result, lacks=lacks, goal=goal)
    step = replace(step, progress=None) if returns else step
    return Release({target: step}, replica_split.most(revision_state, weights[index], goal), waits, passed)


def _weight(
    revision_state: RevisionState, others: Sequence[RevisionState], most: int, goal: Goal, *, late: bool
) -> int:
    """Return the weight of a release at a step: it rises with warm replicas, and falls only when replicas are lost.

    To take over, the target needs every replica that the traffic of the others leaves.

    Args:
        revision_state: the current target.
        others: the other revisions.
        most: weight of the step, in percent.
        goal: the desired state of the group.
        late: True if sessions of the old revision have used its replicas for `retireDeadline`: a take-over no longer
            waits for them, and they move like those of a superseded revision.
    """
    can = carried(revision_state, goal)
    if most == ALL and can:
        whole = revision_state.ready >= min(goal.replicas, replica_split.room_beside(others, goal))
        if late or (can == ALL and whole):
            return ALL
        can = min(can, ALL - 1)
    stands = revision_state.weight if revision_state.ready >= max(1, len(revision_state.routed)) else 0
    return min(most, max(can, stands))


def _lacks(revision_state: RevisionState, others: Sequence[RevisionState], weight: int, goal: Goal) -> int:
    """Return the number of warm replicas that the target lacks at a step, of those that the others leave it."""
    room = replica_split.room_beside(others, goal)
    return max(0, min(replica_split.most(revision_state, weight, goal), room) - revision_state.ready)


def _brought_more(revision_state: RevisionState, weight: int, goal: Goal) -> bool:
    """Return True if the target needs more replicas at a step for clients that send its prompt than for its weight."""
    return replica_split.most(revision_state, weight, goal) > replica_split.most(None, weight, goal)


def _comes(revision_state: RevisionState) -> bool:
    """Return True if a replica of the target is still starting, without a reported problem."""
    stuck = sum(pod.trouble != "" for pod in revision_state.pods if not pod.deleting)
    return revision_state.ready + stuck < revision_state.alive and not revision_state.failure


def carried(revision: RevisionState, goal: Goal) -> int:
    """Return the weight that the revision's warm replicas can serve, in percent.

    Weights split the sessions that name the group; sessions that send the prompt are independent of the weight.
    """
    if not revision.ready:
        return 0
    serve = goal.replicas if goal.policy.surge else max(1, goal.replicas - 1)  # one replica of the old one remains
    load = serve * named(goal.traffic)
    return ALL if load <= revision.ready else math.ceil(ALL * revision.ready / load)


def named(traffic: Traffic | None) -> float:
    """Return the share of requests that name the group; 1 where it is unknown."""
    if traffic is None or not traffic.settled or not traffic.requests():
        return 1.0
    return sum(flow.named for flow in traffic.flows.values()) / traffic.requests()


def _judged(revision_state: RevisionState, stable: RevisionState, since: datetime, goal: Goal) -> AnalysisResult:
    """Return the result of a step so far; if it begins in this pass, the routers' counts are older and ignored."""
    if goal.traffic is None:
        message = "no router's metrics can be read: check --router-namespaces, or set rollout.steps to []"
        return AnalysisResult(AnalysisOutcome.WAIT, "NoMetrics", message)
    samples = goal.traffic.samples if since < goal.now else {}
    old, new = samples.get(short(stable.fingerprint), {}), samples.get(short(revision_state.fingerprint), {})
    return analyse(old, new, goal.policy.judge, goal.now - since, goal.policy.retire_deadline)


def _deserted(revision_state: RevisionState, stable: RevisionState, goal: Goal) -> bool:
    """Return True if all clients have switched to the new revision by themselves, for `retireAfter`."""
    quiet, traffic = retirement.quiet_since(stable, goal), goal.traffic
    if traffic is None or quiet is None or goal.now - quiet < goal.policy.retire_after:
        return False
    if not traffic.settled or traffic.flows.get(short(stable.fingerprint), NOTHING).requests:
        return False  # engines are read less often than routers
    sample = traffic.samples.get(short(revision_state.fingerprint), {})
    return any(stratum.requests for stratum in sample.values())


def _warming(target: Fingerprint) -> Problem:
    return Problem("RevisionComing", f"no replica of {short(target)} is warm yet")


def _waits(
    revision_state: RevisionState,
    step: RevisionStep,
    index: int,
    most: int,
    *,
    result: AnalysisResult | None,
    lacks: int,
    goal: Goal,
) -> Problem:
    """Return the condition for which the release waits, and the remedy if it does not wait for time alone.

    Args:
        revision_state: the current target.
        step: the decided state.
        index: index of the release's current step.
        most: weight of that step, in percent.
        result: result of the step's analysis; None where there is none.
        lacks: warm replicas that it lacks to begin the step.
        goal: the desired state of the group.
    """
    policy, since = goal.policy, step.progress.since if step.progress is not None else None
    has = f"{short(revision_state.fingerprint)} has weight {step.weight}"
    at = f"step {index + 1} of {len(policy.pauses)}"
    if not revision_state.ready:
        return _warming(revision_state.fingerprint)
    if policy.paused:
        return Problem("Paused", f"{has} and the release is paused: set rollout.paused to false to continue")
    if most == 0:
        return Problem("AwaitsPromotion", f"{has} and is warm: set rollout.autoPromote to true to let it take over")
    if since is None and lacks:
        text = f"{has}, and clients that bring its prompt need {lacks} more of its replicas before {at} begins"
        return Problem(
            "RevisionGrowing", f"{text}; rollout.retireDeadline ends the wait, a larger rollout.maxSurge too"
        )
    if since is None:
        return Problem("RevisionGrowing", f"{has} of {most}; it gets more as its replicas become warm")
    left = since + policy.pauses[index] - goal.now
    if result is not None and result.outcome is AnalysisOutcome.WAIT:
        out = "; set rollout.steps to [] to let it take over without analysis" if left <= timedelta() else ""
        out += ", or apply the previous prompt to take it back" if out and result.reason in UNDECIDED else ""
        started = f" since {timestamps.rfc3339(since)}" if out else ""
        return Problem(result.reason, f"{has} at {at}{started}: {result.message}{out}")
    if left > timedelta():
        return Problem("StepPause", f"{has} at {at}, which lasts until {timestamps.rfc3339(goal.now + left)}")
    return Problem("AwaitsPromotion", f"{has} at {at}: set rollout.autoPromote to true to let it take over")


def _taken_back(revision_state: RevisionState, mark: RolledBack, goal: Goal) -> Release:
    """Return the release of a target that failed its analysis, with the target's own step only."""
    since = min(revision_state.superseded_at or mark.at, goal.now)
    after = retirement.superseded(replace(revision_state, superseded_at=since), goal)
    phase = after.phase if after.phase in GOING else RevisionPhase.ROLLED_BACK
    step = RevisionStep(
        revision_state.fingerprint,
        phase,
        0,
        superseded_at=since,
        progress=after.progress,
        rolled_back=mark,
        moves=after.moves,
    )
    return Release({revision_state.fingerprint: step}, goal.replicas, mark.why)
