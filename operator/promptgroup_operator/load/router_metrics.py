"""A router's page of metrics → its counters of every group. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from promptgroup_operator.world.samples import Flow, Histogram, Sample, Stratum, histogram
from promptgroup_operator.world.snapshot import Key
from promptgroup_router.contract import names

_READ = (names.METRIC_REVISION, names.METRIC_DEPARTED, names.METRIC_DEPARTED_AT)


@dataclass(frozen=True, slots=True)
class RevisionGauges:
    """What a revision had in one router at the moment of a reading, and its prompt tokens until then."""

    sessions: float = 0
    session_tokens: float = 0
    waiting: float = 0
    prompt_tokens: float = 0


@dataclass(frozen=True, slots=True)
class RouterCounts:
    """One router's counters of one group. Revisions by their short fingerprint."""

    flows: Mapping[str, Flow] = field(default_factory=dict)
    samples: Mapping[str, Sample] = field(default_factory=dict)
    stocks: Mapping[str, RevisionGauges] = field(default_factory=dict)
    departed: float = 0
    """Requests that came close to the group's prompt."""
    departed_at: float = 0
    """The median of where they left it, in bytes."""

    @property
    def requests(self) -> float:
        """Of all revisions."""
        return sum(flow.requests for flow in self.flows.values())


def parse(text: str) -> dict[Key, RouterCounts]:
    """The counters of every group in a router's Prometheus text; lines that cannot be read are left out."""
    found: dict[Key, _Page] = {}
    for name, labels, value in _samples(text):
        namespace, _, group = labels.get("group", "").partition("/")
        if group:
            found.setdefault(Key(namespace, group), _Page()).add(name, labels, value)
    return {key: page.counts() for key, page in found.items()}


class _Page:
    """Lines of one group."""

    def __init__(self) -> None:
        self._flows: dict[str, Flow] = {}
        self._strata: dict[tuple[str, str], Stratum] = {}
        self._buckets: dict[tuple[str, str, str, str], dict[float, float]] = {}
        self._stocks: dict[str, dict[str, float]] = {}
        self._alone: dict[str, float] = {}

    def add(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """One sample."""
        revision, turn = labels.get("revision", ""), labels.get("turn", "")
        if name == names.METRIC_REVISION_REQUESTS:
            known = self._flows.get(revision, Flow())
            named = value if labels.get("how") == names.HOW_NAME else 0
            self._flows[revision] = Flow(known.requests + value, known.named + named)
            failed = value if labels.get("outcome") == names.OUTCOME_FAILED else 0
            self._strata[revision, turn] = self._strata.get((revision, turn), Stratum()) + Stratum(value, failed)
        elif "le" in labels:
            key = name, revision, turn, labels.get("streamed", "")
            self._buckets.setdefault(key, {})[float(labels["le"])] = value
        elif revision and not turn:
            self._stocks.setdefault(revision, {})[name] = value
        else:
            self._alone[name] = value

    def counts(self) -> RouterCounts:
        """All of them together."""
        samples: dict[str, dict[str, Stratum]] = {}
        for (revision, turn), counted in self._strata.items():
            streamed, whole = (
                self._histogram(names.METRIC_REVISION_FIRST_TOKEN, revision, turn, each)
                for each in (names.STREAMED, names.WHOLE)
            )
            cached = self._histogram(names.METRIC_REVISION_CACHED, revision, turn)
            timed = Stratum(counted.requests, counted.errors, streamed + whole, cached, streamed)
            samples.setdefault(revision, {})[turn] = timed
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
        return RouterCounts(self._flows, samples, stocks, departed, at)

    def _histogram(self, name: str, revision: str, turn: str, streamed: str = "") -> Histogram:
        return histogram(self._buckets.get((f"{name}_bucket", revision, turn, streamed), {}))


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        if line.startswith(_READ):
            name, _, rest = line.partition("{")
            labels, _, value = rest.rpartition("} ")
            try:
                # names and fingerprints: nothing in them is quoted or has a comma
                found = dict(each.split('="', 1) for each in labels[:-1].split('",'))
                yield name, found, float(value)
            except ValueError:
                continue
