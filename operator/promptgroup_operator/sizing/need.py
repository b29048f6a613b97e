"""The least number of replicas that keeps what a group asks for. Pure."""

import enum
from dataclasses import dataclass

from promptgroup_operator.sizing.model import Model

UTILISATION = 0.75
"""Most of their time that replicas may need: waits double from here to 0.85, and what is not in the model has room."""
USAGE = 0.75
"""Most of the KV cache that running requests may hold: near 1 they wait for blocks, or lose theirs."""
TOLERANCE = 0.1
"""A number of replicas that is smaller than what there is must keep every limit by so much more: as much as
HorizontalPodAutoscaler tolerates before it acts."""


FAR = 2.0
"""Times the replicas that there are: if so many do not meet the target, it is not their number that it takes."""


class Limit(enum.StrEnum):
    """What the number of replicas must keep, in the words of a condition's reason when it takes more of them."""

    UTILISATION = "DemandRose"
    FIRST_TOKEN = "FirstTokenLate"  # noqa: S105 - a reason
    RUNNING = "RunningFillCache"
    WORKING_SET = "WorkingSetOutgrewCache"
    QUEUE = "QueueStanding"


@dataclass(frozen=True, slots=True)
class Target:
    """What must be kept."""

    ttft: float | None
    """Seconds to first token of 95 of 100 requests; None when utilisation alone counts."""


def reachable(model: Model, target: Target) -> bool:
    """Whether replicas are what the target lacks: a prefill takes its time, however many others there are."""
    return target.ttft is None or model.ttft(FAR * model.observed) <= target.ttft


def exceeded(model: Model, n: int, target: Target, margin: float = 1.0) -> Limit | None:
    """The first limit that `n` replicas exceed, the one that says most of the cause first; None when they keep all.

    Args:
        model: the load.
        n: replicas, at least 1.
        target: what must be kept.
        margin: what of each limit may be used, 0 to 1.
    """
    room = model.room()
    if room is not None and model.working_set is not None and model.working_set > margin * n * room:
        return Limit.WORKING_SET
    if model.utilisation(n) > margin * UTILISATION:
        return Limit.UTILISATION
    if model.kv_usage(n) > margin * USAGE:
        return Limit.RUNNING
    if model.queueing(n) > margin:
        return Limit.QUEUE
    if target.ttft is not None and reachable(model, target) and model.ttft(n) > margin * target.ttft:
        return Limit.FIRST_TOKEN
    return None


def least(model: Model, low: int, high: int, target: Target, margin: float = 1.0) -> int:
    """The least number from `low` that keeps every limit; one above `high` when none up to there does."""
    return next((n for n in range(low, high + 1) if exceeded(model, n, target, margin) is None), high + 1)
