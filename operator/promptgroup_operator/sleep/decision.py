"""Decides if a group sleeps whose number of replicas the operator decides.

    awake ──no request ran or waited for `idleAfter`──▶ asleep ──a router reports a request──▶ awake

A group falls asleep only if no request arrived for `idleAfter`. So a request that a router reports arrived either after
that time, or before the middle of it; a request between two passes, or while no operator was running, still counts. The
clocks of routers and of the operator may differ by half of `idleAfter`.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from promptgroup_contract.table import Sleep
from promptgroup_operator.api.prompt_group import SizingSpec
from promptgroup_operator.base import durations
from promptgroup_operator.base.timestamps import parse_time, rfc3339
from promptgroup_operator.sizing.recommend import COVERED, SizingDecision, is_quiet
from promptgroup_operator.world.load import GroupLoad
from promptgroup_operator.world.samples import Calls

WATCH = timedelta(seconds=1)
"""Time between two passes over a sleeping group, and between two readings of its routers: a request is detected within
two of them, even if other passes read the routers meanwhile."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a group on which the decision is based."""

    standing: Sleep
    """The group's sleep in the current PromptRoute."""
    load: GroupLoad | None
    """Its load; None while no replica serves."""
    calls: Calls
    """Requests for it, or for a guest of it, while it had no replica."""
    idle_since: datetime | None
    """Time since which earlier passes observed it as idle; None if they did not."""
    releasing: bool
    """True if several revisions have replicas."""
    ready: bool
    """True if routers may send to a replica."""


@dataclass(frozen=True, slots=True)
class SleepDecision:
    """The decision."""

    asleep: bool
    since: datetime | None
    """Time since which it sleeps, or is idle; None if neither."""
    starting: bool = False
    """True from a request that wakes the group until a replica is warm."""


def decide(sizing: SizingSpec, seen: Seen, desired: int, now: datetime) -> SleepDecision:
    """Return the decision if a group sleeps.

    Args:
        sizing: of the group, whose `minReplicas` is 0.
        seen: the state of the group.
        desired: replicas that its load requires: sleep removes only the last one.
        now: the time of the pass.
    """
    idle_after = durations.parse(sizing.idle_after)
    slept_since = parse_time(seen.standing.since)
    if slept_since is not None:
        if seen.calls.at is not None and seen.calls.at > slept_since - idle_after / 2:
            return SleepDecision(asleep=False, since=None, starting=True)
        return SleepDecision(asleep=True, since=slept_since)
    idle = _idle_since(seen, now)
    if idle is not None and now - idle >= idle_after and desired <= 1:
        return SleepDecision(asleep=True, since=now)
    return SleepDecision(asleep=False, since=idle, starting=seen.standing.woken != "" and not seen.ready)


def _idle_since(seen: Seen, now: datetime) -> datetime | None:
    """Return the time since which no request ran or waited; None if one did, or if it is unknown.

    Without readable routers no request could wake the group, so it stays awake.
    """
    load = seen.load
    if load is None or load.stale or load.engines is None or load.engines.coverage < COVERED:
        return None
    if not seen.ready or seen.releasing or not seen.calls.read or not is_quiet(load):
        return None
    idle = min(seen.idle_since, now) if seen.idle_since is not None else now
    return max(idle, min(seen.calls.at, now)) if seen.calls.at is not None else idle


def sized(awake: SizingDecision, rest: SleepDecision, sizing: SizingSpec) -> SizingDecision:
    """Return the number of replicas of a group that may sleep, from the number that its load requires."""
    history = replace(awake.history, idle_since=None if rest.asleep else rest.since)
    awake = replace(awake, history=history)
    if rest.asleep and rest.since is not None:
        why = f"no request came for {sizing.idle_after}"
        return replace(
            awake,
            value=0,
            reason="Asleep",
            message=f"asleep since {rfc3339(rest.since)}: {why}",
            active=True,
            requeue_after=WATCH,
        )
    if rest.starting:
        return replace(
            awake, value=max(1, awake.value), reason="Woken", message="a request woke the group", active=True
        )
    return awake
