"""One engine: continuous batching with chunked prefill, first come first served, as vLLM schedules.

A step takes `overhead + prefill + interference` seconds and at most `step_tokens` tokens, decodes first. Admission
reserves KV for the prompt and the whole answer, so nothing is preempted. While all requests decode, steps are not
simulated one by one: their durations are an arithmetic series.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from promptgroup_research.simulator.cache import Cache
from promptgroup_research.simulator.turns import Turn

PACE_SECONDS = 4.0
"""Seconds for which an engine that varies keeps its speed."""


@dataclass(frozen=True, slots=True)
class Model:
    """Speed and capacity of an engine, in seconds and tokens."""

    prefill_rate: float = 10_000.0
    attention_length: float = 30_000.0
    overhead: float = 0.007
    sequence: float = 0.000_06
    context: float = 0.000_000_04
    step_tokens: int = 8192
    sequences: int = 256
    kv_tokens: int = 400_000
    block: int = 16
    varies: float = 1.0
    """Ratio of an engine's highest speed to its lowest: the other load of its machine is unknown."""
    late: float = 0.0
    """Mean delay in seconds with which first tokens reach the router; it differs for each."""

    def prefill(self, start: float, count: float) -> float:
        """Seconds for `count` prompt tokens that follow `start` tokens."""
        return count * (1 + (start + count / 2) / self.attention_length) / self.prefill_rate


class Engine:
    """An engine on virtual time: `arrive` and `due` return when it wants to be called next."""

    __slots__ = (
        "_decoding", "_first_step", "_growth", "_ready", "_sequence", "_skip", "_step", "_tokens", "_until", "alive",
        "begun", "cache", "computed", "index", "model", "on_end", "on_first", "partial", "running", "slowed",
        "version", "waiting",
    )  # fmt: skip

    def __init__(
        self, index: int, model: Model, on_first: Callable[[Turn, float], None], on_end: Callable[[Turn, float], None]
    ) -> None:
        self.index = index
        self.model = model
        self.cache = Cache(model.kv_tokens, model.block)
        self.on_first, self.on_end = on_first, on_end
        self.alive = True
        self.slowed = 1.0
        """Factor on all durations, from the next step on."""
        self.version = 0
        """Grows when an earlier answer to "when next" is void."""
        self.waiting: deque[Turn] = deque()
        self.running = 0
        self.partial: Turn | None = None
        """The prompt that takes more than one step; it heads the queue, so there is one at most."""
        self.computed = 0
        """Tokens of it that are computed, the step that runs included."""
        self._decoding: list[tuple[int, int, Turn]] = []
        """(step of the last token, tie, turn), a heap."""
        self._tokens = 0
        """Tokens of context of decoding requests."""
        self._step = 0
        self._sequence = 0
        self._ready: list[Turn] = []
        self._until = math.inf
        self.begun = 0.0
        self._skip = 0
        self._first_step = self._growth = 0.0

    def arrive(self, turn: Turn, now: float) -> float | None:
        """Queue a request; return when the engine wants to be called, or None when that has not changed."""
        self.waiting.append(turn)
        if self._until is math.inf:
            return self._begin(now)
        if self._skip > 1 and len(self.waiting) == 1:
            # the scheduler reads the queue between steps: end the stretch with the current step
            steps = self._steps_by(now - self.begun)
            if steps < self._skip:
                self._skip = steps
                self.version += 1
                self._until = self.begun + self._duration(steps)
                return self._until
        return None

    def due(self) -> float | None:
        """End the step or stretch; return when the next one ends, None when there is nothing to do."""
        # requests that arrive during the callbacks meet a busy engine, and are read when the next step begins
        now = self._until
        self._step += self._skip
        self._tokens += self._skip * len(self._decoding)
        self._skip = 0
        ended = []
        decoding = self._decoding
        while decoding and decoding[0][0] <= self._step:
            ended.append(heapq.heappop(decoding)[2])
        first, self._ready = self._ready, []
        for turn in ended:
            self._tokens -= turn.prompt + turn.output
            self._finish(turn, now)
        for turn in first:
            turn.first = now
            self.on_first(turn, now)
            if turn.output > 1:
                self._sequence += 1
                heapq.heappush(decoding, (self._step + turn.output - 1, self._sequence, turn))
                self._tokens += turn.prompt + 1
            else:
                self._finish(turn, now)
        return self._begin(now)

    def pace(self, now: float) -> float:
        """Return the factor on all durations at this moment, which differs between engines."""
        varies = self.model.varies
        if varies == 1.0:
            return self.slowed
        draw = random.Random(self.index << 32 | int(now / PACE_SECONDS))  # noqa: S311 - a simulation
        return self.slowed * math.pow(varies, draw.random() - 0.5)

    def backlog(self, now: float) -> float:
        """Return the remaining seconds of prefill of admitted requests, with the rest of a step with prefill."""
        if not self._ready and self.partial is None:
            return 0.0
        left = self._until - now
        if self.partial is not None:
            left += self.model.prefill(self.computed, self.partial.prompt - self.computed)
        return left

    @property
    def context(self) -> int:
        """Tokens of context of all decoding requests."""
        return self._tokens

    @property
    def decoding(self) -> int:
        """Requests that decode."""
        return len(self._decoding)

    @property
    def busy(self) -> bool:
        """True while the engine has a request."""
        return self.running > 0 or bool(self.waiting)

    def warm(self, node: int, tokens: int) -> None:
        """Have a prompt in the cache, as after a warm-up request for it that made one token."""
        if self.cache.admit((node,), (tokens,), 1):
            self.cache.release((node,), (tokens,), 1)

    def kill(self) -> list[Turn]:
        """Kill the process: clear its cache, and return its requests."""
        lost = [
            *self.waiting,
            *([self.partial] if self.partial else ()),
            *self._ready,
            *(t for _, _, t in self._decoding),
        ]
        self.waiting.clear()
        self.partial = None
        self._ready, self._decoding = [], []
        self._tokens = self.running = 0
        self.cache.clear()
        self.alive = False
        self.version += 1
        self._until = math.inf
        return lost

    def _finish(self, turn: Turn, now: float) -> None:
        self.running -= 1
        self.cache.release(turn.nodes, turn.sizes, turn.output)
        turn.ended = now
        self.on_end(turn, now)

    def _begin(self, now: float) -> float | None:
        model = self.model
        count = len(self._decoding)
        budget = model.step_tokens - count
        seconds = 0.0
        while budget > 0:
            if self.partial is not None:
                turn, at = self.partial, self.computed
            elif self.waiting and self.running < model.sequences:
                turn = self.waiting[0]
                at = max(self.cache.find(turn.nodes, turn.sizes), turn.copied)
                if not self.cache.admit(turn.nodes, turn.sizes, turn.output):
                    break
                self.waiting.popleft()
                self.running += 1
                turn.cached = at
                turn.admitted = now
            else:
                break
            chunk = min(budget, turn.prompt - at)
            seconds += model.prefill(at, chunk)
            budget -= chunk
            if at + chunk < turn.prompt:
                self.partial, self.computed = turn, at + chunk
                break
            self.partial = None
            self._ready.append(turn)
        pace = self.pace(now)
        step = pace * (model.overhead + model.sequence * count + model.context * self._tokens)
        self.begun = now
        self.version += 1
        if seconds:
            self._skip = 1
            self._until = now + pace * seconds + step
        elif count:
            self._first_step, self._growth = step, pace * model.context * count
            self._skip = self._decoding[0][0] - self._step
            self._until = now + self._duration(self._skip)
        else:
            self._until = math.inf
            return None
        return self._until

    def _duration(self, steps: int) -> float:
        return steps * self._first_step + self._growth * steps * (steps - 1) / 2

    def _steps_by(self, seconds: float) -> int:
        """Steps that have begun after so many seconds of a stretch."""
        a, b = self._growth / 2, self._first_step - self._growth / 2
        steps = (
            math.ceil((-b + math.sqrt(b * b + 4 * a * seconds)) / (2 * a) - 1e-9) if a > 0 else math.ceil(seconds / b)
        )
        return max(1, steps)
