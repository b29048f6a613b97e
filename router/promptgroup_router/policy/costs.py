"""Predicts how long an engine's work takes, and corrects the prediction by what is observed.

A step of a vLLM-like engine (chunked prefill, decodes first) takes `overhead + prefill + interference` seconds. The
terms follow its scheduler. The first values are those of an 8B model on one data-centre GPU.
"""

import math

from promptgroup_router.prefixes.prefixes_in_use import PrefixesInUse

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
COPIED_STEP = 0.02
"""Step by which one request moves the means of what a tier was seen to bring."""
LEAST_COPIED = 0.8
"""Share that a tier must bring for any copy to be expected; above it all is expected. One that is away falls below it
in some ten requests that leave home. One that keeps half of what it was given doubled the p99 of some simulated runs
where the share was 0.5."""
DELAYED_STEP = 0.05
"""Step by which one first token moves the mean of delays; the first ones move it further."""
FIRST_DELAYS = 8
"""First tokens whose delays count in full."""
OUTLIER, LEAST_OUTLIER = 3.0, 0.01
"""Times the mean delay, and seconds beyond it, that a later delay counts at most. Where few first tokens are very late,
their replica is to be avoided; noise is what most of them have."""
_LOWEST, _HIGHEST = 0.05, 20.0
"""A correction stays within these multiples of the first value, so that a clock that jumps cannot ruin the routing."""


class EngineCosts:
    """Cost constants of one kind of engine, shared by all replicas of that kind and corrected while serving."""

    __slots__ = (
        "_copied", "_first_rate", "_held", "_scale", "_seen", "attention_length", "cache_tokens", "context",
        "copy_rate", "delay", "in_use", "kv_tokens", "least_copy", "overhead", "rate", "sequence", "step_tokens",
    )  # fmt: skip

    def __init__(self, kv_tokens: int = 0, prefill_rate: float = 0, step_tokens: int = 0) -> None:
        """Take the constants that are known; 0 stands for unknown."""
        self.kv_tokens = KV_TOKENS
        """Tokens that a replica's cache holds."""
        self.cache_tokens = math.inf
        """The same limit for admission: no request waits for a limit that nobody knows."""
        self.in_use = PrefixesInUse(self.kv_tokens)
        """The prefixes that requests for these replicas begin with."""
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
        self._seen = 0
        """First tokens that `delay` was learned from."""
        self.delay = 0.0
        """Mean seconds by which first tokens come later than expected; those in time count as 0."""
        self.copy_rate = 0.0
        """Tokens a second that a replica copies from a KV tier which all replicas share; 0 where there is none."""
        self.least_copy = 0.0
        """Tokens that were copied when the rate was measured: of a shorter copy the time is unknown, but no longer."""
        self._held = self._copied = 1000.0
        """Means of the tokens that a tier may have had for a request, and of those that it brought."""

    def set_copies(self, rate: int, least: int) -> None:
        """Take the rate of copies from a shared tier, 0 for none, and the tokens of the copy that was measured."""
        self.copy_rate, self.least_copy = float(rate), float(least)

    def copy(self, tokens: float) -> float:
        """Return the seconds in which a shared tier brings so many tokens, above 0."""
        return max(tokens, self.least_copy) / self.copy_rate

    def copied(self, cached: float, held: float) -> float:
        """Return the tokens that a shared tier should bring. Engines copy all that a tier has, quicker or not.

        Args:
            cached: tokens of the prompt that the replica has.
            held: tokens of the prompt that some replica has computed.
        """
        if held <= cached or not self.copy_rate or self.copied_share < LEAST_COPIED:
            return 0.0
        return held - cached

    @property
    def copied_share(self) -> float:
        """Share that the tier was seen to bring of what replicas had computed, from 0 to 1."""
        return self._copied / self._held

    def observe_copy(self, expected: float, result: float) -> None:
        """Learn from a request that had `found` more tokens cached than its replica, of those that a tier may hold."""
        self._held += COPIED_STEP * (expected - self._held)
        self._copied += COPIED_STEP * (min(expected, max(0.0, result)) - self._copied)

    def set_capacity(self, kv_tokens: int) -> None:
        """Take the tokens that a replica's cache holds, once the table tells them."""
        self.kv_tokens = kv_tokens
        self.cache_tokens = float(kv_tokens)
        self.in_use.capacity = float(kv_tokens)

    def prefill(self, cached: float, prompt: float) -> float:
        """Return the seconds to compute a prompt whose first `cached` tokens are in the cache."""
        new = prompt - cached
        return new * (1 + (cached + new / 2) / self.attention_length) / self.rate

    def observe_delay(self, seconds: float) -> None:
        """Learn by how many seconds a first token came later than expected."""
        self._seen += 1
        delay = max(0.0, seconds)
        if self._seen > FIRST_DELAYS:
            delay = min(delay, OUTLIER * self.delay + LEAST_OUTLIER)
        self.delay += max(DELAYED_STEP, 1 / (1 + self._seen)) * (delay - self.delay)

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
