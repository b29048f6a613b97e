"""The event loop: sessions arrive, routers place their turns, engines serve them."""

import heapq
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from promptgroup_research.simulator.engine import Engine, Model
from promptgroup_research.simulator.tier import Tier, TierModel
from promptgroup_research.simulator.turns import Session, Turn

HELD = -1
"""In place of a replica: the router holds the request, and sends it later."""


class Router(Protocol):
    """Places requests. One object represents all routers of a simulation."""

    name: str

    def start(self, world: "World") -> None:
        """Before the first event."""

    def place(self, turn: Turn, now: float) -> int | None:
        """The replica that gets the request, one of `world.up`; None refuses it, HELD queues it in the router."""

    def first_token(self, turn: Turn, now: float) -> None:
        """Its first token was passed on."""

    def ended(self, turn: Turn, now: float) -> None:
        """Its answer is complete; `turn.cached` is the value in `usage`."""

    def lost(self, turn: Turn, now: float) -> None:
        """Its engine died."""

    def changed(self, now: float) -> None:
        """`world.up` has changed."""


class World:
    """Engines, a router, sessions and scripted events, on one clock."""

    def __init__(
        self,
        router: Router,
        sessions: Iterable[Session],
        replicas: int,
        model: Model | None = None,
        tier: TierModel | None = None,
        *,
        engine: type[Engine] = Engine,
    ) -> None:
        self.now = 0.0
        self.model = model or Model()
        self.tiers: list[Tier] = []
        """By engine; one and the same for all when it is a pool; empty without."""
        self.tier = tier
        self._engine = engine
        self.engines: list[Engine] = []
        self.up: tuple[int, ...] = ()
        """Replicas that may be sent to."""
        self.turns: list[Turn] = []
        """All requests in the order of their arrivals."""
        self.router = router
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._draw = random.Random(0)  # noqa: S311 - a simulation
        self._late: dict[int, int] = {}
        """Turn by identity → the attempt whose first token is on its way to the router."""
        for _ in range(replicas):
            self.add_engine()
        self.up = tuple(range(replicas))
        for session in sessions:
            self._arrive_at(session.began + session.turns[0].think, session.turns[0])
        router.start(self)

    def add_engine(self) -> Engine:
        """One more engine; nothing is sent there until `set_up` adds it."""
        engine = self._engine(len(self.engines), self.model, self._first_token, self._ended)
        self.engines.append(engine)
        if self.tier is not None:
            pooled = self.tier.shared and self.tiers
            self.tiers.append(self.tiers[0] if pooled else Tier(self.tier, self.model.block))
        return engine

    def set_up(self, up: Sequence[int]) -> None:
        """Change the replicas that may be sent to."""
        self.up = tuple(up)
        self.router.changed(self.now)

    def kill(self, index: int) -> None:
        """Kill an engine with all its state. Its requests are retried elsewhere.

        By the router where no first token was passed on, else by the client, as a request that arrives at this time.
        """
        lost = self.engines[index].kill()
        self.set_up([item for item in self.up if item != index])
        for turn in lost:
            self.router.lost(turn, self.now)
            if turn.first >= 0:
                turn.arrived, turn.first = self.now, -1.0
            self._place(turn)

    def revive(self, index: int) -> None:
        """Replace a dead engine by another process with an empty cache."""
        self.engines[index].alive = True
        self.set_up(sorted({*self.up, index}))

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, action))

    def every(self, seconds: float, action: Callable[[float], None]) -> None:
        """Do something again and again, as long as there are other events."""

        def again() -> None:
            action(self.now)
            if self._events:
                self.at(self.now + seconds, again)

        self.at(self.now + seconds, again)

    def run(self, until: float) -> None:
        """Let time pass."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, action = heapq.heappop(events)
            action()

    def send(self, turn: Turn, replica: int) -> None:
        """Hand a request to an engine."""
        turn.replica, turn.sent = replica, self.now
        engine = self.engines[replica]
        if self.tiers:
            cached = engine.cache.find(turn.nodes, turn.sizes)
            there = self.tiers[replica].fetch(turn, replica, cached, self.now)
            if there > self.now:
                self.at(there, lambda: self._await(engine, engine.arrive(turn, self.now)))
                return
        self._await(engine, engine.arrive(turn, self.now))

    def _arrive_at(self, when: float, turn: Turn) -> None:
        self.at(when, lambda: self._arrive(turn))

    def _arrive(self, turn: Turn) -> None:
        turn.arrived = self.now
        self.turns.append(turn)
        self._place(turn)

    def _place(self, turn: Turn) -> None:
        turn.tries += 1
        replica = self.router.place(turn, self.now)
        if replica is None:
            turn.refused = True
        elif replica != HELD:
            self.send(turn, replica)

    def _await(self, engine: Engine, when: float | None) -> None:
        if when is None:
            return
        version = engine.version

        def due() -> None:
            if engine.version == version:
                self._await(engine, engine.due())

        self.at(when, due)

    def _first_token(self, turn: Turn, now: float) -> None:
        if not self.model.late:
            self.router.first_token(turn, now)
            return
        turn.first = -1.0
        tries = self._late[id(turn)] = turn.tries
        self.at(now + self._draw.expovariate(1 / self.model.late), lambda: self._hear(turn, tries))

    def _hear(self, turn: Turn, tries: int) -> None:
        """Pass on a delayed first token, unless its answer has ended, or its engine died."""
        if self._late.get(id(turn)) == tries:
            del self._late[id(turn)]
            turn.first = self.now
            self.router.first_token(turn, self.now)

    def _ended(self, turn: Turn, now: float) -> None:
        self._hear(turn, turn.tries)
        if self.tiers:
            self.tiers[turn.replica].store(turn)
        self.router.ended(turn, now)
        following = turn.number + 1
        turns = turn.session.turns
        if following < len(turns):
            self._arrive_at(now + turns[following].think, turns[following])
