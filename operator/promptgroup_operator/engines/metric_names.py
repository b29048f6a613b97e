"""Names of the engines' metrics, in one table for each engine. Does no I/O.

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


VLLM = MetricNames(
    path="/metrics",
    queries=("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    hits=("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    tier_hits=("vllm:external_prefix_cache_hits_total",),
    by_source=("vllm:prompt_tokens_cached_by_source_total",),
    by_source_label="source",
    memory_usage=("vllm:kv_offload_cpu_cache_usage_perc",),
    generated=("vllm:generation_tokens_total",),
    requests=("vllm:request_success_total",),
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    first_token="vllm:time_to_first_token_seconds",  # noqa: S106 - tokens of text
    computed=("vllm:request_prefill_kv_computed_tokens_sum",),
    prefill_seconds=("vllm:request_prefill_time_seconds_sum",),
    decode_seconds=("vllm:request_decode_time_seconds_sum",),
    queue_seconds=("vllm:request_queue_time_seconds_sum",),
    preemptions=("vllm:num_preemptions_total",),
    info="vllm:cache_config_info",
    step_labels=("cache_hit_alignment_tokens", "hash_block_size", "block_size"),
    caching_label="enable_prefix_caching",
    kv_tokens_label="kv_cache_size_tokens",
    blocks_label="num_gpu_blocks",
    block_size_label="block_size",
)
"""vLLM 0.32, and the names that 0.8 to 0.10 had (`gpu_`)."""

SGLANG = MetricNames(
    path="/metrics",
    queries=("sglang:prompt_tokens_total",),
    hits=("sglang:cached_tokens_total",),
    source_label="cache_source",
    device=("device", "total"),  # total: its requests say of theirs only how many there were
    by_source=("sglang:cached_tokens_total",),
    by_source_label="cache_source",
    memory_used=("sglang:hicache_host_used_tokens",),
    memory_size=("sglang:hicache_host_total_tokens",),
    generated=("sglang:generation_tokens_total",),
    requests=("sglang:num_requests_total",),
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    usage=("sglang:token_usage",),
    first_token="sglang:time_to_first_token_seconds",  # noqa: S106 - tokens of text
    active=("sglang:http_requests_active",),
    late=True,
    computed=("sglang:uncached_prompt_tokens_histogram_sum",),
    queue_seconds=("sglang:queue_time_seconds_sum",),
    preemptions=("sglang:num_retracted_requests_total",),
    evicted=("sglang:evicted_tokens_total",),
    kv_tokens=("sglang:max_total_num_tokens",),
    blocks=("sglang:num_pages",),
    block_size=("sglang:page_size",),
    info="sglang:cache_config_info",
    step_labels=("page_size",),
    blocks_label="num_pages",
    block_size_label="page_size",
)
"""SGLang with --enable-metrics: from 0.5.11 on its cache is in gauges, before it is in labels of the info metric."""

TENSORRT_LLM = MetricNames(
    path="/prometheus/metrics",
    queries=("trtllm_prompt_tokens_total",),
    hits=("trtllm_prompt_cached_tokens_total",),
    generated=("trtllm_generation_tokens_total",),
    requests=("trtllm_request_success_total",),
    running=("trtllm_num_requests_running", "trtllm_num_active_requests"),
    waiting=("trtllm_num_requests_waiting", "trtllm_server_queue_length"),
    usage=("trtllm_kv_cache_utilization",),
    first_token="trtllm_time_to_first_token_seconds",  # noqa: S106 - tokens of text
    late=True,
    prefill_seconds=("trtllm_request_prefill_time_seconds_sum",),
    decode_seconds=("trtllm_request_decode_time_seconds_sum",),
    queue_seconds=("trtllm_request_queue_time_seconds_sum",),
    blocks=("trtllm_kv_cache_max_blocks",),
    block_size=("trtllm_kv_cache_tokens_per_block",),
    info="trtllm_kv_cache_config_info",
    step_labels=("page_size",),
    caching_label="enable_block_reuse",
)
"""trtllm-serve with return_perf_metrics and enable_iter_perf_stats."""
