"""Names of an engine's metrics. Does no I/O.

A metric may have several spellings, the present one first; the first that an engine has is read. Counters and sums of
histograms end as they do on the wire. An empty name means that the engine has no such metric.
"""

from dataclasses import dataclass

Spellings = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Names of one engine's metrics."""

    path: str
    """Where it serves them."""
    queries: Spellings
    """Counter: prompt tokens looked up in the prefix cache."""
    hits: Spellings
    """Counter: prompt tokens found there."""
    generated: Spellings
    """Counter: tokens of answers."""
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
    """Label of all of them that names the data-parallel rank, which has a cache of its own; empty without such."""
    tier_hits: Spellings = ()
    """Counter: prompt tokens found in KV tiers beyond the GPU's memory, for engines whose `hits` leave them out."""
    source_label: str = ""
    """Label of `hits` that says where they were found, for engines whose `hits` have them all."""
    device: tuple[str, ...] = ()
    """Values of that label for the GPU's memory, and for what the engine does not tell apart."""
    by_source: Spellings = ()
    """Counter: prompt tokens found, by where; of engines that say it beside `hits`."""
    by_source_label: str = ""
    """Label of it that says where."""
    memory_usage: Spellings = ()
    """Gauge: share of the main memory for KV that is filled, 0 to 1."""
    memory_used: Spellings = ()
    """Gauge: tokens in the main memory for KV, for engines that tell no share."""
    memory_size: Spellings = ()
    """Gauge: tokens that it holds."""
    active: Spellings = ()
    """Gauge: HTTP requests in progress, for engines that look at what runs from time to time only."""
    late: bool = False
    """True if its counters appear with the first request: until then they are zero, and not unknown."""
    computed: Spellings = ()
    """Counter: prompt tokens that were computed."""
    prefill_seconds: Spellings = ()
    """Counter: seconds that requests spent in prefill."""
    decode_seconds: Spellings = ()
    """Counter: seconds that requests spent in decode."""
    queue_seconds: Spellings = ()
    """Counter: seconds that requests waited."""
    preemptions: Spellings = ()
    """Counter: running requests that gave their blocks back."""
    evicted: Spellings = ()
    """Counter: tokens whose KV made room for others in the GPU's memory. It may appear with the first of them."""
    kv_tokens: Spellings = ()
    """Gauge: tokens that the cache holds."""
    blocks: Spellings = ()
    """Gauge: blocks that the cache holds."""
    block_size: Spellings = ()
    """Gauge: tokens of a block."""
    info: str = ""
    """Info metric that carries the cache's configuration as labels."""
    step_labels: tuple[str, ...] = ()
    """Labels of it that may say at which granularity a hit can land, the best first."""
    caching_label: str = ""
    """Label of it that says whether prefix caching is on."""
    kv_tokens_label: str = ""
    """Label of it that says how many tokens the cache holds."""
    blocks_label: str = ""
    """Label of it that says how many blocks the cache holds, for engines that do not say it in tokens."""
    block_size_label: str = ""
    """Label of it that says how many tokens a block holds."""

    @property
    def tells_tiers(self) -> bool:
        """True if the engine says what KV tiers brought."""
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
    """Return where an engine's word says that tokens were found: memory, volume, peer, or pool for all others.

    vLLM says host, disk, p2p, and external_unspecified for what a connector does not tell apart, as LMCache's; SGLang
    says host, and storage_ with the name of the backend.
    """
    return "volume" if word in _FILES else _SOURCES.get(word, "pool")
