"""Series for Prometheus about PromptGroups. Does no I/O and reads no clock.

Values of a group's status are read from it at the scrape; other findings of a pass, above all of sizing, are in a
`PassSummary`. A value that is unknown has no series. Labels are names that users gave, and reasons of conditions; they
hold no text of a prompt.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from promptgroup_contract.fingerprint import ShortFingerprint, short
from promptgroup_operator.sizing.model import Model
from promptgroup_operator.sizing.recommend import SizingDecision
from promptgroup_operator.world.snapshot import Key, Manifest, Reading, World, holders
from promptgroup_operator.world.trimmed import GPU

REPLICA_LABELS = ("namespace", "name", "revision", "slot")
"""Labels of a series about a replica: its slot outlives its pod, so that pods that come and go leave no series."""
LABELS = ("namespace", "name")
"""Labels of every series: the PromptGroup that it is about, as kube-state-metrics names objects."""
STATUSES = ("true", "false", "unknown")
"""Statuses of a condition, in kube-state-metrics' spelling."""
REASONS: Final[Mapping[str, str]] = {
    "CacheEffective": "promptgroup_cache_effective_reason",
    "Degraded": "promptgroup_degraded_reason",
}
"""Conditions whose reason has a series, too: each reason calls for another action."""


@dataclass(frozen=True, slots=True)
class ReplicaSummary:
    """A replica with a slot, as its engine was last read."""

    revision: ShortFingerprint
    slot: int
    reading: Reading
    warmed_in: float | None
    """Seconds from its containers' readiness to its proof of warmth; None if one of the two times is unknown."""
    rewarmed_in: float | None = None
    """Seconds of the latest refresh that computed its prefix again; None where none did."""


@dataclass(frozen=True, slots=True)
class PassSummary:
    """Findings of a pass over a group that are not in its status."""

    size: SizingDecision
    hit_rate: float | None
    """Share of clients' prompt tokens that were recently served from cache; None when unknown."""
    read: datetime | None
    """Time of the last available load; None before the first one, and if none is required."""
    replicas: tuple[ReplicaSummary, ...] = ()
    tier_hit_rate: float | None = None
    """Part of the hit rate that KV tiers brought."""
    tier_hit_rates: Mapping[str, float] = field(default_factory=dict)
    """The parts of it, by where the tokens were."""


def summarize(size: SizingDecision, world: World, before: PassSummary | None, now: datetime) -> PassSummary:
    """Return the findings of a pass; while no load is available, the time of the last one is preserved."""
    load = world.load
    is_current = load is not None and load.engines is not None and not load.stale
    read = before.read if before is not None else None
    newest = now if is_current else read
    replicas = tuple(_replicas(world))
    return PassSummary(size, world.hit_rate, newest, replicas, world.tier_hit_rate, world.tier_hit_rates)


def _replicas(world: World) -> Iterator[ReplicaSummary]:
    for revision in world.revisions:
        for slot, pod in holders(revision.pods).items():
            if pod.last_seen is not None and pod.is_warm:
                warmed_in = None
                if pod.warm is not None and pod.warm.since is not None and pod.containers_ready_since is not None:
                    warmed_in = max(0.0, (pod.warm.since - pod.containers_ready_since).total_seconds())
                yield ReplicaSummary(
                    short(pod.fingerprint), slot, pod.last_seen.last, warmed_in, pod.last_seen.rewarmed_in
                )


SOURCE_RATIO: Final = "promptgroup_source_hit_ratio"
SOURCE_HELP: Final = (
    "Part of the hit ratio that KV tiers brought, by where it was: memory, volume, peer, or pool for all others; over "
    "5 minutes."
)
SOURCE_LABELS: Final = (*LABELS, "source")

_DEVICES: Final = re.compile(r"[0-9]{1,6}", re.ASCII)
"""A number of devices; no machine has more, and one of thousands of digits is no number for Python."""

_Read: TypeAlias = Callable[[Manifest, PassSummary | None], float | None]


def families(
    groups: Iterable[Manifest], looks: Mapping[Key, PassSummary], gpu_hour_price: float = 0.0
) -> Iterator[Metric]:
    """Return all series of these groups; without a price of a GPU's hour, none is told of replicas."""
    info = InfoMetricFamily("promptgroup", "What the group is; `group` is the router's label.", labels=LABELS)
    condition = GaugeMetricFamily(
        "promptgroup_status_condition",
        "Conditions of the group: 1 for the status (True, False, Unknown) that each has.",
        labels=[*LABELS, "condition", "status"],
    )
    reasons = {
        kind: GaugeMetricFamily(name, f"1 at the reason of its condition {kind}.", labels=[*LABELS, "reason"])
        for kind, name in REASONS.items()
    }
    sources = GaugeMetricFamily(SOURCE_RATIO, SOURCE_HELP, labels=SOURCE_LABELS)
    numbers = [(GaugeMetricFamily(name, text, labels=LABELS), read) for name, text, read in NUMBERS]
    price = GaugeMetricFamily(
        "promptgroup_replica_hour_price",
        "Price of an hour of a replica: that of its GPUs, in the currency of --gpu-hour-price.",
        labels=LABELS,
    )
    of_replicas = [(kind(name, text, labels=REPLICA_LABELS), read) for kind, name, text, read in OF_REPLICAS]
    for group in groups:
        key = Key(group["metadata"]["namespace"], group["metadata"]["name"])
        named, look = (key.namespace, key.name), looks.get(key)
        info.add_metric(named, _identity(key, group))
        for item in group.get("status", {}).get("conditions", []):
            for status in STATUSES:
                condition.add_metric([*named, item["type"], status], float(item["status"].lower() == status))
            if item["type"] in reasons:
                reasons[item["type"]].add_metric([*named, item["reason"]], 1.0)
        for family, read in numbers:
            value = read(group, look)
            if value is not None:
                family.add_metric(named, value)
        for source, rate in (look.tier_hit_rates if look is not None else {}).items():
            sources.add_metric([*named, source], rate)
        if gpu_hour_price and (gpus := _gpus(group)):
            price.add_metric(named, gpu_hour_price * gpus)
        for replica in look.replicas if look is not None else ():
            place = [*named, replica.revision, str(replica.slot)]
            for series, figure in of_replicas:
                value = figure(replica)
                if value is not None:
                    series.add_metric(place, value)
    yield from (info, condition, *reasons.values(), price, *(family for family, _ in numbers), sources)
    yield from (series for series, _ in of_replicas)


def _identity(key: Key, group: Manifest) -> dict[str, str]:
    spec, status = group["spec"], group.get("status", {})
    return {
        "group": f"{key.namespace}/{key.name}",
        "model": spec.get("model", ""),
        "engine": spec.get("engine", {}).get("type", ""),
        "revision": status.get("revision", ""),
    }


def _gpus(group: Manifest) -> int:
    """Return the GPUs that an engine of a group asks for: whole devices, which are named `gpu`."""
    limits = group["spec"].get("engine", {}).get("resources", {}).get("limits", {})
    counts = (str(count) for name, count in limits.items() if name.endswith(GPU))
    return sum(int(count) for count in counts if _DEVICES.fullmatch(count))


# --- numbers -----------------------------------------------------------------------------------------------


def _sizing(name: str) -> _Read:
    return lambda group, _: group["spec"].get("sizing", {}).get(name)


def _status(read: Callable[[Mapping[str, Any]], float | None]) -> _Read:
    return lambda group, _: read(group["status"]) if "conditions" in group.get("status", {}) else None


def _look(read: Callable[[PassSummary], float | None]) -> _Read:
    return lambda _, look: read(look) if look is not None else None


def _predicted(read: Callable[[Model, int], float | None]) -> _Read:
    """Return a value that the model predicts for the wanted replicas."""

    def predicted(_: Manifest, look: PassSummary | None) -> float | None:
        if look is None or look.size.model is None:
            return None
        return read(look.size.model, look.size.value)

    return predicted


NUMBERS: Final[tuple[tuple[str, str, _Read], ...]] = (
    ("promptgroup_spec_min_replicas", "Fewest replicas that sizing may choose.", _sizing("minReplicas")),
    ("promptgroup_spec_max_replicas", "Most replicas that sizing may choose.", _sizing("maxReplicas")),
    ("promptgroup_status_desired_replicas", "Desired replicas.", _look(lambda look: look.size.value)),
    (
        "promptgroup_status_current_replicas",
        "Current replicas, of all revisions.",
        _status(lambda status: status.get("replicas")),
    ),
    (
        "promptgroup_status_warm_replicas",
        "Warm replicas.",
        _status(lambda status: sum(revision.get("warm", 0) for revision in status.get("revisions", []))),
    ),
    (
        "promptgroup_hit_ratio",
        "Share of clients' prompt tokens found in cache, over 5 minutes.",
        _look(lambda look: look.hit_rate),
    ),
    (
        "promptgroup_tier_hit_ratio",
        "Part of the hit ratio that KV tiers behind the GPU brought, over 5 minutes.",
        _look(lambda look: look.tier_hit_rate),
    ),
    (
        "promptgroup_sizing_recommended_replicas",
        "Replicas that the load asks for, before windows, policies and bounds.",
        _look(lambda look: look.size.requested),
    ),
    (
        "promptgroup_sizing_utilization_ratio",
        "Predicted utilisation of the desired replicas.",
        _predicted(lambda model, n: model.utilisation(n)),
    ),
    (
        "promptgroup_sizing_predicted_hit_ratio",
        "Predicted share of prompt tokens that the desired replicas find in cache.",
        _predicted(lambda model, n: model.hit_rate(n)),
    ),
    (
        "promptgroup_sizing_predicted_ttft_seconds",
        "Predicted 95th percentile of the time to first token with the desired replicas.",
        _predicted(lambda model, n: model.ttft(n)),
    ),
    (
        "promptgroup_sizing_working_set_ratio",
        "KV of live sessions divided by the KV cache that the desired replicas have for it.",
        _predicted(lambda model, n: model.filled(n)),
    ),
    (
        "promptgroup_sizing_load_timestamp_seconds",
        "Time of the last known load, in seconds since 1970.",
        _look(lambda look: look.read.timestamp() if look.read is not None else None),
    ),
)
"""Name, help, and the function that reads the value."""


_Figure: TypeAlias = Callable[[ReplicaSummary], float | None]

OF_REPLICAS: Final[tuple[tuple[type[GaugeMetricFamily] | type[CounterMetricFamily], str, str, _Figure], ...]] = (
    (
        GaugeMetricFamily,
        "promptgroup_replica_kv_usage_ratio",
        "Share of the replica's KV cache that running requests hold.",
        lambda replica: replica.reading.usage,
    ),
    (
        GaugeMetricFamily,
        "promptgroup_replica_running_requests",
        "Requests in the replica's batch.",
        lambda replica: replica.reading.running,
    ),
    (
        GaugeMetricFamily,
        "promptgroup_replica_waiting_requests",
        "Requests in the replica's queue.",
        lambda replica: replica.reading.waiting,
    ),
    (
        CounterMetricFamily,
        "promptgroup_replica_preemptions_total",
        "Running requests that gave their blocks back, since the engine began.",
        lambda replica: replica.reading.preemptions,
    ),
    (
        CounterMetricFamily,
        "promptgroup_replica_queue_seconds_total",
        "Seconds that requests waited in the engine's queue, since the engine began.",
        lambda replica: replica.reading.queue_seconds,
    ),
    (
        CounterMetricFamily,
        "promptgroup_replica_tier_tokens_total",
        "Prompt tokens that KV tiers behind the GPU brought, since the engine began.",
        lambda replica: replica.reading.tiered,
    ),
    (
        CounterMetricFamily,
        "promptgroup_replica_evicted_tokens_total",
        "Tokens whose KV made room for others in the GPU's memory, since the engine began.",
        lambda replica: replica.reading.evicted,
    ),
    (
        GaugeMetricFamily,
        "promptgroup_replica_memory_tier_usage_ratio",
        "Share of the replica's main memory for KV that is filled.",
        lambda replica: replica.reading.memory_usage,
    ),
    (
        GaugeMetricFamily,
        "promptgroup_replica_warmup_seconds",
        "From the readiness of the replica's containers to its proof of warmth.",
        lambda replica: replica.warmed_in,
    ),
    (
        GaugeMetricFamily,
        "promptgroup_replica_rewarm_seconds",
        "Time in which the replica computed its prefix again, when a refresh last found it evicted.",
        lambda replica: replica.rewarmed_in,
    ),
)
"""Kind, name, help, and the function that reads the value from a replica."""
