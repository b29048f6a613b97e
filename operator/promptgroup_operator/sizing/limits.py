"""Finds the least number of replicas that keeps every limit of a group."""

import enum
from dataclasses import dataclass

from promptgroup_operator.sizing.model import Model

UTILISATION = 0.75
"""Most of their time that replicas may need: waits double from here to 0.85, and what is not in the model has room.
Requests that run hold no more than 75 % of the KV cache there, since decoding counts by what they hold."""
PROMPTS = 0.5
"""Largest share of a KV cache that the prompts of a host and its guests may take: the rest is for sessions that run."""
TOLERANCE = 0.1
"""As HorizontalPodAutoscaler's: what is observed must miss the target by so much to add replicas, and fewer replicas
must keep every limit by so much to take some away."""
ROUNDING = 0.005
"""Share of the room for live sessions that is rounding: messages give whole percents. Sessions that hits
prove to fit fill it exactly."""
IDLE = 0.3
"""Utilisation below which replicas do not make first tokens late: hardly a request waits for another."""


class Limit(enum.StrEnum):
    """A limit that the number of replicas must keep; its value is the reason of the condition when it is exceeded."""

    UTILISATION = "DemandRose"
    FIRST_TOKEN = "FirstTokenLate"  # noqa: S105 - a reason
    WORKING_SET = "WorkingSetOutgrewCache"
    QUEUE = "QueueStanding"


OF_THE_PAST = frozenset({Limit.QUEUE, Limit.FIRST_TOKEN})
"""Limits whose figures are of the replicas that there were: they say nothing of a number that is new."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target that the number of replicas must keep."""

    ttft: float | None
    """Seconds to first token of 95 of 100 requests; None when utilisation alone counts."""


def is_late(model: Model, target: Target) -> bool:
    """Return True if first tokens were late; False where there were too few to tell."""
    if target.ttft is None or model.first_token is None:
        return False
    return model.ttft(model.observed) > (1 + TOLERANCE) * target.ttft


def reachable(model: Model, target: Target) -> bool:
    """Return True if more replicas can reach the target: a prefill takes its time, however idle all others are."""
    idle = max(model.observed, model.demand(model.observed) / IDLE)
    return target.ttft is None or model.ttft(idle) <= target.ttft


def exceeded(model: Model, n: int, target: Target, margin: float = 1.0) -> Limit | None:
    """Return the first limit that `n` replicas exceed, most telling first; None when they keep all.

    Args:
        model: the load.
        n: replicas, at least 1.
        target: what must be kept.
        margin: what of each limit may be used, 0 to 1.
    """
    capacity = model.capacity(n) if model.sessions_need_replicas else None
    if capacity is not None and model.working_set is not None and model.working_set > (margin + ROUNDING) * capacity:
        return Limit.WORKING_SET
    if model.utilisation(n) > margin * UTILISATION:
        return Limit.UTILISATION
    if _queues(model, n, target, margin):
        return Limit.QUEUE
    return Limit.FIRST_TOKEN if _too_late(model, n, target, margin) else None


def _queues(model: Model, n: int, target: Target, margin: float) -> bool:
    """Return True if a queue takes more replicas: not one in which nobody waits for longer than the target."""
    kept = target.ttft is not None and model.first_token is not None and not is_late(model, target)
    return not kept and model.queueing(n) > margin


def _too_late(model: Model, n: int, target: Target, margin: float) -> bool:
    """Return whether these replicas are too few: fewer must meet the target, or be no worse where no number does."""
    if target.ttft is None:
        return False
    if n < model.observed:
        most = margin * target.ttft if reachable(model, target) else (1 + TOLERANCE) * model.ttft(model.observed)
        return model.ttft(n) > most
    if not is_late(model, target) or not reachable(model, target):
        return False
    # no more of them than HorizontalPodAutoscaler's ratio gives: how much replicas help is an estimate, and seen next
    most = model.observed * model.ttft(model.observed) / target.ttft
    return n < most and model.ttft(n) > target.ttft


def least_replicas(model: Model, low: int, high: int, target: Target, margin: float = 1.0) -> int:
    """Return the least number from `low` that keeps every limit; one above `high` when none up to there does."""
    return next((n for n in range(low, high + 1) if exceeded(model, n, target, margin) is None), high + 1)
