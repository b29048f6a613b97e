"""Limits how fast the number of replicas follows the recommendation: windows and policies.

The terms and their meaning are HorizontalPodAutoscaler's (autoscaling/v2 `behavior`; KEP-853; the algorithm as in
pkg/controller/podautoscaler/horizontal.go). Callers store earlier recommendations and changes as a value and pass it
in. Its loss does no harm: without it, one window passes before the group scales down.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from promptgroup_operator.api.prompt_group import (
    Behavior,
    PolicyType,
    ScaleDownRules,
    ScaleUpRules,
    SelectPolicy,
)
from promptgroup_operator.world.sizing_history import Past, SizeChange


@dataclass(frozen=True, slots=True)
class Paced:
    """The change that is allowed now."""

    value: int
    limited: bool
    """True if a policy limited the number."""
    requeue_after: timedelta | None
    """Time until a further change is allowed if nothing else changes; None when nothing is limited."""


def pace(past: Past, current: int, desired: int, behavior: Behavior, now: datetime) -> Paced:
    """Return the allowed change from `current` towards `desired`, the latest recommendation in `past`."""
    steady, until = _stabilised(past, current, desired, behavior, now)
    if steady > current:
        value, again = _up(past, current, steady, behavior.scale_up, now)
    elif steady < current:
        value, again = _down(past, current, steady, behavior.scale_down, now)
    else:
        value, again = steady, None
    waits = [item for item in (until, again) if item is not None]
    return Paced(value, value != steady, min(waits) if waits else None)


def _stabilised(
    past: Past, current: int, desired: int, behavior: Behavior, now: datetime
) -> tuple[int, timedelta | None]:
    """Return the number between the minimum of the scale-up window and the maximum of the scale-down window."""
    up = timedelta(seconds=behavior.scale_up.stabilization_window_seconds)
    down = timedelta(seconds=behavior.scale_down.stabilization_window_seconds)
    least = min(
        [desired, *(recommendation.value for recommendation in past.recommended if now - recommendation.until < up)]
    )
    most = max(
        [desired, *(recommendation.value for recommendation in past.recommended if now - recommendation.until < down)]
    )
    steady = max(min(current, most), least)
    if steady == desired:
        return steady, None
    window = up if desired > steady else down
    holds = [
        recommendation.until + window - now
        for recommendation in past.recommended
        if now - recommendation.until < window
        and (recommendation.value < desired if desired > steady else recommendation.value > desired)
    ]
    return steady, min(holds, default=None)


def _up(past: Past, current: int, desired: int, rules: ScaleUpRules, now: datetime) -> tuple[int, timedelta | None]:
    if rules.select_policy is SelectPolicy.DISABLED:
        return current, None
    allowed = []
    for policy in rules.policies:
        before = current - _changed(past.changes, policy.period_seconds, now)
        more = policy.value if policy.type is PolicyType.PODS else math.ceil(before * policy.value / 100)
        allowed.append(before + more)
    most = max(current, min(allowed) if rules.select_policy is SelectPolicy.MIN else max(allowed))
    if desired <= most:
        return desired, None
    return most, _renewed(past.changes, [scaling_policy.period_seconds for scaling_policy in rules.policies], now)


def _down(past: Past, current: int, desired: int, rules: ScaleDownRules, now: datetime) -> tuple[int, timedelta | None]:
    if rules.select_policy is SelectPolicy.DISABLED:
        return current, None
    allowed = []
    for policy in rules.policies:
        before = current - _changed(past.changes, policy.period_seconds, now)
        pods = policy.type is PolicyType.PODS
        allowed.append(before - policy.value if pods else math.floor(before * (1 - policy.value / 100)))
    least = min(current, max(allowed) if rules.select_policy is SelectPolicy.MIN else min(allowed))
    if desired >= least:
        return desired, None
    return least, _renewed(past.changes, [scaling_policy.period_seconds for scaling_policy in rules.policies], now)


def _changed(changes: Sequence[SizeChange], seconds: int, now: datetime) -> int:
    """Return the replicas that were added within the period, minus those that were removed."""
    return sum(change.by for change in changes if now - change.at < timedelta(seconds=seconds))


def _renewed(changes: Sequence[SizeChange], periods: Sequence[int], now: datetime) -> timedelta:
    """Return the time until the first of the changes leaves its period; the shortest period without changes."""
    spans = [timedelta(seconds=period) for period in periods]
    ends = [change.at + span - now for change in changes for span in spans if now - change.at < span]
    return min(ends, default=min(spans))
