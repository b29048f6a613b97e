"""A router with perfect information: exact caches, exact backlogs, and the true cost of each choice.

The reference for the others, and the basis of the capacities that loads are given in. It is greedy, hence no bound. It
has no constant of the project's policy: a cold prompt costs its computation, regardless of later uses.
"""

from promptgroup_research.policies.peer import Peer
from promptgroup_research.simulator.engine import Engine
from promptgroup_research.simulator.turns import Turn

PRICE = 2.0
"""Cost of a second of prefill: itself, and as much again for the requests that wait behind it."""


class Oracle(Peer):
    """The least wait plus price of prefill."""

    name = "oracle"

    def choose(self, turn: Turn, now: float) -> int:
        """The least cost."""
        costs = {item: cost(self.world.engines[item], turn, now) for item in self.world.up}
        chosen = min(costs, key=lambda item: costs[item][0])
        turn.pick = costs[chosen][1]
        return chosen


def cost(engine: Engine, turn: Turn, now: float) -> tuple[float, float]:
    """Return what a request costs at an engine, and the part of it that is the request's own prefill, in seconds."""
    model = engine.model
    # prompts that wait there will be cached by then
    cached = max(
        engine.cache.find(turn.nodes, turn.sizes),
        max((_shared(turn, waiting) for waiting in engine.waiting), default=0),
    )
    seconds = model.prefill(cached, turn.prompt - cached)
    wait = engine.backlog(now) + sum(_predicted(waiting) for waiting in engine.waiting)
    step = model.overhead + model.sequence * engine.decoding + model.context * engine.context
    return wait + step * (1 + (wait + seconds) * model.prefill_rate / model.step_tokens) + PRICE * seconds, seconds


def _shared(turn: Turn, other: Turn) -> int:
    """Tokens that two prompts have in common."""
    result = 0
    for node, size, theirs, length in zip(turn.nodes, turn.sizes, other.nodes, other.sizes, strict=False):
        if node != theirs:
            break
        result += min(size, length)
    return min(result, turn.prompt - 1)


def _predicted(turn: Turn) -> float:
    return turn.pick if isinstance(turn.pick, float) else 0.0
