"""What differs between engines: arguments, probe path, metric names. One constant an engine."""

from collections.abc import Mapping
from dataclasses import dataclass

from promptgroup_operator.api import EngineType


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine is started and read."""

    args: tuple[str, ...]
    """Arguments before the user's; `{model}` and `{port}` are filled in."""
    health: str
    """Path that answers 200 once the engine can serve."""
    queries: str
    """Counter: prompt tokens looked up in the prefix cache."""
    hits: str
    """Counter: prompt tokens found there."""
    busy: tuple[str, ...]
    """Gauges whose sum is the number of requests that run or wait."""
    info: str
    """Info metric that carries the cache's configuration as labels."""
    step_labels: tuple[str, ...]
    """Labels of it that may say at which granularity a hit can land, the best first."""
    caching_label: str
    """Label of it that says whether prefix caching is on."""


VLLM = Dialect(
    # cached_tokens is in usage only when asked for; the proof of warmth needs it
    args=("{model}", "--port={port}", "--enable-prompt-tokens-details"),
    health="/health",
    queries="vllm:prefix_cache_queries_total",
    hits="vllm:prefix_cache_hits_total",
    busy=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    info="vllm:cache_config_info",
    step_labels=("cache_hit_alignment_tokens", "hash_block_size", "block_size"),
    caching_label="enable_prefix_caching",
)
"""vLLM 0.32, `vllm serve` as the image's entrypoint."""

DIALECTS: Mapping[EngineType, Dialect] = {EngineType.VLLM: VLLM}
"""Every engine that `spec.engine.type` can name."""


def arguments(dialect: Dialect, model: str, port: int, user: tuple[str, ...]) -> list[str]:
    """The engine container's arguments: the operator's, then the user's, so that the user's win."""
    return [*(arg.format(model=model, port=port) for arg in dialect.args), *user]
