"""Names of an engine's metrics. Does no I/O.

A metric may have several spellings, the current one first; the first that an engine exports is read. Names of counters
and histogram sums include their suffixes. An empty name means that the engine has no such metric.
"""

from dataclasses import dataclass

Spellings = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Names of one engine's metrics."""

    path: str
    """HTTP path of the metrics."""
    queries: Spellings
    """Counter: prompt tokens looked up in the prefix cache."""
    hits: Spellings
    """Counter: prompt tokens served from the prefix cache."""
    generated: Spellings
    """Counter: output tokens."""
    requests: Spellings
    """Counter: requests that ended."""
    running: Spellings
    """Gauge: requests in the batch."""
    waiting: Spellings
    """Gauge: requests in the queue."""
    usage: Spellings
    """Gauge: share of the KV cache that running requests hold, 0 to 1."""
    first_token: str
    """Histogram: seconds from arrival to the first token; without `_bucket`."""
    rank_label: str = ""
    """Label of all metrics with the data-parallel rank, which has its own cache; empty without such a label."""
    tier_hits: Spellings = ()
    """Counter: prompt tokens loaded from KV tiers beyond the GPU's memory, for engines whose `hits` exclude them."""
    source_label: str = ""
    """Label of `hits` with the source of the tokens, for engines whose `hits` include all sources."""
    device: tuple[str, ...] = ()
    """Values of that label for the GPU's memory, and for tokens whose source the engine does not distinguish."""
    by_source: Spellings = ()
    """Counter: cached prompt tokens by source, for engines that export it in addition to `hits`."""
    by_source_label: str = ""
    """Label of `by_source` with the source."""
    memory_usage: Spellings = ()
    """Gauge: share of the main memory for KV that is filled, 0 to 1."""
    memory_used: Spellings = ()
    """Gauge: tokens in the main memory for KV, for engines that do not export the share."""
    memory_size: Spellings = ()
    """Gauge: capacity of the main memory for KV in tokens."""
    active: Spellings = ()
    """Gauge: HTTP requests in progress, for engines that update the other gauges only from time to time."""
    late: bool = False
    """True if its counters appear with the first request: until then they are zero, and not unknown."""
    computed: Spellings = ()
    """Counter: prompt tokens that were computed."""
    prefill_seconds: Spellings = ()
    """Counter: seconds that requests spent in prefill."""
    decode_seconds: Spellings = ()
    """Counter: seconds that requests spent in decode."""
    queue_seconds: Spellings = ()
    """Counter: seconds that requests waited in the queue."""
    preemptions: Spellings = ()
    """Counter: running requests that were preempted and lost their KV blocks."""
    evicted: Spellings = ()
    """Counter: tokens whose KV was evicted from the GPU's memory. It may appear only after the first eviction."""
    kv_tokens: Spellings = ()
    """Gauge: capacity of the cache in tokens."""
    blocks: Spellings = ()
    """Gauge: capacity of the cache in blocks."""
    block_size: Spellings = ()
    """Gauge: tokens per block."""
    info: str = ""
    """Info metric with the cache's configuration as labels."""
    step_labels: tuple[str, ...] = ()
    """Labels of `info` with the granularity of cache hits in tokens, the most accurate first."""
    caching_label: str = ""
    """Label of `info` with the state of prefix caching, on or off."""
    kv_tokens_label: str = ""
    """Label of `info` with the capacity of the cache in tokens."""
    blocks_label: str = ""
    """Label of `info` with the capacity of the cache in blocks, for engines that do not export it in tokens."""
    block_size_label: str = ""
    """Label of `info` with the tokens per block."""

    @property
    def tells_tiers(self) -> bool:
        """True if the engine reports tokens loaded from KV tiers."""
        return bool(self.tier_hits or self.source_label)

    def spelled(self) -> tuple[str, ...]:
        """Return every counter and gauge in every spelling."""
        return (
            *self.queries, *self.hits, *self.tier_hits, *self.generated, *self.requests, *self.running, *self.waiting,
            *self.usage, *self.computed, *self.prefill_seconds, *self.decode_seconds, *self.queue_seconds,
            *self.preemptions, *self.evicted, *self.active, *self.kv_tokens, *self.blocks, *self.block_size,
            *self.memory_usage, *self.memory_used, *self.memory_size,
        )  # fmt: skip


_SOURCES = {"host": "memory", "disk": "volume", "p2p": "peer"}
_FILES = frozenset({"storage_file", "storage_HiCacheFile"})


def source(word: str) -> str:
    """Return the source for an engine's label value: memory, volume, peer, or pool for all others.

    vLLM uses host, disk, p2p, and external_unspecified if a connector does not distinguish sources, as LMCache's does;
    SGLang uses host, and storage_ with the name of the backend.
    """
    return "volume" if word in _FILES else _SOURCES.get(word, "pool")
