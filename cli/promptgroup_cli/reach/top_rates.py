"""Makes the rates of each group from two readings of the routers. Does no I/O.

A reading is the answer of every router at one moment: its metrics, and its table with the load of each replica.
Counters are compared router by router, so that one that has restarted counts as nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from promptgroup_contract import names
from promptgroup_contract.fingerprint import ShortFingerprint
from promptgroup_operator.world.samples import Histogram, histogram, quantile
from promptgroup_router.rings.ids import MemberId, member_parts

_PREFIX = "promptgroup_router_"
_REQUESTS = _PREFIX + "requests_total"
_PROMPT, _CACHED = _PREFIX + "prompt_tokens_total", _PREFIX + "cached_tokens_total"
_BUCKET = names.METRIC_REVISION_FIRST_TOKEN + "_bucket"


@dataclass(frozen=True, slots=True)
class ReplicaRate:
    """The load of a replica, as the routers have it."""

    group: str
    revision: ShortFingerprint
    slot: int
    in_flight: int = 0
    """Requests of all routers together."""
    wait: float = 0.0
    """Seconds until the requests sent there are computed; the longest of the routers' views, as below."""
    sessions: int = 0
    """Sessions that take turns there."""
    filled: float = 0.0
    """Tokens of the sessions over tokens of the KV cache."""


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
    """Share of prompt tokens found in cache; None without a request, as the times are."""
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
        first_token={group: histogram(found) for group, found in buckets.items()},
        waiting=sums[names.METRIC_REVISION_WAITING],
        replicas=tuple(_replica(id_, each) for id_, each in table["replicas"].items()),
    )


def _replica(id_: str, known: Mapping[str, Any]) -> ReplicaRate:
    member = member_parts(MemberId(id_))
    return ReplicaRate(
        group=member.group,
        revision=member.revision,
        slot=member.slot,
        in_flight=known["inFlight"],
        wait=known["waitSeconds"],
        sessions=known["liveSessions"],
        filled=known["liveTokens"] / known["kvTokens"],
    )


def rates(before: Mapping[str, RouterPage], after: Mapping[str, RouterPage], seconds: float) -> dict[str, TopRates]:
    """Return the traffic between two readings by `namespace/group`; the readings are by the name of the router."""
    both = [(before[name], page) for name, page in after.items() if name in before]
    replicas = _together(each for page in after.values() for each in page.replicas)
    groups = {group for page in after.values() for group in page.requests} | {each.group for each in replicas}
    found = {}
    for group in sorted(groups):
        prompt = sum(_since(old.prompt, new.prompt, group) for old, new in both)
        cached = sum(_since(old.cached, new.cached, group) for old, new in both)
        first = Histogram()
        for old, new in both:
            first += new.first_token.get(group, Histogram()) - old.first_token.get(group, Histogram())
        own = tuple(each for each in replicas if each.group == group)
        found[group] = TopRates(
            requests=sum(_since(old.requests, new.requests, group) for old, new in both) / seconds,
            hit_rate=cached / prompt if prompt else None,
            median=quantile(first, 0.5) if first.total else None,
            late=quantile(first, 0.99) if first.total else None,
            in_flight=sum(each.in_flight for each in own),
            waiting=round(sum(page.waiting.get(group, 0.0) for page in after.values())),
            replicas=own,
        )
    return found


def _since(old: Mapping[str, float], new: Mapping[str, float], group: str) -> float:
    return max(0.0, new.get(group, 0.0) - old.get(group, 0.0))


def _together(seen: Iterable[ReplicaRate]) -> list[ReplicaRate]:
    """Merge the routers' views of each replica."""
    found: dict[tuple[str, str, int], ReplicaRate] = {}
    for each in seen:
        key = each.group, each.revision, each.slot
        known = found.get(key, each)
        found[key] = ReplicaRate(
            *key,
            in_flight=each.in_flight + (known.in_flight if known is not each else 0),
            wait=max(each.wait, known.wait),
            sessions=max(each.sessions, known.sessions),
            filled=max(each.filled, known.filled),
        )
    return [found[key] for key in sorted(found)]
