"""Continuous batching on virtual time: which tokens each step computes, and how long the step takes.

Follows vLLM's scheduler. A step has a budget of tokens. Running requests are scheduled first, in the order of
admission: one token for each that decodes, the next chunk for the one whose prompt is not fully computed. The rest of
the budget admits waiting requests, first come first served. When no block is free for a running request's next token,
the one admitted last is preempted: it releases its blocks and waits again, at the front of the queue. One request alone
always fits: its length is bounded by the capacity.

The time of a step is measured on real engines as a sum of four terms:

    seconds = overhead + prefill work / rate + decode per sequence · n + decode per 1,000 tokens · context / 1,000

where the work of a prompt token at position p is 1 + p / attention length. Does no I/O and reads no clock: the time is
an argument (`now`), and durations are returned.
"""

import enum
from collections import deque
from dataclasses import dataclass, field

from promptgroup_local.engine.answer import Answer, Finish
from promptgroup_local.engine.kvcache import KVCache, TokenSequence


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of computation."""

    prefill_rate: float = 10_000.0
    """Prompt tokens a second at position 0: an 8B model on one data-centre GPU."""
    attention_length: float = 30_000.0
    """Position at which a prompt token costs twice as much as the first one."""
    step: float = 0.007
    """Seconds of overhead a step."""
    decode_sequence: float = 0.000_06
    """Seconds a decoding sequence adds to a step."""
    decode_kilotoken: float = 0.000_04
    """Seconds that 1,000 tokens of decoding context add to a step."""

    def prefill(self, start: int, count: int) -> float:
        """Seconds for prompt tokens `start` to `start + count`."""
        positions = count * start + count * (count - 1) / 2
        return (count + positions / self.attention_length) / self.prefill_rate

    def decode(self, sequences: int, context: int) -> float:
        """Seconds for one token each of sequences that hold `context` tokens together."""
        return sequences * self.decode_sequence + context / 1000 * self.decode_kilotoken


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one step."""

    tokens: int = 8192
    requests: int = 256


class State(enum.Enum):
    """Where a request is."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    ENDED = enum.auto()


@dataclass(slots=True, eq=False)
class Request:
    """One request, with its state in the engine."""

    sequence: TokenSequence
    answer: Answer
    arrived: float
    adapter: str = ""
    """Name of the LoRA adapter; empty without one."""
    prompt_tokens: int = field(init=False)
    state: State = State.WAITING
    computed: int = 0
    """Tokens of the sequence whose KV is computed, or was cached."""
    cached: int = 0
    """Prompt tokens that were cached at the first admission."""
    copied: int = 0
    """Cached prompt tokens that were copied from the second tier."""
    admitted: float | None = None
    """Time at which it first ran."""
    produced: int = 0
    """Tokens of the answer so far."""

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.sequence.tokens)


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass: its requests and its duration."""

    seconds: float
    sampled: tuple[Request, ...]
    """Requests that get their next token when the step ends."""
    admitted: tuple[Request, ...]
    """Requests that run for the first time."""
    preempted: tuple[Request, ...]


class Scheduler:
    """Two calls a step: `schedule`, then, `seconds` later, `complete`."""

    def __init__(self, cache: KVCache, cost: Cost, limits: Limits, max_adapters: int = 0) -> None:
        self._max_adapters = max_adapters
        """LoRA adapters whose requests run at the same time; requests for others wait."""
        self._cache = cache
        self._cost = cost
        self._limits = limits
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        """Queue a request; prompt and answer together fit the cache (its length limit ensures this)."""
        self.waiting.append(request)

    def abort(self, request: Request) -> None:
        """End a request in any state and free its blocks; does nothing for one that has ended."""
        match request.state:
            case State.WAITING:
                self.waiting.remove(request)
            case State.RUNNING:
                self.running.remove(request)
                self._cache.release(request.sequence)
            case State.ENDED:
                pass
        request.state = State.ENDED

    def schedule(self, now: float) -> Step | None:
        """The next step, or None when there is nothing to do."""
        batch = _Batch(self._limits.tokens)
        preempted = self._continue(batch)
        admitted = self._admit(batch, now) if not preempted else []
        if batch.budget == self._limits.tokens:
            return None
        cost = self._cost
        seconds = cost.step + batch.prefill_seconds + cost.decode(batch.decoding, batch.context)
        return Step(seconds, tuple(batch.sampled), tuple(admitted), tuple(preempted))

    def complete(self, step: Step) -> list[tuple[Request, Finish | None]]:
        """Hand out the step's tokens: each request that got one, with the reason when it was the last."""
        outputs: list[tuple[Request, Finish | None]] = []
        for request in step.sampled:
            if request.state is not State.RUNNING:
                continue  # aborted while the step ran
            request.sequence.tokens.append(request.answer.tokens[request.produced])
            request.produced += 1
            finish = request.answer.finish if request.produced == len(request.answer.tokens) else None
            if finish is not None:
                self.abort(request)
            outputs.append((request, finish))
        return outputs

    def _continue(self, batch: "_Batch") -> list[Request]:
        """Schedule running requests; returns those that it had to preempt."""
        preempted: list[Request] = []
        index = 0
        while index < len(self.running) and batch.budget:
            request = self.running[index]
            count = min(len(request.sequence.tokens) - request.computed, batch.budget)
            while not self._cache.grow(request.sequence, request.computed + count):
                victim = self.running.pop()
                self._preempt(victim)
                preempted.append(victim)
                if victim is request:
                    return preempted
            self._compute(request, count, batch)
            index += 1
        return preempted

    def _admit(self, batch: "_Batch", now: float) -> list[Request]:
        admitted: list[Request] = []
        while batch.budget and len(self.running) < self._limits.requests:
            request = next(filter(self._has_room_for_adapter, self.waiting), None)
            admit = self._cache.admit(request.sequence, batch.budget) if request is not None else None
            if request is None or admit is None:
                break
            self.waiting.remove(request)
            self.running.append(request)
            request.state = State.RUNNING
            request.computed = admit
            if request.admitted is None:
                request.admitted = now
                request.cached, request.copied = admit, request.sequence.copied
                admitted.append(request)
            self._compute(request, min(len(request.sequence.tokens) - admit, batch.budget), batch)
        return admitted

    def _has_room_for_adapter(self, request: Request) -> bool:
        """Return True unless the request needs one adapter more than may run."""
        if not request.adapter:
            return True
        running = {item.adapter for item in self.running if item.adapter}
        return request.adapter in running or len(running) < self._max_adapters

    def _compute(self, request: Request, count: int, batch: "_Batch") -> None:
        start = request.computed
        request.computed += count
        batch.budget -= count
        if request.produced and count == 1:
            batch.decoding += 1
            batch.context += request.computed
        else:
            batch.prefill_seconds += self._cost.prefill(start, count)
        if request.computed == len(request.sequence.tokens):
            batch.sampled.append(request)
        self._cache.commit(request.sequence, request.computed)

    def _preempt(self, request: Request) -> None:
        self._cache.release(request.sequence)
        request.state = State.WAITING
        request.computed = 0
        self.waiting.appendleft(request)


@dataclass(slots=True)
class _Batch:
    """A step while it is being scheduled."""

    budget: int
    sampled: list[Request] = field(default_factory=list)
    prefill_seconds: float = 0.0
    decoding: int = 0
    context: int = 0
