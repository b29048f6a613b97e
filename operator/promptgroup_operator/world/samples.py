"""Values of the routers' counters for a group's revisions.

A stratum holds requests that may be compared. A canary gets young sessions of clients that name the group, and the
first request of a session differs from a later one, whose history is cached. Clients that request streams differ from
clients that do not, as do clients that name the group from those that are matched by their prompt.
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
        """Total number of observations."""
        return sum(self.counts)

    def __add__(self, other: "Histogram") -> "Histogram":
        """Return the sum; if the buckets differ, as with routers of two versions, the one with more observations."""
        if self.bounds != other.bounds:
            return max(self, other, key=lambda item: item.total)
        return Histogram(self.bounds, tuple(a + b for a, b in zip_longest(self.counts, other.counts, fillvalue=0.0)))

    def __sub__(self, other: "Histogram") -> "Histogram":
        """Return the growth since `other`; counters that were reset count as zero."""
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
    """Estimate a quantile, linear within its bucket; return the last bound for values above it."""
    index = bucket_of(histogram, q)
    if index >= len(histogram.bounds):
        return histogram.bounds[-1]
    low = histogram.bounds[index - 1] if index else 0.0
    rest = q * histogram.total - sum(histogram.counts[:index])
    return low + (histogram.bounds[index] - low) * rest / (histogram.counts[index] or 1)


def mean(histogram: Histogram) -> float:
    """Estimate the mean with each observation at the middle of its bucket, and at the nearest bound at both ends."""
    bounds = histogram.bounds
    middles = [bounds[0], *((a + b) / 2 for a, b in pairwise(bounds)), bounds[-1]]
    return sum(count * at for count, at in zip(histogram.counts, middles, strict=True)) / histogram.total


def histogram(cumulative: Mapping[float, float]) -> Histogram:
    """Convert a Prometheus histogram: upper bound, of which the last is infinity → observations up to it."""
    ordered = sorted(cumulative.items())
    before = 0.0
    counts = []
    for _, count in ordered:
        counts.append(max(0.0, count - before))
        before = count
    return Histogram(tuple(bound for bound, _ in ordered[:-1]), tuple(counts))


class StratumKey(NamedTuple):
    """The properties by which requests are grouped before they are compared."""

    turn: str = names.TURN_FIRST
    """`first` if it begins a session, `later` if it returns to its session's replica; `other` is not compared."""
    how: str = names.HOW_NAME
    """`name` if the client named the group, else the router's way of matching it."""
    streamed: bool = True
    """True if the client requested a stream."""

    def __str__(self) -> str:
        """Return the name of the stratum in messages."""
        return f"{self.turn} turns by {self.how}, {'streamed' if self.streamed else 'whole'}"


@dataclass(frozen=True, slots=True)
class Stratum:
    """Requests of one revision that may be compared with those of another."""

    requests: float = 0
    """Requests that ended, without those whose client disconnected."""
    errors: float = 0
    """Requests that failed: with status 5xx, or cut short by the engine."""
    first_token: Histogram = Histogram()
    """Seconds to the first token; empty for responses without a stream, whose first byte follows the last token."""
    cached: Histogram = Histogram()
    """Share of a prompt's repeated tokens that were served from cache, 0 to 1."""
    own: float = 0
    """Tokens beyond the declared prompt in the requests of `first_token` that were new to their sessions."""
    shared: float = 0
    """Those of `own` that other sessions had sent to the replica before."""

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
        """Return the growth since `other`."""
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
    """The requests that run in a slot, and the sessions that it holds, of any revision."""

    sessions: float = 0
    """Sessions with more than one request that the slot served last, and recently."""
    tokens: float = 0
    """Tokens of these sessions beyond the declared prompt: another slot must recompute them if this one is removed."""
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
    """Requests that named the group, so that the revisions' weights applied."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The counts of all routers together, by the short fingerprint of the revision that each request was assigned to.

    A request that a lent replica of another revision serves counts for its own revision.
    """

    settled: bool
    """True if the window is long enough to compute shares from it."""
    flows: Mapping[ShortFingerprint, Flow] = field(default_factory=dict)
    """Requests within the window."""
    samples: Mapping[ShortFingerprint, Sample] = field(default_factory=dict)
    """Requests since the current step of the release began, as far as they were observed."""
    last_requests: Mapping[ShortFingerprint, datetime] = field(default_factory=dict)
    """Revision → latest time at which one of its requests was observed to end."""
    watched_since: datetime | None = None
    """The time since which every router has been read; None where one of them cannot be read."""

    def requests(self) -> float:
        """Return the requests of all revisions within the window."""
        return sum(flow.requests for flow in self.flows.values())

    def quiet_since(self, revision: ShortFingerprint) -> datetime | None:
        """Return the time since which no request of the revision has ended; None where a router cannot be read."""
        if self.watched_since is None:
            return None
        return max(self.watched_since, self.last_requests.get(revision, self.watched_since))


@dataclass(frozen=True, slots=True)
class Calls:
    """Requests for a group, or a guest of it, while it had no replica by design."""

    at: datetime | None = None
    """Time of the latest such request: by this process's clock if it observed the count grow, else by the router's."""
    read: bool = False
    """True if a router that serves the group was read recently."""


NO_CALLS = Calls()
