"""The counters and gauges of engines and routers, read every few seconds, as a `GroupLoad`.

A scaler has no other input. Counters move when an engine's would: looked-up tokens when a prompt is admitted (here: has
its first token), times and answers when a request ends.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from promptgroup_operator.world.load import ClientLoad, EngineLoad, GroupLoad, PromptDrift
from promptgroup_operator.world.samples import Histogram
from promptgroup_research.simulator.turns import Turn
from promptgroup_research.simulator.world import Router, World

READ_SECONDS = 15.0
"""Seconds between two readings: Prometheus' usual scrape interval."""
KEPT_SECONDS = 1800.0
"""Retention of readings: longer than any window that is queried."""
BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
)  # fmt: skip
"""Seconds: vLLM's buckets of time_to_first_token_seconds, up to the longest wait of a client."""


@dataclass(slots=True)
class Counters:
    """Sums since the beginning, over all replicas that ever existed."""

    requests: float = 0.0
    begun: float = 0.0
    """Requests that had their first token."""
    opening: float = 0.0
    """Of these, the first of their session."""
    near_misses: float = 0.0
    """Of these, those whose prompt diverges from the declared one."""
    queries: float = 0.0
    hits: float = 0.0
    generated: float = 0.0
    prefill: float = 0.0
    """Seconds; of each request from admission to first token."""
    decode: float = 0.0
    queue: float = 0.0
    refused: float = 0.0
    replica_seconds: float = 0.0
    """Seconds of replicas that are up, or drain: the gauges below are multiplied by the time for which they held."""
    running: float = 0.0
    waiting: float = 0.0
    usage: float = 0.0
    held: float = 0.0


_NAMES = tuple(field.name for field in fields(Counters))


@dataclass(frozen=True, slots=True)
class _Reading:
    when: float
    counters: tuple[float, ...]
    engine_first: tuple[float, ...]
    client_first: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Live:
    """The routers' view of the live sessions on replicas."""

    sessions: int
    tokens: float
    """Tokens beyond Tier-1 prefixes."""
    held: int
    """Requests that wait in routers."""


class Meter:
    """A router that delegates everything to another one, and counts.

    Args:
        router: the one that places requests.
        declared: tokens of the declared prefix.
        live: returns the router's live sessions.
        drift: where prompts diverge from the declared one; None where none does. The first node of such prompts is
            below zero.
    """

    def __init__(
        self, router: Router, declared: int, live: Callable[[], Live], drift: PromptDrift | None = None
    ) -> None:
        self.name = router.name
        self._router = router
        self._declared = declared
        self._live = live
        self._drift = drift
        self._counters = Counters()
        self._engine_first = [0.0] * (len(BOUNDS) + 1)
        self._client_first = [0.0] * (len(BOUNDS) + 1)
        self._readings: deque[_Reading] = deque()

    # --- As a router -----------------------------------------------------------------------------------------------

    def start(self, world: World) -> None:
        """Before the first event."""
        self._world = world
        self._router.start(world)
        self._read(0.0)
        world.every(READ_SECONDS, self._read)

    def place(self, turn: Turn, now: float) -> int | None:
        """As the router."""
        return self._router.place(turn, now)

    def first_token(self, turn: Turn, now: float) -> None:
        """Count the prompt's tokens, the cached ones, and the times."""
        counters = self._counters
        counters.begun += 1
        counters.opening += not turn.number
        counters.near_misses += turn.nodes[0] < 0
        counters.queries += turn.prompt
        counters.hits += turn.cached
        self._engine_first[bisect_left(BOUNDS, now - turn.sent)] += 1
        self._client_first[bisect_left(BOUNDS, now - turn.arrived)] += 1
        self._router.first_token(turn, now)

    def ended(self, turn: Turn, now: float) -> None:
        """Count its times."""
        counters = self._counters
        counters.requests += 1
        counters.generated += turn.output
        counters.queue += turn.admitted - turn.sent
        counters.prefill += turn.first - turn.admitted
        counters.decode += now - turn.first
        self._router.ended(turn, now)

    def lost(self, turn: Turn, now: float) -> None:
        """As the router."""
        self._router.lost(turn, now)

    def changed(self, now: float) -> None:
        """As the router."""
        self._router.changed(now)

    # --- The readings ---------------------------------------------------------------------------------------------

    def _read(self, now: float) -> None:
        counters = self._counters
        running = [engine for engine in self._world.engines if engine.alive]
        live = self._live()
        if self._readings:
            seconds = now - self._readings[-1].when
            counters.replica_seconds += seconds * len(running)
            counters.running += seconds * sum(engine.running for engine in running)
            counters.waiting += seconds * sum(len(engine.waiting) for engine in running)
            counters.usage += seconds * sum(engine.cache.held / engine.cache.capacity for engine in running)
            counters.held += seconds * live.held
        values = tuple(getattr(counters, name) for name in _NAMES)
        self._readings.append(_Reading(now, values, tuple(self._engine_first), tuple(self._client_first)))
        while self._readings[0].when < now - KEPT_SECONDS:
            self._readings.popleft()

    def _before(self, window: float) -> _Reading:
        """The oldest reading within the window that ends with the last one."""
        last = self._readings[-1]
        return next(reading for reading in self._readings if reading.when >= last.when - window)

    def rates(self, window: float) -> tuple[float, Counters]:
        """(seconds, growth of the counters per second) of the last window; no seconds before the second reading."""
        begin, end = self._before(window), self._readings[-1]
        seconds = end.when - begin.when
        grown = (b - a for a, b in zip(begin.counters, end.counters, strict=True))
        return seconds, Counters(*(item / seconds for item in grown)) if seconds else Counters()

    def load(self, window: float) -> GroupLoad:
        """The load that sizing may use."""
        seconds, rates = self.rates(window)
        if not seconds:
            return GroupLoad(0.0, None)
        begin, end = self._before(window), self._readings[-1]
        model, live = self._world.model, self._live()
        engines = EngineLoad(
            replicas=rates.replica_seconds,
            coverage=min(1.0, seconds / window),
            requests=rates.requests,
            queries=rates.queries,
            hits=rates.hits,
            generated=rates.generated,
            computed=rates.queries - rates.hits,
            prefill_busy=rates.prefill,
            decode_busy=rates.decode,
            queue_busy=rates.queue,
            running=rates.running,
            waiting=rates.waiting,
            usage=rates.usage / max(1.0, rates.replica_seconds),
            preemptions=0.0,
            first_token=_grown(begin.engine_first, end.engine_first),
            kv_tokens=model.kv_tokens,
            prefill_rate=model.prefill_rate,
        )
        clients = ClientLoad(
            requests=rates.requests,
            errors=0.0,
            prompt_tokens=rates.queries,
            sessions=live.sessions,
            session_tokens=live.tokens,
            declared_tokens=self._declared,
            first_token=_grown(begin.client_first, end.client_first),
            opening=rates.opening / rates.begun if rates.begun else None,
            held=live.held,
        )
        return GroupLoad(seconds, engines, clients, self._seen_drift(rates))

    def _seen_drift(self, rates: Counters) -> PromptDrift | None:
        if self._drift is None or not rates.near_misses:
            return None
        return replace(self._drift, share=rates.near_misses / rates.begun)


def _grown(begin: tuple[float, ...], end: tuple[float, ...]) -> Histogram:
    return Histogram(BOUNDS, tuple(b - a for a, b in zip(begin, end, strict=True)))
