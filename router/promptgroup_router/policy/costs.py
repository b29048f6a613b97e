"""Predicts the time that an engine's work takes, and corrects the prediction by measured times.

A step of a vLLM-like engine (chunked prefill, decodes first) takes `overhead + prefill + interference` seconds. The
terms follow its scheduler. The first values are those of an 8B model on one data-centre GPU.
"""

import math

from promptgroup_router.prefixes.prefixes_in_use import PrefixesInUse

PREFILL_RATE = 5_000.0
"""Prompt tokens per second if no measurement exists. A value that is too low costs about 1 % of TTFT, one that is too
high up to a third."""
STEP_TOKENS = 8192
"""vLLM's default `max_num_batched_tokens` on data-centre GPUs."""
SEQUENCES = 256
"""Requests that an engine runs at once if its arguments set no limit: vLLM's default `max_num_seqs` on all but the
largest GPUs, where it is 1024."""
KV_TOKENS = 100_000
"""Tokens of a KV cache of unknown size. The value is low because a record that is trusted for too long sends requests
to caches that were evicted."""

_RISE, _FALL = 0.01, 0.02
"""Steps of a correction (natural logarithm). They balance where one request in three is slower than predicted, because
a rate that is too low does little harm and one that is too high does much. Bounded steps forgive outliers, averages do
not."""
COPIED_STEP = 0.02
"""Step by which one request moves the means of the tokens that a KV tier should have supplied and did supply."""
LEAST_COPIED = 0.8
"""Share of the expected tokens that a KV tier must supply for any copy to be predicted; above it, a full copy is
predicted. A tier that is unavailable falls below it within some ten requests that leave home. With a share of 0.5, a
tier that stores half of its tokens doubled the p99 of some simulated runs."""
DELAYED_STEP = 0.05
"""Step by which one first token moves the mean of delays; the first ones move it further."""
USUAL = 4
"""Multiple of the mean delay of first tokens that is usual. Of exponentially distributed delays 1 in 50 is longer."""
FIRST_DELAYS = 8
"""First tokens whose delays count in full."""
OUTLIER, LEAST_OUTLIER = 3.0, 0.01
"""A later delay counts at most as this multiple of the mean delay plus these seconds. If few first tokens are very
late, their replica is to be avoided; noise is the delay that most of them have."""
ANSWER_STEP = 0.01
"""Step by which one answer moves the mean length of answers; the first ones move it further."""
_LOWEST, _HIGHEST = 0.05, 20.0
"""Limits of a correction, as multiples of the first value, so that a jump of the clock cannot ruin the routing."""


class EngineCosts:
    """Cost constants of one kind of engine, shared by all replicas of that kind and corrected while serving."""

    __slots__ = (
        "_answers", "_copied", "_first_rate", "_held", "_predicted", "_scale", "answer", "attention_length",
        "cache_tokens", "context", "copy_rate", "delay", "in_use", "kv_tokens", "least_copy", "overhead", "rate",
        "seen", "sequence", "sequences", "step_tokens",
    )  # fmt: skip

    def __init__(self, kv_tokens: int = 0, prefill_rate: float = 0, step_tokens: int = 0) -> None:
        """Set the measured constants; 0 stands for unknown."""
        self.kv_tokens = KV_TOKENS
        """Tokens that a replica's cache holds."""
        self.cache_tokens = math.inf
        """The same limit for admission; infinite while it is unknown, so that no request waits for an assumed limit."""
        self.in_use = PrefixesInUse(self.kv_tokens)
        """The Tier-1 prefixes of the requests for these replicas."""
        if kv_tokens:
            self.set_capacity(kv_tokens)
        self.rate = self._first_rate = float(prefill_rate or PREFILL_RATE)
        """Prompt tokens a second at the start of a context."""
        self.step_tokens = step_tokens or STEP_TOKENS
        """Tokens that one step computes at most."""
        self.sequences = SEQUENCES
        """Requests that an engine runs at once at most; assumed until the table contains them."""
        self.attention_length = 30_000.0
        """Position at which a prompt token costs twice as much as the first one."""
        self.overhead = 0.007
        """Seconds that an empty step takes."""
        self.sequence = 0.000_06
        """Seconds that each decoding sequence adds to a step."""
        self.context = 0.000_000_04
        """Seconds that each token of decoding context adds to a step."""
        self._scale = 1.0
        self.seen = 0
        """Number of first tokens that `delay` is based on."""
        self.delay = 0.0
        """Mean seconds by which first tokens arrive later than predicted; those in time count as 0."""
        self._predicted = 0.0
        """Mean seconds from sending a request to its first token, as predicted for the same first tokens."""
        self.answer = 150.0
        """Mean tokens of an answer, as engines report them."""
        self._answers = 1
        """Number of answers that this mean is based on; the initial value counts as one."""
        self.copy_rate = 0.0
        """Tokens per second that a replica copies from a KV tier which all replicas share; 0 without such a tier."""
        self.least_copy = 0.0
        """Tokens that were copied when the rate was measured. A shorter copy is assumed to take as long."""
        self._held = self._copied = 1000.0
        """Means of the tokens that a KV tier should have supplied to a request, and of those that it supplied."""

    def set_copies(self, rate: int, least: int) -> None:
        """Set the rate of copies from a shared KV tier, 0 for none, and the tokens of the copy that was measured."""
        self.copy_rate, self.least_copy = float(rate), float(least)

    def copy(self, tokens: float) -> float:
        """Return the seconds that a copy of `tokens`, above 0, from a shared KV tier takes."""
        return max(tokens, self.least_copy) / self.copy_rate

    def copied(self, cached: float, held: float) -> float:
        """Return the tokens expected from a shared KV tier. Engines copy all that it has, even if it takes longer.

        Args:
            cached: tokens of the prompt that the replica has cached.
            held: tokens of the prompt that some replica has computed.
        """
        if held <= cached or not self.copy_rate or self.copied_share < LEAST_COPIED:
            return 0.0
        return held - cached

    @property
    def copied_share(self) -> float:
        """Measured share, from 0 to 1, of the tokens computed by other replicas that the KV tier has supplied."""
        return self._copied / self._held

    def observe_copy(self, expected: float, result: float) -> None:
        """Learn from a request: `result` tokens were supplied of the `expected` ones that a KV tier may hold."""
        self._held += COPIED_STEP * (expected - self._held)
        self._copied += COPIED_STEP * (min(expected, max(0.0, result)) - self._copied)

    def set_capacity(self, kv_tokens: int) -> None:
        """Set the tokens that a replica's cache holds, once the table contains them."""
        self.kv_tokens = kv_tokens
        self.cache_tokens = float(kv_tokens)
        self.in_use.capacity = float(kv_tokens)

    def prefill(self, cached: float, prompt: float) -> float:
        """Return the seconds to compute a prompt whose first `cached` tokens are in the cache."""
        new = prompt - cached
        return new * (1 + (cached + new / 2) / self.attention_length) / self.rate

    def wait_for_place(self, load: int, step: float) -> float:
        """Return the seconds until an engine can run a further request.

        It runs a limited number of requests at once, whatever its backlog of prefill is, and the others wait in its
        queue. A place becomes free whenever a running request ends.

        Args:
            load: its requests in flight.
            step: seconds of one of its steps.
        """
        ahead = load + 1 - self.sequences
        return ahead * self.answer * step / self.sequences if ahead > 0 else 0.0

    def usual_delay(self, predicted: float) -> float:
        """Return the seconds by which a first token may be late without a fault of its replica.

        Where the rate is wrong, or engines share their machine, first tokens are late in proportion to what was
        predicted. A mean of mostly short prompts would then show every long prompt as overdue.

        Args:
            predicted: predicted seconds from sending the request to its first token.
        """
        if predicted <= self._predicted:
            return USUAL * self.delay
        return USUAL * self.delay * predicted / self._predicted

    def observe_delay(self, seconds: float, predicted: float) -> None:
        """Learn from a first token that was predicted after `predicted` seconds and arrived `seconds` later."""
        self.seen += 1
        delay = max(0.0, seconds)
        if self.seen > FIRST_DELAYS:
            delay = min(delay, OUTLIER * self.delay + LEAST_OUTLIER)
        step = max(DELAYED_STEP, 1 / (1 + self.seen))
        self.delay += step * (delay - self.delay)
        self._predicted += step * (predicted - self._predicted)

    def observe_answer(self, tokens: int) -> None:
        """Learn from an answer of so many tokens; more than a cache holds are not believed."""
        self._answers += 1
        self.answer += max(ANSWER_STEP, 1 / self._answers) * (min(tokens, self.kv_tokens) - self.answer)

    def observe(self, predicted: float, step: float, seconds: float) -> None:
        """Learn from a request that was the only one on its replica until its first token.

        Args:
            predicted: seconds of prefill, given the cached tokens that the engine reported.
            step: predicted seconds of one step of the replica.
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
