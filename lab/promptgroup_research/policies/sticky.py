"""llm-d's default of 2026, "sticky until saturated": a prompt goes where it is cached, until too much waits there.

A pod that has 80 % of the prompt's tokens gets it while the uncached tokens in flight there are at most tau, the peak
prefill throughput times 14 s. Otherwise, and where no pod has as much, the one with the least uncached work gets it:
the uncached tokens in flight there, and those of this prompt. Its index of what pods have is that of `scorer`, without
a cap.
Source: llm-d.github.io `blog/2026-08-17_sticky-until-saturated-token-aware-routing.mdx`.
"""

import random

from promptgroup_research.policies.scorer import BLOCK, Scorer
from promptgroup_research.simulator.turns import Turn

STICKY = 0.8
"""Share of a prompt that must be cached for it to stay."""
MOST_SECONDS = 14.0
"""Tau over the prefill throughput."""


class Sticky(Scorer):
    """The pod that has the prompt, or the one with the least uncached work."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(None, seed)
        self.name = "llm-d sticky"
        self._ties = random.Random(seed)  # noqa: S311 - ties
        self._waiting: dict[int, int] = {}
        """Per pod: uncached tokens that were sent there and have no first token yet."""
        self._uncached: dict[Turn, int] = {}
        """Those of each such request."""

    def choose(self, turn: Turn, now: float) -> int:
        """Stay, or go where the least has to be computed."""
        up = self.world.up
        cached = {pod: self._prefix(turn, pod) for pod in up}
        saturated = self.world.model.prefill_rate * MOST_SECONDS
        some = [pod for pod in up if cached[pod] >= STICKY and self._waiting.get(pod, 0) <= saturated]
        work = {pod: self._waiting.get(pod, 0) + (1 - cached[pod]) * turn.prompt for pod in some or up}
        least = min(work.values())
        pod = self._ties.choice([pod for pod in work if work[pod] - least < BLOCK])
        self._uncached[turn] = round((1 - cached[pod]) * turn.prompt)
        self._waiting[pod] = self._waiting.get(pod, 0) + self._uncached[turn]
        self._enter(turn, pod)
        return pod

    def first_token(self, turn: Turn, now: float) -> None:
        """Count its prompt as computed."""
        self._computed(turn)

    def lost(self, turn: Turn, now: float) -> None:
        """The same: its engine died."""
        super().lost(turn, now)
        self._computed(turn)

    def _computed(self, turn: Turn) -> None:
        self._waiting[turn.replica] -= self._uncached.pop(turn, 0)
