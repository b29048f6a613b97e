"""Runs the scheduler's steps in real time, and delivers tokens to the requests that wait for them."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from promptgroup_local.engine.answer import Finish, answer
from promptgroup_local.engine.flags import Flags, Knobs, Speech
from promptgroup_local.engine.kvcache import KVCache, TokenSequence
from promptgroup_local.engine.metrics import sglang, tensorrt, vllm
from promptgroup_local.engine.metrics.all_ranks import AllRanks
from promptgroup_local.engine.metrics.page import Gauges, Served, Source
from promptgroup_local.engine.protocol import ApiError, Completion
from promptgroup_local.engine.scheduler import Request, Scheduler, Step

logger = logging.getLogger(__name__)

COLD = "a client's request met a cold Tier 1"
"""Begins a line of the log for each: counters end with their process, and it may be killed."""

MAX_LAG = 0.05
"""Seconds that the clock may catch up: timers fire late by a fraction of a step, and a stalled machine must not be
answered by a burst of steps that take no time."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an answer; `finish` on the last one."""

    numbers: tuple[int, ...]
    """One; none at an abort."""
    finish: Finish | None
    cached: int
    """Prompt tokens that were cached."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """A request from its submission to its end."""

    source: Source
    tier1: int
    streamed: bool
    tokens: asyncio.Queue[Token] = field(default_factory=asyncio.Queue)
    first: float = 0.0
    """Time of the first token."""
    last: float = 0.0
    """Time of the latest token."""


_METRICS = {
    Speech.VLLM: vllm.of,
    Speech.SGLANG: sglang.of,
    Speech.TENSORRT_LLM: tensorrt.of,
}


class Engine:
    """Submit requests with `generate`; `run` must run meanwhile."""

    def __init__(self, flags: Flags, knobs: Knobs, rank: int = 0) -> None:
        self._cache = KVCache(flags.blocks, flags.block_size, caching=flags.prefix_caching, behind=flags.tier_blocks)
        self._scheduler = Scheduler(self._cache, knobs.cost, flags.limits, flags.max_adapters)
        self._scale = knobs.time_scale
        self._scripts = knobs.scripts
        self._tickets: dict[Request, _Ticket] = {}
        self._computed_by: dict[bytes, str] = {}
        """Key of the first block of an adapter's prefix → the weights that computed it."""
        self._evicted = 0
        """Tokens whose eviction is counted."""
        self._work = asyncio.Event()
        gauges = Gauges(
            running=lambda: len(self._scheduler.running),
            waiting=lambda: len(self._scheduler.waiting),
            usage=lambda: self._cache.usage,
        )
        self.metrics = _METRICS[flags.speech](flags, gauges, rank)
        self._stopped = False

    @property
    def load(self) -> int:
        """Requests that run or wait."""
        return len(self._tickets)

    def reset_prefix_cache(self) -> bool:
        """Forget all prefixes; False while a request runs."""
        return self._cache.reset()

    def stop(self) -> None:
        """Compute nothing any more, as a process that was killed: requests hang."""
        self._stopped = True

    def abort(self) -> None:
        """End every request with its tokens so far, as an engine does when it stops."""
        for request, ticket in tuple(self._tickets.items()):
            del self._tickets[request]
            self._scheduler.abort(request)
            self.metrics.aborted()
            ticket.tokens.put_nowait(Token((), Finish.ABORT, request.cached))

    async def generate(self, completion: Completion, source: Source) -> AsyncGenerator[Token, None]:
        """Yield the tokens of an answer as they are generated; leaving the iteration aborts the request.

        Close the iterator (`contextlib.aclosing`), else the abort waits for the garbage collector.
        """
        prompt, adapter = completion.prompt, completion.adapter
        sequence = TokenSequence(list(prompt.tokens), completion.salt, adapter.cache_key if adapter is not None else "")
        weights = self._weights(sequence, adapter.weights) if adapter is not None else ""
        value = answer(
            prompt.tokens,
            completion.max_tokens,
            ignore_eos=completion.ignore_eos,
            scripts=self._scripts,
            weights=weights,
        )
        request = Request(sequence, value, time.monotonic(), adapter.name if adapter is not None else "")
        ticket = _Ticket(source, prompt.tier1, completion.stream)
        self._tickets[request] = ticket
        self._scheduler.add(request)
        self._work.set()
        try:
            while True:
                token = await ticket.tokens.get()
                yield token
                if token.finish is not None:
                    return
        finally:
            if self._tickets.pop(request, None) is not None:
                self._scheduler.abort(request)
                self.metrics.aborted()

    def _weights(self, sequence: TokenSequence, weights: str) -> str:
        """Return what computes an adapter's answer: its weights, and those that computed the cached beginning."""
        key = self._cache.first_key(sequence)
        if key and self._cache.begins_with(sequence):
            before = self._computed_by.setdefault(key, weights)
            return weights if before == weights else f"{before} {weights}"
        if key:
            self._computed_by[key] = weights
        return weights

    async def run(self) -> None:
        """Step while there is work, sleep while there is none; ends by cancellation."""
        end = time.monotonic()
        while True:
            step = self._scheduler.schedule(time.monotonic()) if not self._stopped else None
            if step is None:
                self.metrics.rested()
                self._work.clear()
                await self._work.wait()
                end = time.monotonic()
                continue
            self.metrics.stepped(len(step.admitted))
            self._count_admissions(step)
            self._count_evictions()
            end = max(end, time.monotonic() - MAX_LAG) + step.seconds * self._scale
            await asyncio.sleep(end - time.monotonic())
            if not self._stopped:
                self._hand_out(step)

    def _count_admissions(self, step: Step) -> None:
        metrics = self.metrics
        metrics.preempted(len(step.preempted))
        for request in step.admitted:
            ticket = self._tickets[request]
            metrics.admitted(request.prompt_tokens, request.cached, request.copied)
            metrics.requests[ticket.source].inc()
            if request.cached < self._cache.whole_blocks(ticket.tier1):
                metrics.cold[ticket.source].inc()
                if ticket.source is Source.CLIENT:
                    logger.warning("%s: %d of %d tokens in cache", COLD, request.cached, ticket.tier1)

    def _count_evictions(self) -> None:
        if self._cache.evicted > self._evicted:
            self.metrics.evicted(self._cache.evicted - self._evicted)
            self._evicted = self._cache.evicted

    def _hand_out(self, step: Step) -> None:
        now = time.monotonic()
        for request, finish in self._scheduler.complete(step):
            ticket = self._tickets[request]
            self._count_token(request, ticket, now)
            number = request.answer.tokens[request.produced - 1]
            ticket.tokens.put_nowait(Token((number,), finish, request.cached))
            if finish is not None:
                del self._tickets[request]
                self.metrics.served(_served(request, finish, ticket, now))

    def _count_token(self, request: Request, ticket: _Ticket, now: float) -> None:
        self.metrics.token()
        if request.produced == 1:
            ticket.first = now
            admitted = _admitted(request)
            self.metrics.first_token(
                admitted - request.arrived,
                now - admitted,
                request.prompt_tokens,
                request.cached,
                streamed=ticket.streamed,
            )
        else:
            self.metrics.later_token(now - ticket.last)
        ticket.last = now


class Ranks:
    """The engine cores of one server, one for each data-parallel rank.

    Follows vLLM 0.32 with `--data-parallel-size` (and, as far as its source says it, SGLang 0.5.23 with `--dp-size`):

    - Each rank has a KV cache, a scheduler and metrics of its own. One metrics page has all ranks, each with its label.
    - The header field `x-data-parallel-rank` chooses one. vLLM ignores a value that is no integer, SGLang refuses it;
      a number that is out of range is refused by both. vLLM ignores the field on `/v1/responses`.
    - A request that names none runs on the rank with the fewest requests, in turn among equals. Prefixes are ignored.
    - When a rank dies, the streams of the others end as if they were whole (`finish_reason: abort`, then `[DONE]`), its
      own hang. For some seconds `/health` answers 200 and each request 500; then the process ends.
    """

    def __init__(self, flags: Flags, knobs: Knobs) -> None:
        self._speech = flags.speech
        self.all = [Engine(flags, knobs, rank) for rank in range(flags.ranks)]
        self.page = AllRanks([item.metrics.registry for item in self.all])
        """The metrics of all ranks."""
        self.dead = False
        """True once a rank has died, and with it the engine."""
        self._turn = 0

    @property
    def load(self) -> int:
        """Requests that run or wait on any rank."""
        return sum(item.load for item in self.all)

    def reset_prefix_cache(self) -> bool:
        """Forget the prefixes of all ranks; False while a request runs on one."""
        done = [item.reset_prefix_cache() for item in self.all]
        return all(done)

    def abort(self) -> None:
        """End every request with its tokens so far."""
        for item in self.all:
            item.abort()

    def chosen(self, named: str | None) -> Engine:
        """Return the rank that takes a request.

        Args:
            named: the value of the header field; None where it is missing, or ignored.

        Raises:
            ApiError: the rank does not exist, or the engine is dead.
        """
        if self.dead:
            raise ApiError(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
        if named is not None and len(self.all) > 1 and (rank := self._number(named)) is not None:
            if not 0 <= rank < len(self.all):
                word = "routed_dp_rank=" if self._speech is Speech.SGLANG else "data_parallel_rank "
                verb = "" if self._speech is Speech.SGLANG else "is "
                raise ApiError(400, f"{word}{rank} {verb}out of range [0, {len(self.all)}).")
            return self.all[rank]
        order = [self.all[(self._turn + step) % len(self.all)] for step in range(len(self.all))]
        self._turn += 1
        return min(order, key=lambda item: item.load)

    def _number(self, named: str) -> int | None:
        try:
            return int(named)
        except ValueError:
            if self._speech is Speech.SGLANG:
                raise ApiError(400, f"x-data-parallel-rank must be an integer, got {named!r}") from None
            return None

    def kill(self, rank: int) -> None:
        """Let a rank die. Its own requests get no further token."""
        self.dead = True
        for number, item in enumerate(self.all):
            if number == rank:
                item.stop()
            else:
                item.abort()


def _admitted(request: Request) -> float:
    return request.arrived if request.admitted is None else request.admitted


def _served(request: Request, finish: Finish, ticket: _Ticket, now: float) -> Served:
    admitted = _admitted(request)
    return Served(
        finish=finish,
        prompt=request.prompt_tokens,
        cached=request.cached,
        copied=request.copied,
        generated=request.produced,
        queue=admitted - request.arrived,
        prefill=ticket.first - admitted,
        decode=now - ticket.first,
        streamed=ticket.streamed,
    )
