"""Decides the phase of a replica that starts, from the conditions and container statuses of its pod.

    Pending ──node──▶ Scheduled ──sandbox──▶ Pulling ──engine runs──▶ Loading ──containers ready──▶ Warming ──proof──▶

Each phase begins with a time that Kubernetes recorded, so that it is the same in every pass and survives the operator.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from promptgroup_operator.base.timestamps import parse_time
from promptgroup_operator.world.snapshot import Pod


class StartPhase(enum.StrEnum):
    """A phase of a replica's start, in this order."""

    PENDING = "Pending"
    SCHEDULED = "Scheduled"
    PULLING = "Pulling"
    LOADING = "Loading"
    WARMING = "Warming"


@dataclass(frozen=True, slots=True)
class Starting:
    """A replica that starts."""

    pod: str
    phase: StartPhase
    since: datetime | None
    """Time at which the phase began; None where nothing reports it."""


def starting(pod: Pod) -> Starting | None:
    """Return the phase of a replica's start; None for one that is warm or leaves.

    A container that was restarted loads again since its pod was last ready. So the phase does not change with each
    restart of an engine that crashes in a loop.
    """
    if pod.deleting or pod.is_warm or pod.draining_since is not None:
        return None
    start = pod.start
    if pod.containers_ready:
        return Starting(pod.name, StartPhase.WARMING, pod.containers_ready_since)
    if start.restarts:
        return Starting(pod.name, StartPhase.LOADING, pod.containers_ready_since or start.sandboxed)
    if start.running is not None:
        return Starting(pod.name, StartPhase.LOADING, start.running)
    if start.sandboxed is not None:
        return Starting(pod.name, StartPhase.PULLING, start.sandboxed)
    if start.scheduled is not None:
        return Starting(pod.name, StartPhase.SCHEDULED, start.scheduled)
    return Starting(pod.name, StartPhase.PENDING, parse_time(pod.created))


def all_starting(pods: Iterable[Pod]) -> list[Starting]:
    """Return the replicas that start: the least advanced first, and of one phase the one that is in it for longest."""
    order = list(StartPhase)
    result = [item for pod in pods if (item := starting(pod)) is not None]
    return sorted(
        result, key=lambda item: (order.index(item.phase), item.since.timestamp() if item.since else 0.0, item.pod)
    )


def summary(items: Iterable[Starting]) -> str:
    """Return the number of starting replicas by phase, as in `1 Pulling, 2 Loading`; empty if none starts."""
    phases = [item.phase for item in items]
    return ", ".join(f"{phases.count(phase)} {phase.value}" for phase in StartPhase if phase in phases)
