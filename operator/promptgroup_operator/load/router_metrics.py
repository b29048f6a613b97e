"""Parse a router's metrics page into its counters for each group that it may serve. Does no I/O and reads no clock.

Any pod with the routers' label is scraped. A page is therefore trusted only for the groups that the pod's namespace may
serve, and the values stored of it take PAGE_MEMORY at most.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from promptgroup_contract import names
from promptgroup_contract.fingerprint import ShortFingerprint
from promptgroup_operator.engines import exposition
from promptgroup_operator.world.samples import Flow, Histogram, Sample, SlotUse, Stratum, StratumKey, histogram
from promptgroup_operator.world.snapshot import Key

PAGE_MEMORY = 1 << 20
"""Bytes of memory after which the rest of a page is not parsed.

A revision whose clients send all twelve kinds of requests (first turn, later or other, by name or by content, streamed
or not) has 130 KB of a router's page and is counted as 24 KB here, so that the longest page that is accepted from a
router takes 0.7 MiB.
"""
NAME, REVISION, STRATUM, BUCKET, SLOT = 256, 1024, 768, 40, 256
"""Bytes of memory, rounded up, for the name of a group, a revision beside its strata, a stratum beside its buckets, the
count or the bound of a bucket, and a slot."""
MAX_LABEL = 64
"""Maximum length in characters of a label that distinguishes samples."""
MAX_SLOT_DIGITS = 4
"""Maximum number of digits in a slot's number."""

_PREFIXES = (
    names.METRIC_REVISION,
    names.METRIC_NEAR_MISSES,
    names.METRIC_NEAR_MISS_OFFSET,
    names.METRIC_WAKE,
    names.METRIC_INFLIGHT,
    names.METRIC_SLOT_SESSIONS,
    names.METRIC_SLOT_SESSION_TOKENS,
    names.METRIC_SLOT_PROMPT_TOKENS,
    names.METRIC_SLOT_CACHED_TOKENS,
)
_FIRST_TOKEN, _CACHED = f"{names.METRIC_REVISION_FIRST_TOKEN}_bucket", f"{names.METRIC_REVISION_CACHED}_bucket"
_STOCKS = frozenset(
    (
        names.METRIC_REVISION_SESSIONS,
        names.METRIC_REVISION_SESSION_TOKENS,
        names.METRIC_REVISION_WAITING,
        names.METRIC_REVISION_PROMPT_TOKENS,
        names.METRIC_REVISION_ANSWER_TOKENS,
    )
)
_ALONE = frozenset(
    (names.METRIC_NEAR_MISSES, names.METRIC_NEAR_MISS_OFFSET, names.METRIC_WAKE_REQUESTS, names.METRIC_WAKE_AT)
)
"""Metrics that have one sample for a whole group."""
_OF_SLOTS = frozenset((names.METRIC_SLOT_PROMPT_TOKENS, names.METRIC_SLOT_CACHED_TOKENS))
"""Per-slot counters that are summed per revision."""
_TELLING = ("revision", "turn", "how")
"""Labels whose values are stored."""


@dataclass(frozen=True, slots=True)
class RevisionGauges:
    """The gauges of a revision in one router, and its counters of tokens."""

    sessions: float = 0
    session_tokens: float = 0
    waiting: float = 0
    prompt_tokens: float = 0
    answer_tokens: float = 0
    looked_up_tokens: float = 0
    """Prompt tokens of the responses that report cached tokens, over all slots of the revision."""
    cached_tokens: float = 0
    """Those of `looked_up_tokens` that were served from cache."""

    def with_growth(self, before: "RevisionGauges", after: "RevisionGauges") -> "RevisionGauges":
        """Return these counters plus the growth from `before` to `after`; a counter that was reset adds nothing."""
        return replace(
            self,
            prompt_tokens=self.prompt_tokens + max(0.0, after.prompt_tokens - before.prompt_tokens),
            answer_tokens=self.answer_tokens + max(0.0, after.answer_tokens - before.answer_tokens),
            looked_up_tokens=self.looked_up_tokens + max(0.0, after.looked_up_tokens - before.looked_up_tokens),
            cached_tokens=self.cached_tokens + max(0.0, after.cached_tokens - before.cached_tokens),
        )


@dataclass(frozen=True, slots=True)
class RouterCounts:
    """One router's counters for one group."""

    flows: Mapping[ShortFingerprint, Flow] = field(default_factory=dict)
    samples: Mapping[ShortFingerprint, Sample] = field(default_factory=dict)
    stocks: Mapping[ShortFingerprint, RevisionGauges] = field(default_factory=dict)
    slots: Mapping[ShortFingerprint, Mapping[int, SlotUse]] = field(default_factory=dict)
    """Revision → slot → the router's current sessions and requests there."""
    evicted: Mapping[ShortFingerprint, Mapping[str, float]] = field(default_factory=dict)
    """Revision → band of EVICTED_WITHIN → evicted tokens."""
    near_misses: float = 0
    """Requests that nearly matched the group's prompt."""
    near_miss_offset: float = 0
    """Median offset in bytes at which the near misses differ from the group's prompt."""
    wake_requests: float = 0
    """Requests for a group that has no replica because it sleeps or is scaled to zero."""
    wake_at: float = 0
    """Time of the latest such request, in seconds since 1970; 0 if there was none."""
    memory: int = field(default=0, compare=False)
    """Upper bound of the memory in bytes that these counters take, without the slots."""

    @property
    def requests(self) -> float:
        """Total requests over all revisions."""
        return sum(flow.requests for flow in self.flows.values())


def parse(page: str, serves: Callable[[Key], bool], memory: int = PAGE_MEMORY) -> dict[Key, RouterCounts]:
    """Return the counters of each group on a router's page; lines that cannot be parsed are skipped.

    Args:
        page: Prometheus text.
        serves: returns True for the groups that the router may serve.
        memory: bytes of memory after which the rest of the page is not parsed.
    """
    result: dict[str, _Group | None] = {}
    left = memory
    for name, labels, text in exposition.samples(page, _PREFIXES):
        group, value = labels.get("group", ""), exposition.number(text)
        if group not in result:
            left -= NAME
            key = _key(group)
            result[group] = _Group(key) if key is not None and serves(key) else None
        of_group = result[group]
        if of_group is not None and value is not None:
            left -= of_group.add(name, labels, value)
        if left < 0:
            break
    shared: dict[tuple[float, ...], tuple[float, ...]] = {}
    return {item.key: item.counts(shared) for item in result.values() if item is not None and item.sampled}


def _key(group: str) -> Key | None:
    namespace, slash, name = group.partition("/")
    return Key(namespace, name) if slash and namespace and name else None


class _Group:
    """The samples of one group."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.sampled = False
        """True if the page has any sample of the group."""
        self._memory = 0
        self._revisions: set[ShortFingerprint] = set()
        self._flows: dict[ShortFingerprint, Flow] = {}
        self._strata: dict[tuple[ShortFingerprint, StratumKey], Stratum] = {}
        self._buckets: dict[tuple[ShortFingerprint, StratumKey], dict[str, dict[float, float]]] = {}
        self._stocks: dict[ShortFingerprint, dict[str, float]] = {}
        self._slots: dict[ShortFingerprint, dict[int, SlotUse]] = {}
        self._evicted: dict[ShortFingerprint, dict[str, float]] = {}
        self._alone: dict[str, float] = {}

    def add(self, name: str, labels: Mapping[str, str], value: float) -> int:
        """Add a sample and return an upper bound of the memory in bytes that it takes."""
        self.sampled = True
        if any(len(labels.get(item, "")) > MAX_LABEL for item in _TELLING):
            return 0
        before = self._memory
        slot = self._add(name, labels, value)
        return self._memory - before + slot

    def _add(self, name: str, labels: Mapping[str, str], value: float) -> int:
        """Add a sample and return the memory of its slot; the rest is counted."""
        revision, turn = ShortFingerprint(labels.get("revision", "")), labels.get("turn", "")
        key = revision, StratumKey(turn, labels.get("how", ""), labels.get("streamed") == names.STREAMED)
        if revision not in self._revisions:
            self._revisions.add(revision)
            self._memory += REVISION
        if name == names.METRIC_REVISION_REQUESTS:
            self._count(key)
            flow = self._flows.get(revision, Flow())
            named = value if labels.get("how") == names.HOW_NAME else 0
            self._flows[revision] = Flow(flow.requests + value, flow.named + named)
            failed = value if labels.get("outcome") == names.OUTCOME_FAILED else 0
            self._strata[key] = self._strata.get(key, Stratum()) + Stratum(value, failed)
        elif name in (names.METRIC_REVISION_OWN_TOKENS, names.METRIC_REVISION_SHARED_TOKENS):
            self._count(key)
            stratum = Stratum(own=value) if name == names.METRIC_REVISION_OWN_TOKENS else Stratum(shared=value)
            self._strata[key] = self._strata.get(key, Stratum()) + stratum
        elif name in (_FIRST_TOKEN, _CACHED):
            bound = exposition.bound(labels.get("le", ""))
            if bound is not None:
                self._count(key)
                self._memory += BUCKET
                self._buckets.setdefault(key, {}).setdefault(name, {})[bound] = value
        elif name == names.METRIC_REVISION_EVICTED:
            if labels.get("within") in names.EVICTED_WITHIN:
                self._evicted.setdefault(revision, {})[labels["within"]] = value
        elif name in _OF_SLOTS:
            stocks = self._stocks.setdefault(revision, {})
            stocks[name] = stocks.get(name, 0) + value
        elif "slot" in labels:
            return self._add_slot(revision, labels["slot"], name, value)
        elif name in _STOCKS:
            self._stocks.setdefault(revision, {})[name] = value
        elif name in _ALONE:
            self._alone[name] = value
        return 0

    def _count(self, key: tuple[ShortFingerprint, StratumKey]) -> None:
        if key not in self._strata and key not in self._buckets:
            self._memory += STRATUM

    def _add_slot(self, revision: ShortFingerprint, slot: str, name: str, value: float) -> int:
        if not (slot.isascii() and slot.isdigit() and len(slot) <= MAX_SLOT_DIGITS):
            return 0
        use = SlotUse(
            sessions=value if name == names.METRIC_SLOT_SESSIONS else 0,
            tokens=value if name == names.METRIC_SLOT_SESSION_TOKENS else 0,
            requests=value if name == names.METRIC_INFLIGHT else 0,
        )
        slots = self._slots.setdefault(revision, {})
        earlier = slots.get(int(slot))
        slots[int(slot)] = earlier + use if earlier is not None else use
        return SLOT if earlier is None else 0

    def counts(self, bounds: dict[tuple[float, ...], tuple[float, ...]]) -> RouterCounts:
        """Return the counters that the samples make together.

        Args:
            bounds: bounds of the page's histograms, one copy of each; those of this group are added.
        """

        def read(buckets: Mapping[float, float]) -> Histogram:
            result = histogram(buckets)
            if result.bounds not in bounds:
                self._memory += BUCKET * len(result.bounds)
            return replace(result, bounds=bounds.setdefault(result.bounds, result.bounds))

        samples: dict[ShortFingerprint, dict[StratumKey, Stratum]] = {}
        # Routers of earlier versions do not label every series: their counts form separate strata.
        for revision, stratum in self._strata.keys() | self._buckets.keys():
            counted = self._strata.get((revision, stratum), Stratum())
            buckets = self._buckets.get((revision, stratum), {})
            first_token = read(buckets.get(_FIRST_TOKEN, {}))
            samples.setdefault(revision, {})[stratum] = Stratum(
                requests=counted.requests,
                errors=counted.errors,
                first_token=first_token if stratum.streamed else Histogram(),
                cached=read(buckets.get(_CACHED, {})),
                own=counted.own,
                shared=counted.shared,
            )
        stocks = {
            revision: RevisionGauges(
                sessions=value.get(names.METRIC_REVISION_SESSIONS, 0),
                session_tokens=value.get(names.METRIC_REVISION_SESSION_TOKENS, 0),
                waiting=value.get(names.METRIC_REVISION_WAITING, 0),
                prompt_tokens=value.get(names.METRIC_REVISION_PROMPT_TOKENS, 0),
                answer_tokens=value.get(names.METRIC_REVISION_ANSWER_TOKENS, 0),
                looked_up_tokens=value.get(names.METRIC_SLOT_PROMPT_TOKENS, 0),
                cached_tokens=value.get(names.METRIC_SLOT_CACHED_TOKENS, 0),
            )
            for revision, value in self._stocks.items()
        }
        return RouterCounts(
            self._flows,
            samples,
            stocks,
            self._slots,
            self._evicted,
            near_misses=self._alone.get(names.METRIC_NEAR_MISSES, 0),
            near_miss_offset=self._alone.get(names.METRIC_NEAR_MISS_OFFSET, 0),
            wake_requests=self._alone.get(names.METRIC_WAKE_REQUESTS, 0),
            wake_at=self._alone.get(names.METRIC_WAKE_AT, 0),
            memory=self._memory,
        )
