"""Read a router's page of metrics: its counters for each group that it may speak for. Does no I/O and reads no clock.

Any pod that carries the routers' label is read, so a page is trusted for the groups that its namespace may serve, and
for nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from promptgroup_operator.engines import exposition
from promptgroup_operator.world.samples import Flow, Histogram, Sample, SlotUse, Stratum, StratumKey, histogram
from promptgroup_operator.world.snapshot import Key
from promptgroup_router.contract import names
from promptgroup_router.contract.fingerprint import ShortFingerprint

MAX_SAMPLES = 8192
"""Most samples of one group that are read: some hundred for each revision, and three for each slot."""
MAX_SLOT_DIGITS = 4
"""Most digits of a slot's number."""

_PREFIXES = (
    names.METRIC_REVISION,
    names.METRIC_DEPARTED,
    names.METRIC_DEPARTED_AT,
    names.METRIC_INFLIGHT,
    names.METRIC_SLOT_SESSIONS,
    names.METRIC_SLOT_SESSION_TOKENS,
)


@dataclass(frozen=True, slots=True)
class RevisionGauges:
    """The gauges of a revision in one router, and its counter of prompt tokens."""

    sessions: float = 0
    session_tokens: float = 0
    waiting: float = 0
    prompt_tokens: float = 0


@dataclass(frozen=True, slots=True)
class RouterCounts:
    """One router's counters for one group."""

    flows: Mapping[ShortFingerprint, Flow] = field(default_factory=dict)
    samples: Mapping[ShortFingerprint, Sample] = field(default_factory=dict)
    stocks: Mapping[ShortFingerprint, RevisionGauges] = field(default_factory=dict)
    slots: Mapping[ShortFingerprint, Mapping[int, SlotUse]] = field(default_factory=dict)
    """Revision → slot → what the router has there at the moment."""
    evicted: Mapping[ShortFingerprint, Mapping[str, float]] = field(default_factory=dict)
    """Revision → band of EVICTED_WITHIN → evicted tokens."""
    departed: float = 0
    """Requests that nearly matched the group's prompt."""
    departed_at: float = 0
    """Median offset in bytes at which they differ from it."""

    @property
    def requests(self) -> float:
        """Requests of all revisions."""
        return sum(flow.requests for flow in self.flows.values())


def parse(page: str, serves: Callable[[Key], bool]) -> dict[Key, RouterCounts]:
    """Return the counters of each group on a router's page; lines that cannot be read are passed over.

    Args:
        page: Prometheus text.
        serves: returns True for the groups that the router may speak for.
    """
    found: dict[str, _Page | None] = {}
    for name, labels, text in exposition.samples(page, _PREFIXES):
        group, value = labels.get("group", ""), exposition.number(text)
        if group not in found:
            key = _key(group)
            found[group] = _Page(key) if key is not None and serves(key) else None
        of_group = found[group]
        if of_group is not None and value is not None:
            of_group.add(name, labels, value)
    return {each.key: each.counts() for each in found.values() if each is not None and each.samples}


def _key(group: str) -> Key | None:
    namespace, slash, name = group.partition("/")
    return Key(namespace, name) if slash and namespace and name else None


class _Page:
    """The samples of one group."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.samples = 0
        self._flows: dict[ShortFingerprint, Flow] = {}
        self._strata: dict[tuple[ShortFingerprint, StratumKey], Stratum] = {}
        self._buckets: dict[tuple[ShortFingerprint, StratumKey], dict[str, dict[float, float]]] = {}
        self._stocks: dict[ShortFingerprint, dict[str, float]] = {}
        self._slots: dict[ShortFingerprint, dict[int, SlotUse]] = {}
        self._evicted: dict[ShortFingerprint, dict[str, float]] = {}
        self._alone: dict[str, float] = {}

    def add(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add a sample; one beyond MAX_SAMPLES is passed over."""
        self.samples += 1
        if self.samples > MAX_SAMPLES:
            return
        revision, turn = ShortFingerprint(labels.get("revision", "")), labels.get("turn", "")
        key = revision, StratumKey(turn, labels.get("how", ""), labels.get("streamed") == names.STREAMED)
        if name == names.METRIC_REVISION_REQUESTS:
            known = self._flows.get(revision, Flow())
            named = value if labels.get("how") == names.HOW_NAME else 0
            self._flows[revision] = Flow(known.requests + value, known.named + named)
            failed = value if labels.get("outcome") == names.OUTCOME_FAILED else 0
            self._strata[key] = self._strata.get(key, Stratum()) + Stratum(value, failed)
        elif "le" in labels:
            bound = exposition.bound(labels["le"])
            if bound is not None:
                self._buckets.setdefault(key, {}).setdefault(name, {})[bound] = value
        elif name == names.METRIC_REVISION_EVICTED:
            if labels.get("within") in names.EVICTED_WITHIN:
                self._evicted.setdefault(revision, {})[labels["within"]] = value
        elif "slot" in labels:
            self._add_slot(revision, labels["slot"], name, value)
        elif revision and not turn:
            self._stocks.setdefault(revision, {})[name] = value
        else:
            self._alone[name] = value

    def _add_slot(self, revision: ShortFingerprint, slot: str, name: str, value: float) -> None:
        if not (slot.isascii() and slot.isdigit() and len(slot) <= MAX_SLOT_DIGITS):
            return
        use = SlotUse(
            sessions=value if name == names.METRIC_SLOT_SESSIONS else 0,
            tokens=value if name == names.METRIC_SLOT_SESSION_TOKENS else 0,
            requests=value if name == names.METRIC_INFLIGHT else 0,
        )
        slots = self._slots.setdefault(revision, {})
        slots[int(slot)] = slots.get(int(slot), SlotUse()) + use

    def counts(self) -> RouterCounts:
        """Return the counters that the samples make together."""
        samples: dict[ShortFingerprint, dict[StratumKey, Stratum]] = {}
        # routers of earlier versions do not label every series: what they count stands in strata of its own
        for revision, stratum in self._strata.keys() | self._buckets.keys():
            counted = self._strata.get((revision, stratum), Stratum())
            buckets = self._buckets.get((revision, stratum), {})
            first_token = histogram(buckets.get(f"{names.METRIC_REVISION_FIRST_TOKEN}_bucket", {}))
            samples.setdefault(revision, {})[stratum] = Stratum(
                requests=counted.requests,
                errors=counted.errors,
                first_token=first_token if stratum.streamed else Histogram(),
                cached=histogram(buckets.get(f"{names.METRIC_REVISION_CACHED}_bucket", {})),
            )
        stocks = {
            revision: RevisionGauges(
                sessions=said.get(names.METRIC_REVISION_SESSIONS, 0),
                session_tokens=said.get(names.METRIC_REVISION_SESSION_TOKENS, 0),
                waiting=said.get(names.METRIC_REVISION_WAITING, 0),
                prompt_tokens=said.get(names.METRIC_REVISION_PROMPT_TOKENS, 0),
            )
            for revision, said in self._stocks.items()
        }
        departed, at = self._alone.get(names.METRIC_DEPARTED, 0), self._alone.get(names.METRIC_DEPARTED_AT, 0)
        return RouterCounts(self._flows, samples, stocks, self._slots, self._evicted, departed, at)
