"""The metrics of trtllm-serve with return_perf_metrics and enable_iter_perf_stats, as of 1.x."""

from prometheus_client import Counter, Gauge

from promptgroup_local.engine.flags import Flags
from promptgroup_local.engine.metrics.page import Gauges, Metrics, Served

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_PREFILL = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640, 2560)
_LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)


def of(flags: Flags, gauges: Gauges, rank: int = 0) -> Metrics:
    """The metrics of an engine with these flags, which has one rank."""
    del rank
    return _Metrics(flags, gauges)


class _Metrics(Metrics):
    """Settings exist from the start, gauges from the first step on, counters from the end of the first request."""

    def __init__(self, flags: Flags, gauges: Gauges) -> None:
        super().__init__({"model_name": "undefined", "engine_type": "undefined"})
        self._gauges = gauges
        self._flags = flags
        self._stepped = False
        self._info(
            "trtllm_kv_cache_config_info",
            "Settings of the KV cache",
            {
                **self._labels,
                "page_size": str(flags.block_size),
                "enable_block_reuse": str(flags.prefix_caching),
                "enable_partial_reuse": "False",
                "cache_dtype": "auto",
            },
        )
        names = list(self._labels)
        self._prompt = Counter("trtllm_prompt_tokens", "Prompt tokens processed", names, registry=self.registry)
        self._generated = Counter("trtllm_generation_tokens", "Tokens generated", names, registry=self.registry)
        self._cached = self._counter("trtllm_prompt_cached_tokens", "Prompt tokens served from the KV cache")
        self._success = Counter(
            "trtllm_request_success", "Requests by their end", [*names, "finished_reason"], registry=self.registry
        )
        self._ttft = self._histogram("trtllm_time_to_first_token_seconds", "Arrival to first token", _TTFT)
        self._queue = self._histogram("trtllm_request_queue_time_seconds", "Arrival to admission", _LATENCY)
        self._prefill = self._histogram("trtllm_request_prefill_time_seconds", "Admission to first token", _PREFILL)
        self._decode = self._histogram("trtllm_request_decode_time_seconds", "First to last token", _LATENCY)
        self._e2e = self._histogram("trtllm_e2e_request_latency_seconds", "Arrival to last token", _LATENCY)

    def admitted(self, prompt: int, cached: int, copied: int = 0) -> None:
        if not self._stepped:
            self._stepped = True
            self._first_step()

    def first_token(self, queue: float, prefill: float, prompt: int, cached: int, *, streamed: bool = False) -> None:
        self._ttft.observe(queue + prefill)

    def served(self, request: Served) -> None:
        self._prompt.labels(**self._labels).inc(request.prompt)
        self._generated.labels(**self._labels).inc(request.generated)
        self._cached.inc(request.cached)
        self._success.labels(**self._labels, finished_reason=request.finish.value).inc()
        self._queue.observe(request.queue)
        self._prefill.observe(request.prefill)
        self._decode.observe(request.decode)
        self._e2e.observe(request.queue + request.prefill + request.decode)

    def _first_step(self) -> None:
        def gauge(name: str, documentation: str) -> Gauge:
            return self._gauge(f"trtllm_{name}", documentation)

        gauge("num_requests_running", "Active requests").set_function(self._gauges.running)
        gauge("num_requests_waiting", "Queued requests").set_function(self._gauges.waiting)
        gauge("kv_cache_utilization", "Share of the blocks in use").set_function(self._gauges.usage)
        gauge("kv_cache_max_blocks", "Blocks of the cache").set(self._flags.blocks)
        gauge("kv_cache_tokens_per_block", "Tokens of a block").set(self._flags.block_size)
