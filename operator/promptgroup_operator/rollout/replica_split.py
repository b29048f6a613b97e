"""Divides the desired replicas among the revisions.

Replicas follow the traffic: a revision's share of the replicas is its share of the requests; without counts from the
routers nothing changes. Within that, the new revision gets as many as its step allows, and is reduced last.
Rules, in order:

    1. all revisions together have at most the desired replicas and the surge; a new one waits for free capacity
    2. a release never reduces the serving replicas below the desired number: one is removed only when others serve
       instead; without a surge one fewer serves until one revision is left
    3. a revision has one replica until it retires; `retirement` decides which ones must, so that the serving one has
       all
    4. a revision that shrinks loses the slots whose removal costs least (`retained_slots`), through draining
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_operator.base import timestamps
from promptgroup_operator.rollout import retained_slots
from promptgroup_operator.rollout.release import ALL, GOING, Goal, Release, RevisionPhase, RevisionStep
from promptgroup_operator.warmth.warmup import SELF_MENDING
from promptgroup_operator.world.samples import Flow
from promptgroup_operator.world.snapshot import Pod, RevisionState

FEW = 20
"""Minimum number of requests in the window for meaningful shares: with fewer, the weights are used instead."""

SLACK = 0.75
"""Tolerance in replicas between the need and the current number: half of one is rounding, the rest prevents oscillation
on noise; it is less than one, so that every number can be reached."""


def wanted(revisions: Sequence[RevisionState], target: Fingerprint) -> int | None:
    """Return the desired replicas of the last pass, from annotations: during a release no Deployment has this number.

    Without an annotation, since `spec.replicas` was set so far, it is the sum over all revisions: this may include the
    surge of a release, but never omits a required replica. None for a group without replicas.

    Args:
        revisions: the revisions that have a Deployment.
        target: fingerprint that the group wants to serve.
    """
    noted = {revision.fingerprint: revision.size for revision in revisions if revision.size is not None}
    if noted:
        return noted.get(target, max(noted.values()))
    return sum(revision.replicas for revision in revisions) or None


def allot(revisions: Sequence[RevisionState], release: Release, goal: Goal) -> dict[Fingerprint, RevisionStep]:
    """Return the steps with their rings."""
    target = goal.target
    revision_states = {revision.fingerprint: revision for revision in revisions}
    orders = {revision.fingerprint: retained_slots.keep_order(revision) for revision in revisions}
    wishes = _wishes(revision_states, release, goal)
    alone = not any(revision.alive for revision in revisions if revision.fingerprint != target)
    sizes = dict.fromkeys(wishes, 0) | {revision.fingerprint: revision.replicas for revision in revisions}
    serve = goal.replicas - (goal.policy.surge == 0 and not alone)
    spare = sum(len(revision.serving) for revision in revisions) - (serve - _lost(revisions, target))
    for name in sorted(wishes, key=lambda name: _order(release.steps[name], target=name == target)):
        if wishes[name] < sizes[name]:
            serving, order = revision_states[name].serving, orders[name]
            size = wishes[name] if alone else _least(serving, order, wishes[name], sizes[name], spare)
            spare -= _taken(serving, order, size)
            sizes[name] = size
    room = goal.replicas + goal.policy.surge - sum(revision.alive for revision in revisions)
    for name in sorted(wishes, key=lambda name: (name == target, name)):
        there = (
            revision_states[name].alive if name in revision_states else 0
        )  # the number was lowered, but its pods still exist
        sizes[name] = max(sizes[name], min(wishes[name], there))
        more = max(0, min(wishes[name] - sizes[name], room))
        sizes[name] += more
        room -= more
    return {
        name: replace(
            step,
            ring=retained_slots.ring(orders.get(name, ()), sizes[name]),
            due=wishes[name],
            stands_in=step.phase is RevisionPhase.SERVING
            or _needed(revision_states.get(name), step.weight, goal) >= 0.5,
        )
        for name, step in release.steps.items()
    }


def _wishes(
    revision_states: Mapping[Fingerprint, RevisionState], release: Release, goal: Goal
) -> dict[Fingerprint, int]:
    """Return fingerprint → final number of replicas; in total at most the desired number and the surge if possible."""
    target, capacity = goal.target, goal.replicas + goal.policy.surge
    if release.steps[target].phase is RevisionPhase.ROLLED_BACK and goal.replicas:
        return _after_roll_back(release, goal)
    wishes = {}
    serving = None
    left = capacity
    for name, step in release.steps.items():
        if step.phase in GOING:
            wishes[name] = 0
        elif step.phase is RevisionPhase.SERVING and name != target:
            serving = name
        elif name != target:
            wishes[name] = min(_need(revision_states[name], step.weight, goal), max(1, left - 1))
            left -= wishes[name]
    if serving is not None:
        # It loses only replicas that the new one may have, and only those that its own traffic does not need.
        need = _need(revision_states[serving], release.steps[serving].weight, goal)
        most = release.most if target not in wishes else 0
        wishes[serving] = min(max(need, left - most), goal.replicas)
        if not goal.policy.surge and most:  # a replica must be removed before one can be added
            wishes[serving] = min(wishes[serving], max(0, left - 1))
        left -= wishes[serving]
    if target not in wishes:
        wishes[target] = min(release.most, max(1, left))
    return wishes


def _after_roll_back(release: Release, goal: Goal) -> dict[Fingerprint, int]:
    """Return fingerprint → replicas: the serving revision has all of them, and others with sessions have one each."""
    serving = {name for name, step in release.steps.items() if step.phase is RevisionPhase.SERVING}
    return {
        name: goal.replicas if name in serving else int(step.phase not in GOING) for name, step in release.steps.items()
    }


def most(revision: RevisionState | None, weight: int, goal: Goal) -> int:
    """Return the maximum of replicas of a release at a step: for its weight, and for clients that send its prompt.

    Requests by name follow the weight. Clients that send its prompt are independent of the weight, so without replicas
    for them the new ones would be busier than those of the old revision, and the two could not be compared.

    Args:
        revision: the target; None before it has a Deployment.
        weight: of the step, in percent.
        goal: the desired state of the group.
    """
    carries = min(goal.replicas, max(1, math.ceil(goal.replicas * weight / ALL)))
    traffic = goal.traffic
    if revision is None or traffic is None:
        return carries
    if not traffic.settled:
        return max(carries, min(goal.replicas, revision.replicas))
    total, flow = traffic.requests(), traffic.flows.get(short(revision.fingerprint), Flow())
    brought = flow.requests - flow.named
    if total < FEW or brought <= 0:
        return carries
    named = sum(item.named for item in traffic.flows.values())
    need = goal.replicas * (brought + named * weight / ALL) / total
    return max(carries, min(goal.replicas, _rounded(need + 0.5, revision)))  # rounded up: the surge is for the target


def room_beside(others: Sequence[RevisionState], goal: Goal) -> int:
    """Return the number of replicas that the traffic of the other revisions leaves for the target, at least one."""
    needs = sum(_need(other, other.weight, goal) for other in others if other.alive)
    return max(1, goal.replicas + goal.policy.surge - needs)


def holders(revisions: Sequence[RevisionState], steps: Mapping[Fingerprint, RevisionStep], goal: Goal) -> str:
    """Return the revisions that occupy replicas the target needs, and until when, for a message; empty if none do."""
    result = [
        f"{revision.alive} of {short(revision.fingerprint)} ({_held_by(revision, step, goal)})"
        for revision in revisions
        if (step := steps[revision.fingerprint]).fingerprint != goal.target
        and revision.alive
        and step.phase is not RevisionPhase.SERVING
    ]
    return " and ".join(result)


def _held_by(revision: RevisionState, step: RevisionStep, goal: Goal) -> str:
    """Return the phase of a revision and, while it has sessions, their number, the last request and the deadline.

    The text is part of a condition's message, so it changes at most once a minute.
    """
    if step.superseded_at is None or step.phase in GOING:
        return step.phase
    result: list[str] = [step.phase]
    sessions = round(sum(use.sessions for use in revision.use.values()))
    if sessions:
        result.append(
            f"{sessions} session{'s'[: sessions != 1]}" if sessions < 10 else f"about {sessions // 10}0 sessions"
        )
    last = goal.traffic.last_requests.get(short(revision.fingerprint)) if goal.traffic is not None else None
    if (last := last or revision.quiet_since) is not None:
        result.append(f"last request at {timestamps.rfc3339(last.replace(second=0))}")
    until = step.superseded_at + goal.policy.retire_deadline
    return f"{', '.join(result)}, until {timestamps.rfc3339(until)} at the latest"


def _need(revision: RevisionState, weight: int, goal: Goal) -> int:
    """Return the replicas that the revision's share of the traffic requires, at least one.

    Args:
        revision: the revision.
        weight: the weight that is used as its share where that is unknown.
        goal: the desired state of the group.
    """
    return min(goal.replicas, max(1, _rounded(_needed(revision, weight, goal), revision)))


def _rounded(need: float, revision: RevisionState) -> int:
    """Return a need in whole replicas: the current number if the need is close to it."""
    return revision.replicas if abs(need - revision.replicas) <= SLACK else math.floor(need + 0.5)


def _needed(revision: RevisionState | None, weight: int, goal: Goal) -> float:
    """Return the revision's share of the desired replicas by its share of the traffic; its current ones if unknown."""
    traffic = goal.traffic
    if revision is None:
        return 0.0
    if traffic is not None and not traffic.settled:
        return revision.replicas
    total = traffic.requests() if traffic is not None else 0
    if traffic is None or total < FEW:
        return goal.replicas * weight / ALL
    return goal.replicas * traffic.flows.get(short(revision.fingerprint), Flow()).requests / total


def _lost(revisions: Sequence[RevisionState], target: Fingerprint) -> int:
    """Return the number of older revisions' replicas that do not recover by themselves, for which no release waits."""
    old = (revision for revision in revisions if revision.fingerprint != target)
    return sum(
        not pod.deleting and (pod.trouble != "" or _stays_cold(revision_state, pod))
        for revision_state in old
        for pod in revision_state.pods
    )


def _stays_cold(revision: RevisionState, pod: Pod) -> bool:
    """Return True if warm-up failed to prove the replica warm, or cannot since the prompt's text is missing."""
    if pod.is_warm or pod.warm is None:
        return False
    return revision.prompt is None or (pod.warm.status != "True" and pod.warm.reason not in SELF_MENDING)


def _order(step: RevisionStep, *, target: bool) -> tuple[object, ...]:
    """Return the sort key for shrinking: retiring revisions first, then the longest superseded, the target last."""
    return (target, step.phase not in GOING, str(step.superseded_at or "~"), step.fingerprint)


def _taken(serving: frozenset[int], order: Sequence[int], size: int) -> int:
    """Return the number of serving replicas that do not fit into a ring of `size` slots."""
    return sum(slot in serving for slot in order[size:])


def _least(serving: frozenset[int], order: Sequence[int], wish: int, stands: int, spare: int) -> int:
    """Return the smallest size from `wish` up that removes at most `spare` serving replicas."""
    return next((size for size in range(wish, stands) if _taken(serving, order, size) <= max(0, spare)), stands)
