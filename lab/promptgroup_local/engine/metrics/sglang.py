"""The metrics of SGLang with --enable-metrics, as of 0.5."""

from prometheus_client import Counter, Gauge, Histogram

from promptgroup_local.engine.flags import Flags
from promptgroup_local.engine.metrics.page import Gauges, Metrics, Served

_SECONDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_QUEUE = (0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 60, 100, 1000)
_INTER_TOKEN = (0.002, 0.004, 0.006, 0.008, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 8)
_TOKENS = (100, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 10_000, 20_000, 40_000, 100_000, 400_000)
GAUGE_STEPS = 40
"""Steps between two updates of the gauges (`--decode-log-interval`). Prompts computed in between are not counted."""


def of(flags: Flags, gauges: Gauges, rank: int = 0) -> Metrics:
    """The metrics of a data-parallel rank of an engine with these flags."""
    return _Metrics(flags, gauges, rank)


class _Metrics(Metrics):
    """Gauges exist from the start, counters from the end of the first request; each request counts at its end."""

    def __init__(self, flags: Flags, gauges: Gauges, rank: int) -> None:
        labels = {"model_name": flags.served_names[0], "engine_type": "unified", "tp_rank": "0", "pp_rank": "0"}
        super().__init__(labels | ({"dp_rank": str(rank)} if flags.ranks > 1 else {}))
        self._now = (
            (self._gauge("sglang:num_running_reqs", "Running requests"), gauges.running),
            (self._gauge("sglang:num_queue_reqs", "Requests in the queue"), gauges.waiting),
            (self._gauge("sglang:token_usage", "Share of the pool in use"), gauges.usage),
        )
        self._steps = 0
        self._gauge("sglang:max_total_num_tokens", "Tokens that the pool holds").set(flags.blocks * flags.block_size)
        self._gauge("sglang:page_size", "Tokens of a page").set(flags.block_size)
        self._gauge("sglang:num_pages", "Pages of the pool").set(flags.blocks)
        streaming = [*self._labels, "is_streaming"]
        source = [*self._labels, "cache_source"]
        registry = self.registry
        self._prompt = Counter("sglang:prompt_tokens", "Prompt tokens processed", streaming, registry=registry)
        self._generated = Counter("sglang:generation_tokens", "Tokens generated", streaming, registry=registry)
        self._requests = Counter("sglang:num_requests", "Requests that ended", streaming, registry=registry)
        self._cached = Counter("sglang:cached_tokens", "Prompt tokens found, by source", source, registry=registry)
        self._retracted = Counter(
            "sglang:num_retracted_requests", "Requests taken back", list(self._labels), registry=registry
        )
        self._aborts = self._counter("sglang:num_aborted_requests", "Requests aborted")
        self._ttft = Histogram(
            "sglang:time_to_first_token_seconds",
            "Arrival to first token",
            streaming,
            registry=registry,
            buckets=_SECONDS,
        )
        self._e2e = Histogram(
            "sglang:e2e_request_latency_seconds",
            "Arrival to last token",
            streaming,
            registry=registry,
            buckets=_SECONDS,
        )
        self._evicted = Counter(
            "sglang:evicted_tokens", "Tokens that made room for others", ["cache_type"], registry=registry
        )
        self._active = Gauge(
            "sglang:http_requests_active", "HTTP requests in progress", ["endpoint", "method"], registry=registry
        )
        self._inter_token = self._histogram("sglang:inter_token_latency_seconds", "Token to token", _INTER_TOKEN)
        self._queue = self._histogram("sglang:queue_time_seconds", "Arrival to admission", _QUEUE)
        self._computed = self._histogram(
            "sglang:uncached_prompt_tokens_histogram", "Prompt tokens that were computed", _TOKENS
        )

    def entered(self, method: str, path: str) -> None:
        self._active.labels(path, method).inc()

    def left(self, method: str, path: str) -> None:
        self._active.labels(path, method).dec()

    def stepped(self, admitted: int) -> None:
        self._steps += not admitted
        if self._steps >= GAUGE_STEPS:
            self.rested()

    def rested(self) -> None:
        self._steps = 0
        for gauge, value in self._now:
            gauge.set(value())

    def evicted(self, tokens: int) -> None:
        self._evicted.labels("UnifiedRadixCache").inc(tokens)

    def preempted(self, requests: int) -> None:
        if requests:
            self._retracted.labels(**self._labels).inc(requests)

    def first_token(self, queue: float, prefill: float, prompt: int, cached: int, *, streamed: bool = False) -> None:
        self._ttft.labels(**self._labels, is_streaming=_word(streamed)).observe(queue + prefill)

    def later_token(self, seconds: float) -> None:
        self._inter_token.observe(seconds)

    def served(self, request: Served) -> None:
        streaming = {**self._labels, "is_streaming": _word(request.streamed)}
        self._prompt.labels(**streaming).inc(request.prompt)
        self._generated.labels(**streaming).inc(request.generated)
        self._requests.labels(**streaming).inc()
        for source, tokens in (("device", request.cached - request.copied), ("host", request.copied)):
            if tokens:
                self._cached.labels(**self._labels, cache_source=source).inc(tokens)
        self._computed.observe(request.prompt - request.cached)
        self._queue.observe(request.queue)
        self._e2e.labels(**streaming).observe(request.queue + request.prefill + request.decode)

    def aborted(self) -> None:
        self._aborts.inc()


def _word(streamed: bool) -> str:
    return "true" if streamed else "false"
