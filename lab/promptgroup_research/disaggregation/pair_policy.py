"""A router of prefill and decode engines that knows every cache, every backlog and every transfer.

No real router knows as much, so its figures are the most that the split can bring, and not what a project reaches.
"""

from promptgroup_research.disaggregation.pair_world import PairWorld
from promptgroup_research.policies.oracle import PRICE, cost
from promptgroup_research.policies.peer import Peer
from promptgroup_research.simulator.engine import Engine
from promptgroup_research.simulator.turns import Turn
from promptgroup_research.simulator.world import World

FULL = 10.0
"""Seconds that a decode engine costs whose KV cache has no room for the request."""


class PairOracle(Peer):
    """The least wait plus price of prefill and transfer.

    Args:
        threshold: tokens that a decode engine computes itself at most; where it lacks more, a prefill engine does.
    """

    name = "oracle of pairs"

    def __init__(self, threshold: int) -> None:
        super().__init__()
        self._threshold = threshold
        self._prefillers: dict[Turn, int] = {}

    def start(self, world: World) -> None:
        """Before the first event."""
        assert isinstance(world, PairWorld)  # noqa: S101 - the one world that has pairs
        self._pairs = world
        super().start(world)

    def prefiller(self, turn: Turn) -> int | None:
        """Return the engine that computes the prompt of a request that was placed; None where its own does."""
        return self._prefillers.pop(turn, None)

    def choose(self, turn: Turn, now: float) -> int:
        """Return the decode engine."""
        pairs = self._pairs
        first = {item: cost(pairs.engines[item], turn, now) for item in pairs.prefillers}
        prefiller = min(first, key=lambda item: first[item][0])
        best, chosen, split, seconds = float("inf"), -1, False, 0.0
        for item in pairs.up:
            engine = pairs.engines[item]
            missing = turn.prompt - engine.cache.find(turn.nodes, turn.sizes)
            apart = missing > self._threshold
            if apart:
                total, own = first[prefiller]
                busy = max(0.0, pairs.link_free.get(item, 0.0) - now)
                total += busy + pairs.link.latency + PRICE * missing * pairs.link.token
            else:
                total, own = cost(engine, turn, now)
            total += self._crowding(engine, turn)
            if total < best:
                best, chosen, split, seconds = total, item, apart, own
        turn.pick = seconds
        if split:
            self._prefillers[turn] = prefiller
        return chosen

    def _crowding(self, engine: Engine, turn: Turn) -> float:
        """Seconds that a step takes with all that runs there or is on its way, for each of the answer's tokens."""
        model, coming = engine.model, self._pairs.coming[engine.index]
        requests = engine.decoding + coming
        tokens = engine.context + coming * turn.prompt
        full = engine.cache.held + coming * turn.prompt + turn.prompt + turn.output > model.kv_tokens
        return model.sequence * requests + model.context * tokens + (FULL if full else 0.0)
