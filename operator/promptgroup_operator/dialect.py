"""What differs between engines: arguments, probe path, metric names. One constant an engine."""

import re
from collections.abc import Iterable, Mapping
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
    generated: str
    """Counter: tokens of answers."""
    usage: str
    """Gauge: share of the KV cache that running requests hold, 0 to 1."""
    busy: tuple[str, ...]
    """Gauges whose sum is the number of requests that run or wait."""
    info: str
    """Info metric that carries the cache's configuration as labels."""
    step_labels: tuple[str, ...]
    """Labels of it that may say at which granularity a hit can land, the best first."""
    caching_label: str
    """Label of it that says whether prefix caching is on."""
    kv_tokens_label: str
    """Label of it that says how many tokens the cache holds."""
    blocks_label: str
    """Label of it that says how many blocks the cache holds, for engines that do not say it in tokens."""
    block_size_label: str
    """Label of it that says how many tokens a block holds."""
    batch_flag: str
    """Flag that bounds the tokens which one step of the scheduler computes."""


VLLM = Dialect(
    # cached_tokens is in usage only when asked for; the proof of warmth needs it
    args=("{model}", "--port={port}", "--enable-prompt-tokens-details"),
    health="/health",
    queries="vllm:prefix_cache_queries_total",
    hits="vllm:prefix_cache_hits_total",
    generated="vllm:generation_tokens_total",
    usage="vllm:kv_cache_usage_perc",
    busy=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    info="vllm:cache_config_info",
    step_labels=("cache_hit_alignment_tokens", "hash_block_size", "block_size"),
    caching_label="enable_prefix_caching",
    kv_tokens_label="kv_cache_size_tokens",
    blocks_label="num_gpu_blocks",
    block_size_label="block_size",
    batch_flag="--max-num-batched-tokens",
)
"""vLLM 0.32, `vllm serve` as the image's entrypoint."""

DIALECTS: Mapping[EngineType, Dialect] = {EngineType.VLLM: VLLM}
"""Every engine that `spec.engine.type` can name."""


def arguments(dialect: Dialect, model: str, port: int, user: tuple[str, ...]) -> list[str]:
    """The engine container's arguments: the operator's, then the user's, so that the user's win."""
    return [*(arg.format(model=model, port=port) for arg in dialect.args), *user]


_TOKENS = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)(?P<unit>[kKmM]?)")
_UNITS = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}


def step_tokens(dialect: Dialect, args: Iterable[str]) -> int:
    """The bound that a command line sets to the tokens of one step; 0 when it sets none that can be read.

    As vLLM reads it: the last one wins, `_` is `-`, and a number may end in k (1000) or K (1024), m or M.
    """
    found, words = 0, iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") == dialect.batch_flag:
            match = _TOKENS.fullmatch(value if equals else next(words, ""))
            found = int(float(match["number"]) * _UNITS[match["unit"]]) if match is not None else 0
    return found
