"""A limit on how often a watch begins: a server that ends every watch at once would be asked without a pause."""

from collections.abc import Callable
from time import monotonic

WATCH_SECONDS_APART = 1.0
"""Least time between two beginnings of one watch. Nothing is lost meanwhile: a watch continues from a version."""


class RateLimit:
    """Lets something begin once in `seconds`. A caller that comes sooner is told how long to wait."""

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")

    def reserve(self) -> float:
        """Reserve the next turn.

        Returns:
            Seconds to wait until then.
        """
        now = self._clock()
        turn = max(now, self._next)
        self._next = turn + self._seconds
        return turn - now
