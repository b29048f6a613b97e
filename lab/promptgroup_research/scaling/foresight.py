"""The fewest replica-seconds of a load that is known in advance: what a decision without foresight cannot go below.

A schedule has, at any time, at least the replicas that the load needs, and starts each one so early that it is warm in
time. The replica of one level (the third, say) is a question of its own: over a pause in which it is not needed it is
kept, or given back and started again. Both cost the same where the pause is as long as a start; a longer one is worth
two moves. So the schedule of least cost with fewer moves is the one that keeps replicas over the shortest pauses. Does
no I/O.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_research.scaling.fleet import START_SECONDS


@dataclass(frozen=True, slots=True)
class Schedule:
    """The replicas of each step."""

    counts: tuple[int, ...]
    step: float
    """Seconds."""
    begin: int
    """Replicas before the first step."""

    @property
    def replica_seconds(self) -> float:
        """Seconds of all replicas together, from the beginning of their starts."""
        return sum(self.counts) * self.step

    @property
    def moves(self) -> int:
        """Replicas added and removed."""
        return sum(abs(b - a) for a, b in itertools.pairwise((self.begin, *self.counts)))


def least(needs: Sequence[int], step: float, begin: int, most_moves: float) -> Schedule:
    """Return the cheapest schedule.

    Args:
        needs: replicas that the load needs in each step.
        step: seconds of a step.
        begin: replicas before the first step, which are warm.
        most_moves: replicas that it may add and remove, as far as the needs allow.
    """
    result = _keeping(needs, step, begin, START_SECONDS)
    for pause in sorted({pause for level in range(1, max(needs) + 1) for pause in _pauses(needs, level)}):
        if result.moves <= most_moves:
            break
        result = _keeping(needs, step, begin, max(START_SECONDS, pause * step))
    return result


def _pauses(needs: Sequence[int], level: int) -> list[int]:
    """Return the steps of each pause between two times in which so many replicas are needed."""
    groups = [(needed, len(list(steps))) for needed, steps in itertools.groupby(needs, lambda need: need >= level)]
    return [length for needed, length in groups[1:-1] if not needed]


def _keeping(needs: Sequence[int], step: float, begin: int, pause: float) -> Schedule:
    """Return the schedule that keeps replicas over pauses up to so many seconds."""
    early = round(START_SECONDS / step)
    counts = [0] * len(needs)
    for level in range(1, max(needs) + 1):
        kept_until = 0 if level <= begin else None
        for first, last in _stretches(needs, level):
            start = max(0, first - early)
            if kept_until is not None and (first - kept_until) * step <= pause:
                start = kept_until
            for index in range(start, last):
                counts[index] += 1
            kept_until = last
    return Schedule(tuple(counts), step, begin)


def _stretches(needs: Sequence[int], level: int) -> list[tuple[int, int]]:
    """Return (first step, step after the last) of the times in which so many replicas are needed."""
    at, result = 0, []
    for needed, steps in itertools.groupby(needs, lambda need: need >= level):
        length = len(list(steps))
        if needed:
            result.append((at, at + length))
        at += length
    return result
