"""What differs between engines that are started: arguments, probe path, metrics. One constant an engine."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from promptgroup_operator import metricnames
from promptgroup_operator.api import EngineType
from promptgroup_operator.metricnames import MetricNames


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine is started and read."""

    args: tuple[str, ...]
    """Arguments before the user's; `{model}` and `{port}` are filled in."""
    health: str
    """Path that answers 200 once the engine can serve."""
    metrics: MetricNames
    """What it counts."""
    batch_flag: str
    """Flag that bounds the tokens which one step of the scheduler computes."""


VLLM = Dialect(
    # cached_tokens is in usage only when asked for; the proof of warmth needs it
    args=("{model}", "--port={port}", "--enable-prompt-tokens-details"),
    health="/health",
    metrics=metricnames.VLLM,
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
