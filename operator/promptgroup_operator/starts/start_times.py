"""Decides what the starts of a group's replicas have taken. The status is the record: it survives the operator."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from promptgroup_operator.api.starts import LATEST
from promptgroup_operator.base.timestamps import parse_time, rfc3339
from promptgroup_operator.starts.phase import StartPhase
from promptgroup_operator.world.snapshot import Pod
from promptgroup_operator.world.warming import WARM

LONGEST = timedelta(days=1)
"""Longest start that is recorded: a pod that waited for longer says nothing of the next one."""


def taken(pod: Pod) -> tuple[datetime, dict[StartPhase, int]] | None:
    """Return when a replica's start was over and the seconds of its phases; None for one that tells no whole start.

    A replica tells none if its engine was restarted or its readiness was lost later, since the times of its first start
    are overwritten then, or if it serves without a proof.
    """
    start, ready = pod.start, pod.containers_ready_since
    if not pod.is_warm or pod.warm is None or pod.warm.since is None or pod.warm.reason not in WARM or start.restarts:
        return None
    created, end = parse_time(pod.created), pod.warm.since
    sandboxed = start.sandboxed or start.scheduled
    times = [created, start.scheduled, sandboxed, start.running, ready, end]
    present = [time for time in times if time is not None]
    if len(present) < len(times) or ready is None or ready > end or not timedelta() <= end - present[0] <= LONGEST:
        return None
    seconds = (max(0, round((later - earlier).total_seconds())) for earlier, later in pairwise(present))
    return end, dict(zip(StartPhase, seconds, strict=True))


def remembered(standing: Mapping[str, Any], pods: Iterable[Pod]) -> Mapping[str, Any]:
    """Return the record with the starts that were over since it was written.

    Args:
        standing: `status.start` as last written; empty if no start was recorded.
        pods: replicas of all revisions.
    """
    last = parse_time(standing.get("finishedAt"))
    starts = [item for pod in pods if (item := taken(pod)) is not None and (last is None or item[0] > last)]
    if not starts:
        return standing
    starts.sort(key=lambda item: item[0])
    end, phases = starts[-1]
    totals = [*_totals(standing), *(sum(seconds.values()) for _, seconds in starts)][-LATEST:]
    return {
        "finishedAt": rfc3339(end),
        "seconds": round(median(totals)),
        "latestSeconds": totals,
        "phaseSeconds": {phase.value.lower(): seconds for phase, seconds in phases.items()},
    }


def expected(standing: Mapping[str, Any]) -> timedelta | None:
    """Return the time that a start takes, by the record; None before the first."""
    totals = _totals(standing)
    return timedelta(seconds=median(totals)) if totals else None


def _totals(standing: Mapping[str, Any]) -> list[int]:
    totals = standing.get("latestSeconds")
    return [seconds for seconds in totals if isinstance(seconds, int)] if isinstance(totals, list) else []
