"""Predicts how long an engine's work takes, and corrects the prediction by what is observed.

A step of a vLLM-like engine (chunked prefill, decodes first) takes `overhead + prefill + interference` seconds. The
terms follow its scheduler. The first values are those of an 8B model on one data-centre GPU.

Does no I/O and reads no clock.
"""

import math

PREFILL_RATE = 5_000.0
"""Prompt tokens per second where nobody has measured them. A value that is too low costs about 1 % of TTFT, one that is
too high up to a third."""
STEP_TOKENS = 8192
"""vLLM's default `max_num_batched_tokens` on data-centre GPUs."""
KV_TOKENS = 100_000
"""Tokens of a KV cache of unknown size. The value is low because a record that is believed for too long sends requests
to caches that are gone."""

_RISE, _FALL = 0.01, 0.02
"""Steps of a correction (natural logarithm). They balance where one request in three is slower than predicted, because
a rate that is too low does little harm and one that is too high does much. Bounded steps forgive outliers, averages do
not."""
_LOWEST, _HIGHEST = 0.05, 20.0
"""A correction stays within these multiples of the first value, so that a clock that jumps cannot ruin the routing."""


class EngineCosts:
    """Cost constants of one kind of engine, shared by all replicas of that kind and corrected while serving."""

    __slots__ = (
        "_first_rate", "_scale", "attention_length", "cache_tokens", "context", "kv_tokens", "overhead", "rate",
        "sequence", "step_tokens",
    )  # fmt: skip

    def __init__(self, kv_tokens: int = 0, prefill_rate: float = 0, step_tokens: int = 0) -> None:
        """Take the constants that are known; 0 stands for unknown."""
        self.kv_tokens = KV_TOKENS
        """Tokens that a replica's cache holds."""
        self.cache_tokens = math.inf
        """The same limit for admission: no request waits for a limit that nobody knows."""
        if kv_tokens:
            self.set_capacity(kv_tokens)
        self.rate = self._first_rate = float(prefill_rate or PREFILL_RATE)
        """Prompt tokens a second at the start of a context."""
        self.step_tokens = step_tokens or STEP_TOKENS
        """Tokens that one step computes at most."""
        self.attention_length = 30_000.0
        """Position at which a prompt token costs twice as much as the first one."""
        self.overhead = 0.007
        """Seconds that an empty step takes."""
        self.sequence = 0.000_06
        """Seconds that each decoding sequence adds to a step."""
        self.context = 0.000_000_04
        """Seconds that each token of decoding context adds to a step."""
        self._scale = 1.0

    def set_capacity(self, kv_tokens: int) -> None:
        """Take the tokens that a replica's cache holds, once the table tells them."""
        self.kv_tokens = kv_tokens
        self.cache_tokens = float(kv_tokens)

    def prefill(self, cached: float, prompt: float) -> float:
        """Return the seconds to compute a prompt whose first `cached` tokens are in the cache."""
        new = prompt - cached
        return new * (1 + (cached + new / 2) / self.attention_length) / self.rate

    def observe(self, predicted: float, step: float, seconds: float) -> None:
        """Learn from a request that had its replica to itself until its first token.

        Args:
            predicted: seconds of prefill, given the cached tokens that the engine reported.
            step: predicted seconds of one step there.
            seconds: measured seconds from sending the request to the first byte.
        """
        faster = seconds < predicted + step
        if predicted > 2 * step:
            bounds = self._first_rate * _LOWEST, self._first_rate * _HIGHEST
            self.rate = min(max(self.rate * math.exp(_RISE if faster else -_FALL), bounds[0]), bounds[1])
        elif predicted < step:
            change = math.exp(-_RISE if faster else _FALL)
            if _LOWEST < self._scale * change < _HIGHEST:
                self._scale *= change
                self.overhead *= change
                self.sequence *= change
                self.context *= change
