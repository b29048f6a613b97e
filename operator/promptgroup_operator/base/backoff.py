"""Decides when a failed operation is tried again."""

import random
from datetime import timedelta

from promptgroup_operator.base.errors import ClusterError

FIRST_RETRY = timedelta(milliseconds=200)
LAST_RETRY = timedelta(seconds=30)
"""Back-off after failures: short at first (a conflict), long later (a server that is down)."""


def backoff(failures: int) -> timedelta:
    """Return the time until the next try after so many failures in a row, 1 or more.

    It is spread at random over its upper half, so that a server that recovers does not get all requests at once.
    """
    whole = min(LAST_RETRY, FIRST_RETRY * float(2 ** min(failures - 1, 16)))
    return whole * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, guards nothing


def retry_seconds(error: ClusterError, tries: int, took: float) -> float:
    """Return the seconds until the next try to read or write an object, after so many failures in a row.

    Args:
        error: the API server's answer to the last try; its Retry-After is a lower bound.
        tries: 1 or more.
        took: duration of the last try in seconds: tries that time out must not take all of the passes' time.
    """
    return max(error.retry_after or 0.0, backoff(tries).total_seconds(), 2 * took)
