"""What a router could do that knew everything: exact caches, exact backlogs, the same form of cost as the project's.

The measure of the others, and the ground of the capacities that loads are given in. It is greedy, hence no bound.
"""

from promptgroup_research.policies.peer import Peer
from promptgroup_research.simulator.turns import Turn

PRICE = 2.0
"""What a second of prefill costs: itself, and as much again for those who wait behind it."""
INVESTMENT = 0.1
"""Share of a cold Tier 1's prefill that is charged: what is computed serves others too."""


class Oracle(Peer):
    """The least wait plus price of prefill."""

    name = "oracle"

    def choose(self, turn: Turn, now: float) -> int:
        """The least cost."""
        model = self.world.model
        tier1 = turn.session.tier1
        best, chosen, mine = float("inf"), -1, 0.0
        for each in self.world.up:
            engine = self.world.engines[each]
            cached = engine.cache.find(turn.nodes, turn.sizes)
            seconds = priced = model.prefill(cached, turn.prompt - cached)
            if cached < tier1:
                warm = model.prefill(tier1, turn.prompt - tier1)
                priced = warm + INVESTMENT * (seconds - warm)
            wait = engine.backlog(now) + sum(_predicted(waiting) for waiting in engine.waiting)
            step = model.overhead + model.sequence * engine.decoding + model.context * engine.context
            cost = wait + step * (1 + (wait + priced) * model.prefill_rate / model.step_tokens) + PRICE * priced
            if cost < best:
                best, chosen, mine = cost, each, seconds
        turn.pick = mine
        return chosen


def _predicted(turn: Turn) -> float:
    return turn.pick if isinstance(turn.pick, float) else 0.0
