"""The values of one metric for one set of labels. Does no I/O and reads no clock.

A series to which nothing was added is not exposed, so that code may hold series before there is anything to count.
"""

from itertools import count

from promptgroup_router.base.exposition import Exemplar

_places = count(1)


class Series:
    """The value of a counter or a gauge."""

    __slots__ = ("rank", "value")

    def __init__(self, value: float = 0.0, *, rank: int = 0) -> None:
        self.value = value
        self.rank = rank
        """Rank among the exposed series of its metric; 0 while nothing was added, so that it is not exposed."""

    def add(self, amount: float = 1.0) -> None:
        """Add to the value."""
        self.value += amount
        if not self.rank:
            self.rank = next(_places)


class Observations:
    """Counts by bucket, and a sum."""

    __slots__ = ("buckets", "counts", "exemplars", "rank", "sum")

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.sum = 0.0
        self.rank = 0
        """Rank among the exposed series of its metric; 0 while nothing was observed, so that it is not exposed."""
        self.exemplars: dict[int, Exemplar] = {}
        """Bucket → the last observation in it whose trace is recorded."""

    def record(self, value: float) -> None:
        """Add an observation."""
        self.counts[self._bucket(value)] += 1
        self.sum += value
        if not self.rank:
            self.rank = next(_places)

    def mark(self, exemplar: Exemplar) -> None:
        """Store a recorded observation as the exemplar of its bucket."""
        self.exemplars[self._bucket(exemplar.value)] = exemplar

    def _bucket(self, value: float) -> int:
        """Return the first bucket that contains a value. Compiled, this takes half the time of the library's search."""
        buckets = self.buckets
        low, high = 0, len(buckets)
        while low < high:
            middle = (low + high) // 2
            if buckets[middle] < value:
                low = middle + 1
            else:
                high = middle
        return low
