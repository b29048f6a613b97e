"""Halves the weights of a sketch with time without changing them: new additions weigh more instead.

Forward decay (Cormode, Shkapenyuk, Srivastava, Xu, ICDE 2009). Does no I/O and reads no clock; `now` is in monotonic
seconds.
"""

import math

HALF_LIFE = 3600.0
"""Seconds in which a weight halves."""
LARGEST_UNIT = 2.0**64
"""Unit above which all weights are scaled down, long before a float overflows."""


class Decay:
    """The weight of an addition now."""

    __slots__ = ("_began", "_scaled", "unit")

    def __init__(self) -> None:
        self.unit = 1.0
        """Weight of one token or request now."""
        self._began: float | None = None
        self._scaled = 0.0
        """Time at which `unit` was 1."""

    def advance(self, now: float) -> float:
        """Advance to `now`, and return the divisor for all weights: nearly always 1."""
        if self._began is None:
            self._began = self._scaled = now
        self.unit = math.pow(2.0, max(0.0, now - self._scaled) / HALF_LIFE)
        if self.unit <= LARGEST_UNIT:
            return 1.0
        divisor, self.unit, self._scaled = self.unit, 1.0, now
        return divisor

    def seconds(self, now: float) -> float:
        """Return the seconds that the weights represent: the weight of a steady rate is the rate times this value."""
        age = max(0.0, now - self._began) if self._began is not None else 0.0
        return HALF_LIFE / math.log(2) * (1 - math.pow(0.5, age / HALF_LIFE))
