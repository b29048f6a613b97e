"""Compute a revision's load from readings of its engines over a window. Does no I/O and reads no clock.

A counter is meaningful only between two readings of the same process, so growth is summed over pairs of consecutive
readings. A pair is left out if the counters were reset between its readings, if part of the growth cannot be
attributed, or if the readings are too far apart. So a rate never exceeds the true rate, and missing readings lower
`coverage` instead of distorting a mean.

The operator's own requests are subtracted: tokens by their usage; time in prefill by their share of computed tokens,
so that the measured tokens per second do not change; first tokens by removing the fastest observations, so that an
error never removes slow ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import EngineLoad
from promptgroup_operator.world.samples import Histogram
from promptgroup_operator.world.snapshot import ContainerId, Reading

GAP = timedelta(minutes=2)
"""Maximum time between two readings that are used: twice the time between two passes over an idle group."""


@dataclass(frozen=True, slots=True)
class OwnRequests:
    """The operator's own share of an engine's counters; each of its responses has one token."""

    queries: int = 0
    hits: int = 0
    requests: int = 0
    tiered: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One reading of an engine."""

    at: datetime
    reading: Reading
    own: OwnRequests
    begins: bool = False
    """True if the growth before this reading cannot be used."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Sums over the clients' requests to one engine between two readings."""

    began: datetime
    ended: datetime
    requests: float
    queries: float
    hits: float
    tiered: float
    generated: float
    computed: float | None
    prefill: float | None
    decode: float | None
    queue: float | None
    preemptions: float | None
    first_token: Histogram
    running: float
    """The mean of both readings, as are the next two fields."""
    waiting: float
    usage: float

    @property
    def seconds(self) -> float:
        """Return the seconds between the readings."""
        return (self.ended - self.began).total_seconds()


def growth(entries: Sequence[Entry], since: datetime) -> Iterator[Growth]:
    """Yield the growth between consecutive readings of one engine, for pairs that end after `since`."""
    for before, after in pairwise(entries):
        if after.at > since and not after.begins and after.at - before.at <= GAP:
            yield _between(before, after)


def _between(before: Entry, after: Entry) -> Growth:
    a, b = before.reading, after.reading
    requests = after.own.requests - before.own.requests
    queries, hits = after.own.queries - before.own.queries, after.own.hits - before.own.hits
    computed, prefill = _grown(a.computed, b.computed), _grown(a.prefill_seconds, b.prefill_seconds)
    if computed:
        clients = max(0.0, computed - (queries - hits))
        prefill = prefill * clients / computed if prefill is not None else None
        computed = clients
    return Growth(
        before.at,
        after.at,
        requests=max(0.0, b.requests - a.requests - requests),
        queries=max(0.0, b.queries - a.queries - queries),
        hits=max(0.0, b.hits - a.hits - hits),
        tiered=max(0.0, b.tiered - a.tiered - (after.own.tiered - before.own.tiered)),
        generated=max(0.0, b.generated - a.generated - requests),
        computed=computed,
        prefill=prefill,
        decode=_grown(a.decode_seconds, b.decode_seconds),
        queue=_grown(a.queue_seconds, b.queue_seconds),
        preemptions=_grown(a.preemptions, b.preemptions),
        first_token=without_fastest(b.first_token - a.first_token, requests),
        running=(a.running + b.running) / 2,
        waiting=(a.waiting + b.waiting) / 2,
        usage=(a.usage + b.usage) / 2,
    )


def _grown(before: float | None, after: float | None) -> float | None:
    return after - before if before is not None and after is not None else None


def without_fastest(histogram: Histogram, count: int) -> Histogram:
    """Return the histogram without `count` of its fastest observations."""
    counts, left = [], float(count)
    for item in histogram.counts:
        taken = min(item, left)
        left -= taken
        counts.append(item - taken)
    return Histogram(histogram.bounds, tuple(counts))


def counters_reset(before: Reading, after: Reading) -> bool:
    """Return True if a counter fell, because another process writes it."""
    pairs = (
        (before.queries, after.queries),
        (before.hits, after.hits),
        (before.tiered, after.tiered),
        (before.generated, after.generated),
        (before.requests, after.requests),
        (before.computed, after.computed),
        (before.prefill_seconds, after.prefill_seconds),
        (before.decode_seconds, after.decode_seconds),
        (before.queue_seconds, after.queue_seconds),
        (before.preemptions, after.preemptions),
    )
    return any(a is not None and b is not None and b < a for a, b in pairs)


def engines(
    histories: Mapping[ContainerId, Sequence[Entry]],
    serving: Mapping[ContainerId, datetime],
    since: datetime,
    measured: Measured,
) -> tuple[float, EngineLoad] | None:
    """Return the length of the window in seconds and the engines' load in it; None without a usable pair of readings.

    Args:
        histories: container → its readings, including containers that no longer exist.
        serving: container → time since which it serves, for all that do.
        since: start of the window.
        measured: measurements of the engines.
    """
    grown = {container: tuple(growth(entries, since)) for container, entries in histories.items()}
    every = [client_hit for client_hits in grown.values() for client_hit in client_hits]
    if not every:
        return None
    began, ended = min(item.began for item in every), max(item.ended for item in every)
    window = (ended - began).total_seconds()
    read = {
        container: sum(client_hit.seconds for client_hit in client_hits) for container, client_hits in grown.items()
    }
    lived = dict(read)
    for container, start in serving.items():
        alive = (ended - max(began, start)).total_seconds()
        lived[container] = max(alive, read.get(container, 0.0))
    covered = sum(read.values())
    latest = [entries[-1].reading.kv_tokens for entries in histories.values() if entries]
    return window, EngineLoad(
        replicas=covered / window,
        coverage=covered / sum(lived.values()),
        requests=sum(item.requests for item in every) / window,
        queries=sum(item.queries for item in every) / window,
        hits=sum(item.hits for item in every) / window,
        generated=sum(item.generated for item in every) / window,
        computed=_rate((item.computed for item in every), window),
        prefill_busy=_rate((item.prefill for item in every), window),
        decode_busy=_rate((item.decode for item in every), window),
        queue_busy=_rate((item.queue for item in every), window),
        running=sum(item.running * item.seconds for item in every) / window,
        waiting=sum(item.waiting * item.seconds for item in every) / window,
        usage=sum(item.usage * item.seconds for item in every) / covered,
        preemptions=_rate((item.preemptions for item in every), window),
        first_token=sum((item.first_token for item in every), Histogram()),
        kv_tokens=min((tokens for tokens in latest if tokens), default=measured.kv_tokens),
        prefill_rate=float(measured.prefill_rate),
        tiered=sum(item.tiered for item in every) / window,
    )


def _rate(values: Iterable[float | None], seconds: float) -> float | None:
    """Return the sum over the window, per second; None if one engine does not report the value."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total / seconds


@dataclass(frozen=True, slots=True)
class FoundTokens:
    """The clients' prompt tokens, and how many of them were cached."""

    queries: float = 0.0
    hits: float = 0.0
    tiered: float = 0.0
    """Those of `hits` that were loaded from KV tiers."""
    sources: Mapping[str, float] = field(default_factory=dict)
    """Source → tokens loaded from it, including the operator's own requests, whose share is not measured."""

    def __add__(self, other: "FoundTokens") -> "FoundTokens":
        """Return the sum of both."""
        return FoundTokens(
            self.queries + other.queries,
            self.hits + other.hits,
            self.tiered + other.tiered,
            {
                source: self.sources.get(source, 0.0) + other.sources.get(source, 0.0)
                for source in {**self.sources, **other.sources}
            },
        )

    @property
    def rates(self) -> tuple[float | None, float | None]:
        """The share of prompt tokens that were cached, and the part of it from KV tiers; None without tokens.

        Both are limited to the range from 0 to 1, whatever an engine counts.
        """
        if self.queries <= 0:
            return None, None
        share = _share(self.hits, self.queries)
        return share, min(share, _share(self.tiered, self.queries))

    @property
    def rates_by_source(self) -> dict[str, float]:
        """The hit rate from KV tiers, divided by the source of the tokens."""
        brought, tiered = sum(self.sources.values()), self.rates[1]
        if tiered is None or brought <= 0:
            return {}
        return {source: tiered * (part / brought) for source, part in sorted(self.sources.items())}


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole))


def client_hits(entries: Sequence[Entry]) -> FoundTokens:
    """Return the clients' prompt tokens over one engine's readings."""
    found_tokens = FoundTokens()
    for before, after in pairwise(entries):
        if not after.begins:
            a, b, own, then = before.reading, after.reading, after.own, before.own
            found_tokens += FoundTokens(
                queries=b.queries - a.queries - (own.queries - then.queries),
                hits=b.hits - a.hits - (own.hits - then.hits),
                tiered=max(0.0, b.tiered - a.tiered - (own.tiered - then.tiered)),
                sources={source: max(0.0, now - a.sources.get(source, 0.0)) for source, now in b.sources.items()},
            )
    return found_tokens
