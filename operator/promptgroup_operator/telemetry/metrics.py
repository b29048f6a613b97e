"""Metrics of the process's own work. Series about groups are in `collector`.

Events are counted where they happen; gauges are functions that a scrape calls. Labels come from fixed lists and from
HTTP statuses, so the number of series is bounded whatever groups there are.
"""

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

PREFIX = "promptgroup_operator_"

PASS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: from a pass at rest to one whose requests to the API server and to engines all meet their limits."""

NO_ANSWER = "none"
"""Label of a request that got no answer."""
WATCH = "WATCH"
"""Verb of a watch, as Kubernetes spells it; the others are HTTP methods."""
REFUSED, FAULT = "cluster", "fault"
"""Causes of a failed pass: the API server did not answer or refused; the operator has a fault."""

# Without this, the time at which each series began would be a series of its own.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class OperatorMetrics:
    """The process's counters, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.leader = Gauge(f"{PREFIX}leader", "1 if this process holds the Lease and may write.", registry=registry)
        self.queue_depth = Gauge(f"{PREFIX}queue_depth", "Groups that wait for a reconcile pass.", registry=registry)
        self.passes = Histogram(
            f"{PREFIX}pass_duration_seconds",
            "Duration of a reconcile pass of one group, failed passes included.",
            buckets=PASS_BUCKETS,
            registry=registry,
        )
        self.pass_failures = Counter(
            f"{PREFIX}pass_failures",
            "Reconcile passes that failed and are retried, by cause.",
            ["cause"],
            registry=registry,
        )
        self.api_requests = Counter(
            f"{PREFIX}api_requests",
            "Requests to the API server, by method and status.",
            ["verb", "code"],
            registry=registry,
        )
        self.warmups = Counter(f"{PREFIX}warmups", "Completed warm-ups, by outcome.", ["outcome"], registry=registry)
        self.refreshes = Counter(
            f"{PREFIX}refreshes", "Completed refreshes of warm replicas, by outcome.", ["outcome"], registry=registry
        )
        for cause in (REFUSED, FAULT):
            self.pass_failures.labels(cause)  # from 0 on, so that the first failure is an increase
