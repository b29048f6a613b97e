"""What the routers counted of a group's revisions, as values. Pure.

A stratum holds requests that may be compared: a canary has young sessions only, and the first request of a session is
another thing than a later one, which finds its history in cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by bucket; the last one has no upper bound."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        """Observations."""
        return sum(self.counts)

    def __add__(self, other: "Histogram") -> "Histogram":
        """Both together."""
        counts = tuple(a + b for a, b in zip_longest(self.counts, other.counts, fillvalue=0.0))
        return Histogram(self.bounds or other.bounds, counts)

    def __sub__(self, other: "Histogram") -> "Histogram":
        """What came since; counters that began anew count as nothing."""
        counts = tuple(max(0.0, a - b) for a, b in zip_longest(self.counts, other.counts, fillvalue=0.0))
        return Histogram(self.bounds or other.bounds, counts)


def bucket_of(histogram: Histogram, q: float) -> int:
    """Index of the bucket that the quantile falls into."""
    left = q * histogram.total
    for index, count in enumerate(histogram.counts):
        left -= count
        if left <= 0:
            return index
    return len(histogram.counts) - 1


def quantile(histogram: Histogram, q: float) -> float:
    """Estimate, linear within the bucket; the last bound for what lies above it."""
    index = bucket_of(histogram, q)
    if index >= len(histogram.bounds):
        return histogram.bounds[-1]
    low = histogram.bounds[index - 1] if index else 0.0
    rest = q * histogram.total - sum(histogram.counts[:index])
    return low + (histogram.bounds[index] - low) * rest / (histogram.counts[index] or 1)


def histogram(cumulative: Mapping[float, float]) -> Histogram:
    """A histogram as Prometheus writes it: upper bound, the last of them infinity → observations up to it."""
    ordered = sorted(cumulative.items())
    before = 0.0
    counts = []
    for _, count in ordered:
        counts.append(max(0.0, count - before))
        before = count
    return Histogram(tuple(bound for bound, _ in ordered[:-1]), tuple(counts))


@dataclass(frozen=True, slots=True)
class Stratum:
    """Requests of one revision that may be compared with those of another."""

    requests: float = 0
    """Requests that ended, but for those whose client left."""
    errors: float = 0
    """Those of them that failed: 5xx, or cut short by the engine."""
    first_token: Histogram = Histogram()
    """Seconds to the answer's first byte; of one that is not streamed that is its end."""
    cached: Histogram = Histogram()
    """Share of a prompt that was found in cache, 0 to 1."""
    streamed: Histogram = Histogram()
    """Seconds to the first byte of those answers that are streamed."""

    def __add__(self, other: "Stratum") -> "Stratum":
        """Both together."""
        return Stratum(
            self.requests + other.requests,
            self.errors + other.errors,
            self.first_token + other.first_token,
            self.cached + other.cached,
            self.streamed + other.streamed,
        )

    def __sub__(self, other: "Stratum") -> "Stratum":
        """What came since."""
        return Stratum(
            max(0.0, self.requests - other.requests),
            max(0.0, self.errors - other.errors),
            self.first_token - other.first_token,
            self.cached - other.cached,
            self.streamed - other.streamed,
        )


Sample = Mapping[str, Stratum]
"""Name of a stratum → its requests, for one revision."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Requests of one revision within the window."""

    requests: float = 0
    named: float = 0
    """Those of them that named the group, so that its weights decided."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the routers counted, all of them together. Revisions by their short fingerprint."""

    known: bool
    """Whether the window is long enough to speak of."""
    flows: Mapping[str, Flow] = field(default_factory=dict)
    """Of the window."""
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """Since the step of the release began, as far as it was seen."""

    def requests(self) -> float:
        """Of all revisions, within the window."""
        return sum(flow.requests for flow in self.flows.values())
