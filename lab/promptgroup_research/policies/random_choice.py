"""Two that draw: any replica, and the less loaded of two.

Power of two choices: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001.
"""

import random

from promptgroup_research.policies.peer import Peer
from promptgroup_research.simulator.turns import Turn


class RandomChoice(Peer):
    """Each replica as likely as another."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._draw = random.Random(seed)  # noqa: S311 - a simulation

    def choose(self, turn: Turn, now: float) -> int:
        """Any."""
        return self._draw.choice(self.world.up)


class PowerOfTwo(RandomChoice):
    """Of two that are drawn, the one with fewer requests in flight."""

    name = "power of two"

    def choose(self, turn: Turn, now: float) -> int:
        """The less loaded of two."""
        up = self.world.up
        drawn = self._draw.sample(up, min(2, len(up)))
        return min(drawn, key=self.in_flight.__getitem__)
