"""Prometheus metrics under vLLM's current names, and the stand-in's own count of cold prefixes."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from promptgroup_local.engine.answer import Finish
from promptgroup_local.engine.flags import Flags

_ENGINE = "0"
"""vLLM numbers the engine cores of a server; this one has one."""

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_INTER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
"""Bounds as vLLM's histograms have them, so that dashboards fit both."""


class Source(enum.StrEnum):
    """Who sent a request."""

    CLIENT = "client"
    WARMUP = "warmup"


@dataclass(frozen=True, slots=True)
class Gauges:
    """What is read at the time of a scrape."""

    running: Callable[[], float]
    waiting: Callable[[], float]
    usage: Callable[[], float]
    """Share of the KV cache that running requests hold."""


class Metrics:
    """All series of one engine, in a registry of their own."""

    def __init__(self, flags: Flags, gauges: Gauges) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": flags.served_names[0], "engine": _ENGINE}
        self.queries = self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache")
        self.hits = self._counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache")
        self.prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens processed")
        self.prompt_tokens_cached = self._counter("vllm:prompt_tokens_cached", "Prompt tokens not computed again")
        self.generation_tokens = self._counter("vllm:generation_tokens", "Tokens generated")
        self.preemptions = self._counter("vllm:num_preemptions", "Requests that gave their blocks back")
        self._gauge("vllm:num_requests_running", "Requests in the batch").set_function(gauges.running)
        self._gauge("vllm:num_requests_waiting", "Requests in the queue").set_function(gauges.waiting)
        self._gauge("vllm:kv_cache_usage_perc", "KV cache in use, 0 to 1").set_function(gauges.usage)
        self.ttft = self._histogram("vllm:time_to_first_token_seconds", "Arrival to first token", _TTFT)
        self.inter_token = self._histogram("vllm:inter_token_latency_seconds", "Token to token", _INTER_TOKEN)
        self.e2e = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to last token", _LATENCY)
        self.queue_time = self._histogram("vllm:request_queue_time_seconds", "Arrival to admission", _LATENCY)
        self.prefill_time = self._histogram("vllm:request_prefill_time_seconds", "Admission to first token", _LATENCY)
        self.decode_time = self._histogram("vllm:request_decode_time_seconds", "First token to last token", _LATENCY)
        self.computed = self._histogram(
            "vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed, found ones left out", _TOKENS
        )
        success = Counter(
            "vllm:request_success",
            "Requests by the reason of their end",
            [*self._labels, "finished_reason"],
            registry=self.registry,
        )
        self.success = {reason: success.labels(**self._labels, finished_reason=reason.value) for reason in Finish}
        self._cache_config(flags)
        requests = self._by_source("standin_requests", "Requests that ran")
        cold = self._by_source(
            "standin_cold_prefix_requests", "Requests whose cached tokens did not cover their tools and system text"
        )
        self.requests = {source: requests.labels(source=source.value) for source in Source}
        self.cold = {source: cold.labels(source=source.value) for source in Source}

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(name, documentation, list(self._labels), registry=self.registry).labels(**self._labels)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(name, documentation, list(self._labels), registry=self.registry).labels(**self._labels)

    def _histogram(self, name: str, documentation: str, bounds: tuple[float, ...]) -> Histogram:
        return Histogram(name, documentation, list(self._labels), registry=self.registry, buckets=bounds).labels(
            **self._labels
        )

    def _by_source(self, name: str, documentation: str) -> Counter:
        return Counter(name, documentation, ["source"], registry=self.registry)

    def _cache_config(self, flags: Flags) -> None:
        config = {
            "engine": _ENGINE,
            "block_size": str(flags.block_size),
            "num_gpu_blocks": str(flags.blocks),
            "kv_cache_size_tokens": str(flags.blocks * flags.block_size),
            "cache_hit_alignment_tokens": str(flags.block_size),
            "hash_block_size": str(flags.block_size),
            "enable_prefix_caching": str(flags.prefix_caching),
            "prefix_caching_hash_algo": "xxhash",
        }
        Gauge("vllm:cache_config_info", "Settings of the KV cache", list(config), registry=self.registry).labels(
            **config
        ).set(1)
