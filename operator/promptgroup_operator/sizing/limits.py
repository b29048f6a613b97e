"""Finds the smallest number of replicas that stays within every limit of a group."""

import enum
from dataclasses import dataclass

from promptgroup_operator.sizing.model import Model

UTILISATION = 0.75
"""Maximum utilisation of replicas: waits double from here to 0.85, and a margin is left for effects outside the model.
Running requests hold at most 75 % of the KV cache at this limit, since decoding is counted by the KV that they hold."""
PROMPTS = 0.5
"""Maximum share of a KV cache for the prompts of a host and its guests: the rest is for running sessions."""
TOLERANCE = 0.1
"""As HorizontalPodAutoscaler's: to add replicas, an observation must miss the target by this share; to remove some,
fewer replicas must stay within every limit by this share."""
ROUNDING = 0.005
"""Rounding tolerance, as a share of the capacity for live sessions: messages have whole percents. Sessions that fit
according to the hit rate fill the capacity exactly."""
IDLE = 0.3
"""Utilisation below which first tokens are not delayed by load: hardly any request waits for another."""


class Limit(enum.StrEnum):
    """A limit on the number of replicas; its value is the reason of the condition when it is exceeded."""

    UTILISATION = "DemandRose"
    FIRST_TOKEN = "FirstTokenLate"  # noqa: S105 - a reason
    WORKING_SET = "WorkingSetOutgrewCache"
    QUEUE = "QueueStanding"


OF_THE_PAST = frozenset({Limit.QUEUE, Limit.FIRST_TOKEN})
"""Limits whose figures were observed with the previous number of replicas, so they do not apply to a new one."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target that the number of replicas must meet."""

    ttft: float | None
    """95th percentile of the time to first token in seconds; None when only utilisation counts."""


def is_late(model: Model, target: Target) -> bool:
    """Return True if first tokens were late; False if there were too few to decide."""
    if target.ttft is None or model.first_token is None:
        return False
    return model.ttft(model.observed) > (1 + TOLERANCE) * target.ttft


def reachable(model: Model, target: Target) -> bool:
    """Return True if more replicas can reach the target, which they cannot if the prefill alone takes longer."""
    idle = max(model.observed, model.demand(model.observed) / IDLE)
    return target.ttft is None or model.ttft(idle) <= target.ttft


def exceeded(model: Model, n: int, target: Target, margin: float = 1.0) -> Limit | None:
    """Return the first limit that `n` replicas exceed, the most specific first; None when they exceed none.

    Args:
        model: the load.
        n: replicas, at least 1.
        target: the target.
        margin: usable share of each limit, 0 to 1.
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
    """Return True if a queue requires more replicas; a queue with waits within the target does not."""
    on_time = target.ttft is not None and model.first_token is not None and not is_late(model, target)
    return not on_time and model.queueing(n) > margin


def _too_late(model: Model, n: int, target: Target, margin: float) -> bool:
    """Return True if `n` replicas are too few.

    Fewer than observed must meet the target or, if no number can, not be slower than now.
    """
    if target.ttft is None:
        return False
    if n < model.observed:
        most = margin * target.ttft if reachable(model, target) else (1 + TOLERANCE) * model.ttft(model.observed)
        return model.ttft(n) > most
    if not is_late(model, target) or not reachable(model, target):
        return False
    # At most HorizontalPodAutoscaler's ratio: the effect of replicas is an estimate, to be corrected in the next pass.
    most = model.observed * model.ttft(model.observed) / target.ttft
    return n < most and model.ttft(n) > target.ttft


def least_replicas(model: Model, low: int, high: int, target: Target, margin: float = 1.0) -> int:
    """Return the smallest number from `low` to `high` within every limit; `high` + 1 if there is none."""
    return next((n for n in range(low, high + 1) if exceeded(model, n, target, margin) is None), high + 1)
