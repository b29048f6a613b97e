"""Makes the rates of each group from two readings of the routers. Does no I/O.

A reading is the answer of every router at one moment: its metrics, and its table with the load of each replica.
Counters are compared router by router, so that one that has restarted counts as nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from promptgroup_contract import names
from promptgroup_contract.fingerprint import ShortFingerprint
from promptgroup_operator.world.samples import Histogram, histogram, quantile
from promptgroup_router.rings.ids import MemberId, member_parts, place_name

_PREFIX = "promptgroup_router_"
_REQUESTS = _PREFIX + "requests_total"
_PROMPT, _CACHED = _PREFIX + "prompt_tokens_total", _PREFIX + "cached_tokens_total"
_BUCKET = names.METRIC_REVISION_FIRST_TOKEN + "_bucket"


@dataclass(frozen=True, slots=True)
class ReplicaRate:
    """The load of a replica, or of one data-parallel rank of its engine, as the routers have it."""

    group: str
    revision: ShortFingerprint
    slot: int
    in_flight: int = 0
    """Requests of all routers together."""
    wait: float = 0.0
    """Seconds until the requests sent there are computed; the longest that a router reports, as below."""
    sessions: int = 0
    """Sessions that it serves."""
    filled: float = 0.0
    """Tokens of the sessions over tokens of the KV cache."""
    rank: int | None = None
    """Data-parallel rank of its engine; None where it has one cache."""

    @property
    def place(self) -> str:
        """The slot, and the rank if there is one."""
        return place_name(self.slot, self.rank)


@dataclass(frozen=True, slots=True)
class RouterPage:
    """One router's counters, by `namespace/group`, and its replicas."""

    requests: Mapping[str, float]
    prompt: Mapping[str, float]
    cached: Mapping[str, float]
    first_token: Mapping[str, Histogram]
    """Seconds to the first byte of answers that are streamed."""
    waiting: Mapping[str, float]
    """Requests that wait for a replica."""
    replicas: tuple[ReplicaRate, ...]


@dataclass(frozen=True, slots=True)
class TopRates:
    """The traffic of a group."""

    requests: float = 0.0
    """Requests per second."""
    hit_rate: float | None = None
    """Share of prompt tokens that were cached; None without a request, as the times are."""
    median: float | None = None
    """Seconds to the first token of answers that are streamed."""
    late: float | None = None
    """99th percentile of the same."""
    in_flight: int = 0
    """Requests on its replicas."""
    waiting: int = 0
    """Requests that wait in the routers for a replica."""
    replicas: tuple[ReplicaRate, ...] = field(default=())
    """Replicas by revision and slot."""


def router_page(metrics: str, table: Mapping[str, Any]) -> RouterPage:
    """Parse the answers of a router to /metrics and /table."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    buckets: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            group = sample.labels.get("group")
            if group is None:
                continue
            if sample.name == _BUCKET and sample.labels["streamed"] == names.STREAMED:
                buckets[group][float(sample.labels["le"])] += sample.value
            sums[sample.name][group] += sample.value
    return RouterPage(
        requests=sums[_REQUESTS],
        prompt=sums[_PROMPT],
        cached=sums[_CACHED],
        first_token={group: histogram(result) for group, result in buckets.items()},
        waiting=sums[names.METRIC_REVISION_WAITING],
        replicas=tuple(_replica(id_, item) for id_, item in table["replicas"].items()),
    )


def _replica(id_: str, earlier: Mapping[str, Any]) -> ReplicaRate:
    member = member_parts(MemberId(id_))
    return ReplicaRate(
        group=member.group,
        revision=member.revision,
        slot=member.slot,
        rank=member.rank,
        in_flight=earlier["inFlight"],
        wait=earlier["waitSeconds"],
        sessions=earlier["liveSessions"],
        filled=earlier["liveTokens"] / earlier["kvTokens"],
    )


def rates(before: Mapping[str, RouterPage], after: Mapping[str, RouterPage], seconds: float) -> dict[str, TopRates]:
    """Return the traffic between two readings by `namespace/group`; the readings are by the name of the router."""
    both = [(before[name], page) for name, page in after.items() if name in before]
    replicas = _together(replica for page in after.values() for replica in page.replicas)
    groups = {group for page in after.values() for group in page.requests} | {replica.group for replica in replicas}
    result = {}
    for group in sorted(groups):
        prompt = sum(_since(old.prompt, new.prompt, group) for old, new in both)
        cached = sum(_since(old.cached, new.cached, group) for old, new in both)
        first = Histogram()
        for old, new in both:
            first += new.first_token.get(group, Histogram()) - old.first_token.get(group, Histogram())
        own = tuple(replica for replica in replicas if replica.group == group)
        result[group] = TopRates(
            requests=sum(_since(old.requests, new.requests, group) for old, new in both) / seconds,
            hit_rate=cached / prompt if prompt else None,
            median=quantile(first, 0.5) if first.total else None,
            late=quantile(first, 0.99) if first.total else None,
            in_flight=sum(replica_rate.in_flight for replica_rate in own),
            waiting=round(sum(page.waiting.get(group, 0.0) for page in after.values())),
            replicas=own,
        )
    return result


def _since(old: Mapping[str, float], new: Mapping[str, float], group: str) -> float:
    return max(0.0, new.get(group, 0.0) - old.get(group, 0.0))


def _together(seen: Iterable[ReplicaRate]) -> list[ReplicaRate]:
    """Merge the routers' views of each replica."""
    result: dict[tuple[str, ShortFingerprint, int, int | None], ReplicaRate] = {}
    for rate in seen:
        key = rate.group, rate.revision, rate.slot, rate.rank
        replica_rate = result.get(key, rate)
        result[key] = ReplicaRate(
            *key[:3],
            rank=rate.rank,
            in_flight=rate.in_flight + (replica_rate.in_flight if replica_rate is not rate else 0),
            wait=max(rate.wait, replica_rate.wait),
            sessions=max(rate.sessions, replica_rate.sessions),
            filled=max(rate.filled, replica_rate.filled),
        )
    return [result[key] for key in sorted(result, key=lambda key: (*key[:3], -1 if key[3] is None else key[3]))]


def by_slot(rates: Iterable[ReplicaRate]) -> dict[tuple[ShortFingerprint, int], ReplicaRate]:
    """Return revision and slot → the load of the replica there, of all ranks of its engine together.

    Its wait and its KV cache are those of the fullest rank.
    """
    result: dict[tuple[ShortFingerprint, int], ReplicaRate] = {}
    for rate in rates:
        earlier = result.get((rate.revision, rate.slot), ReplicaRate(rate.group, rate.revision, rate.slot))
        result[rate.revision, rate.slot] = replace(
            earlier,
            in_flight=earlier.in_flight + rate.in_flight,
            wait=max(earlier.wait, rate.wait),
            sessions=earlier.sessions + rate.sessions,
            filled=max(earlier.filled, rate.filled),
        )
    return result
