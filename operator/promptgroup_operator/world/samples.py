"""Values of what routers counted for a group's revisions.

A stratum holds requests that may be compared. A canary gets young sessions of clients that name the group, and the
first request of a session is another thing than a later one, which finds its history in cache. Clients that stream
differ from clients that ask for whole answers, as those that name the group do from those that bring its prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise, zip_longest
from typing import NamedTuple, Self

from promptgroup_contract import names
from promptgroup_contract.fingerprint import ShortFingerprint


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
        """Return the sum of both; of two with other buckets, as routers of two versions have, the larger one."""
        if self.bounds != other.bounds:
            return max(self, other, key=lambda item: item.total)
        return Histogram(self.bounds, tuple(a + b for a, b in zip_longest(self.counts, other.counts, fillvalue=0.0)))

    def __sub__(self, other: "Histogram") -> "Histogram":
        """Return what came since; counters that began anew count as nothing."""
        if self.bounds != other.bounds:
            return self
        counts = tuple(max(0.0, a - b) for a, b in zip_longest(self.counts, other.counts, fillvalue=0.0))
        return Histogram(self.bounds, counts)


def bucket_of(histogram: Histogram, q: float) -> int:
    """Return the index of the bucket that the quantile falls into."""
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


def mean(histogram: Histogram) -> float:
    """Estimate the mean, each observation at the middle of its bucket, at either end at the nearest bound."""
    bounds = histogram.bounds
    middles = [bounds[0], *((a + b) / 2 for a, b in pairwise(bounds)), bounds[-1]]
    return sum(count * at for count, at in zip(histogram.counts, middles, strict=True)) / histogram.total


def histogram(cumulative: Mapping[float, float]) -> Histogram:
    """Read a histogram as Prometheus writes it: upper bound, the last of them infinity → observations up to it."""
    ordered = sorted(cumulative.items())
    before = 0.0
    counts = []
    for _, count in ordered:
        counts.append(max(0.0, count - before))
        before = count
    return Histogram(tuple(bound for bound, _ in ordered[:-1]), tuple(counts))


class StratumKey(NamedTuple):
    """The properties by which requests are told apart before they are compared."""

    turn: str = names.TURN_FIRST
    """`first` if the request begins a session, `later` if it comes back to where it was; `other` is not compared."""
    how: str = names.HOW_NAME
    """`name` if the client named the group, else how the router matched it."""
    streamed: bool = True
    """True if the client asked for a stream."""

    def __str__(self) -> str:
        """Return the words by which messages name the stratum."""
        return f"{self.turn} turns by {self.how}, {'streamed' if self.streamed else 'whole'}"


@dataclass(frozen=True, slots=True)
class Stratum:
    """Requests of one revision that may be compared with those of another."""

    requests: float = 0
    """Requests that ended, but for those whose client left."""
    errors: float = 0
    """Those of them that failed: 5xx, or cut short by the engine."""
    first_token: Histogram = Histogram()
    """Seconds to the first token; empty for whole answers, whose first byte comes with the last token."""
    cached: Histogram = Histogram()
    """Share of what repeats in a prompt that was found in cache, 0 to 1."""
    own: float = 0
    """Tokens beyond the declared prompt that the requests of `first_token` brought and their sessions had not."""
    shared: float = 0
    """Those of them that other sessions had brought to the replica before."""

    def __add__(self, other: "Stratum") -> "Stratum":
        """Return the sum of both."""
        return Stratum(
            self.requests + other.requests,
            self.errors + other.errors,
            self.first_token + other.first_token,
            self.cached + other.cached,
            self.own + other.own,
            self.shared + other.shared,
        )

    def __sub__(self, other: "Stratum") -> "Stratum":
        """Return what came since."""
        return Stratum(
            max(0.0, self.requests - other.requests),
            max(0.0, self.errors - other.errors),
            self.first_token - other.first_token,
            self.cached - other.cached,
            max(0.0, self.own - other.own),
            max(0.0, self.shared - other.shared),
        )


Sample = Mapping[StratumKey, Stratum]
"""The requests of one revision by stratum."""


@dataclass(frozen=True, slots=True)
class SlotUse:
    """The requests that a slot works on, and the sessions that it holds, of whatever revision they are."""

    sessions: float = 0
    """Sessions that have come back before and that the slot served last, not long ago."""
    tokens: float = 0
    """Their tokens beyond the declared prompt: another slot computes them again if this one leaves."""
    requests: float = 0
    """Requests that run or wait there."""

    def __add__(self, other: Self) -> Self:
        """Return the sum of both."""
        return replace(
            self,
            sessions=self.sessions + other.sessions,
            tokens=self.tokens + other.tokens,
            requests=self.requests + other.requests,
        )


@dataclass(frozen=True, slots=True)
class Flow:
    """Requests of one revision within the window."""

    requests: float = 0
    named: float = 0
    """Those of them that named the group, so that its weights decided."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The counts of all routers together, by the short fingerprint of the revision that each request asked for.

    A request that a replica of another revision serves, because it was lent, counts for its own revision.
    """

    known: bool
    """True if the window is long enough to speak of shares."""
    flows: Mapping[ShortFingerprint, Flow] = field(default_factory=dict)
    """Requests within the window."""
    samples: Mapping[ShortFingerprint, Sample] = field(default_factory=dict)
    """Requests since the step of the release began, as far as it was observed."""
    last_requests: Mapping[ShortFingerprint, datetime] = field(default_factory=dict)
    """The latest time at which a request of the revision was seen to end."""
    watched_since: datetime | None = None
    """The time since which every router has been read; None where one of them cannot be read."""

    def requests(self) -> float:
        """Return the requests of all revisions within the window."""
        return sum(flow.requests for flow in self.flows.values())

    def quiet_since(self, revision: ShortFingerprint) -> datetime | None:
        """Return since when no request of the revision has ended; None where a router cannot be read."""
        if self.watched_since is None:
            return None
        return max(self.watched_since, self.last_requests.get(revision, self.watched_since))


@dataclass(frozen=True, slots=True)
class Calls:
    """Requests that found a group, or one that lives on its replicas, without any replica on purpose."""

    at: datetime | None = None
    """Time of the latest of which a router has told: this process's where it saw the count grow, else the router's."""
    read: bool = False
    """True if a router that knows the group was read lately."""


NO_CALLS = Calls()
