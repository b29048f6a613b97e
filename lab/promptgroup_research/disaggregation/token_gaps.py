"""Seconds between two tokens of answers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from promptgroup_research.simulator.engine import Engine, Model
from promptgroup_research.simulator.turns import Turn


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """The time between two tokens, which several pairs of tokens had."""

    seconds: float
    count: int
    when: float
    """Time at which it began."""


class WatchedEngine(Engine):
    """An engine that records the gaps between the tokens of its answers."""

    __slots__ = ("gaps",)

    def __init__(
        self, index: int, model: Model, on_first: Callable[[Turn, float], None], on_end: Callable[[Turn, float], None]
    ) -> None:
        super().__init__(index, model, on_first, on_end)
        self.gaps: list[Gap] = []

    def due(self) -> float | None:
        """End the step or stretch. Each request that decodes in it gets a token in each of its steps."""
        count = self._skip * len(self._decoding)
        if count:
            # within a stretch steps grow by the context alone, so their mean stands for all
            self.gaps.append(Gap((self._until - self.begun) / self._skip, count, self.begun))
        return super().due()


def gaps_of(engines: Iterable[Engine], begin: float, end: float) -> list[Gap]:
    """Return the gaps of watched engines that began within a time, the shortest first."""
    watched = (engine for engine in engines if isinstance(engine, WatchedEngine))
    return sorted(gap for engine in watched for gap in engine.gaps if begin <= gap.when < end)


def gap_percentile(gaps: Sequence[Gap], share: float) -> float:
    """Return the gap in seconds that at least this share of the sorted gaps does not exceed; 0 without gaps."""
    left = share * sum(gap.count for gap in gaps)
    for gap in gaps:
        left -= gap.count
        if left <= 0:
            return gap.seconds
    return 0.0
