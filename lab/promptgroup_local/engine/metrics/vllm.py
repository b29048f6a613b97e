"""The metrics of vLLM, under its current names."""

from prometheus_client import Counter

from promptgroup_local.engine.answer import Finish
from promptgroup_local.engine.flags import Flags
from promptgroup_local.engine.metrics.page import Gauges, Metrics, Served

SOURCES = ("device", "host", "p2p", "disk", "external_unspecified")
"""Possible sources of cached tokens (`CacheHitSource`)."""

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_INTER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
"""Bounds as vLLM's histograms have them, so that dashboards fit both."""


def of(flags: Flags, gauges: Gauges, rank: int = 0) -> Metrics:
    """The metrics of a data-parallel rank of an engine with these flags."""
    return _Metrics(flags, gauges, rank)


class _Metrics(Metrics):
    """Every series exists from the start; lookups count at admission, tokens as they are generated."""

    def __init__(self, flags: Flags, gauges: Gauges, rank: int) -> None:
        super().__init__({"model_name": flags.served_names[0], "engine": str(rank)})
        self._caching = flags.prefix_caching
        self._queries = self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache")
        self._hits = self._counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache")
        self._outer_queries = self._counter("vllm:external_prefix_cache_queries", "Prompt tokens asked of a connector")
        self._outer_hits = self._counter("vllm:external_prefix_cache_hits", "Prompt tokens that a connector brought")
        by_source = Counter(
            "vllm:prompt_tokens_cached_by_source",
            "Prompt tokens not computed again, by source",
            [*self._labels, "source"],
            registry=self.registry,
        )
        self._sources = {source: by_source.labels(**self._labels, source=source) for source in SOURCES}
        self._source, self._connected = flags.tier_source, bool(flags.tier_blocks)
        self._prompt = self._counter("vllm:prompt_tokens", "Prompt tokens processed")
        self._cached = self._counter("vllm:prompt_tokens_cached", "Prompt tokens not computed again")
        self._generated = self._counter("vllm:generation_tokens", "Tokens generated")
        self._preemptions = self._counter("vllm:num_preemptions", "Requests that gave their blocks back")
        self._gauge("vllm:num_requests_running", "Requests in the batch").set_function(gauges.running)
        self._gauge("vllm:num_requests_waiting", "Requests in the queue").set_function(gauges.waiting)
        self._gauge("vllm:kv_cache_usage_perc", "KV cache in use, 0 to 1").set_function(gauges.usage)
        self._ttft = self._histogram("vllm:time_to_first_token_seconds", "Arrival to first token", _TTFT)
        self._inter_token = self._histogram("vllm:inter_token_latency_seconds", "Token to token", _INTER_TOKEN)
        self._e2e = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to last token", _LATENCY)
        self._queue = self._histogram("vllm:request_queue_time_seconds", "Arrival to admission", _LATENCY)
        self._prefill = self._histogram("vllm:request_prefill_time_seconds", "Admission to first token", _LATENCY)
        self._decode = self._histogram("vllm:request_decode_time_seconds", "First token to last token", _LATENCY)
        self._computed = self._histogram(
            "vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed, found ones left out", _TOKENS
        )
        success = Counter(
            "vllm:request_success",
            "Requests by the reason of their end",
            [*self._labels, "finished_reason"],
            registry=self.registry,
        )
        self._success = {reason: success.labels(**self._labels, finished_reason=reason.value) for reason in Finish}
        self._info(
            "vllm:cache_config_info",
            "Settings of the KV cache",
            {
                "engine": str(rank),
                "block_size": str(flags.block_size),
                "num_gpu_blocks": str(flags.blocks),
                "kv_cache_size_tokens": str(flags.blocks * flags.block_size),
                "cache_hit_alignment_tokens": str(flags.block_size),
                "hash_block_size": str(flags.block_size),
                "enable_prefix_caching": str(flags.prefix_caching),
                "prefix_caching_hash_algo": "xxhash",
            },
        )

    def admitted(self, prompt: int, cached: int, copied: int = 0) -> None:
        if self._caching:
            self._queries.inc(prompt)
            self._hits.inc(cached - copied)
            self._sources["device"].inc(cached - copied)
        if self._connected:
            self._outer_queries.inc(prompt - (cached - copied))
            self._outer_hits.inc(copied)
            self._sources[self._source].inc(copied)

    def preempted(self, requests: int) -> None:
        self._preemptions.inc(requests)

    def first_token(self, queue: float, prefill: float, prompt: int, cached: int, *, streamed: bool = False) -> None:
        self._ttft.observe(queue + prefill)
        self._queue.observe(queue)
        self._prefill.observe(prefill)
        self._prompt.inc(prompt)
        self._cached.inc(cached)
        self._computed.observe(prompt - cached)

    def token(self) -> None:
        self._generated.inc()

    def later_token(self, seconds: float) -> None:
        self._inter_token.observe(seconds)

    def served(self, request: Served) -> None:
        self._success[request.finish].inc()
        self._decode.observe(request.decode)
        self._e2e.observe(request.queue + request.prefill + request.decode)

    def aborted(self) -> None:
        self._success[Finish.ABORT].inc()
