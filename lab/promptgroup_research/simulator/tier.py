"""A KV tier behind the engines' own caches: memory of one host, or a pool that all engines share.

Computed KV of a prompt is written through, as vLLM's offloading connector and LMCache do; that of answers is not. When
a request arrives, the prefix that the tier has beyond the engine's cache is copied before the engine gets the request,
while others run. Copies of one engine share its link, one after the other.
"""

from dataclasses import dataclass

from promptgroup_research.simulator.cache import Cache
from promptgroup_research.simulator.turns import Turn


@dataclass(frozen=True, slots=True)
class TierModel:
    """Speed and capacity of a tier, in seconds and tokens."""

    name: str
    tokens: int
    """Capacity in tokens: for each engine, or of the pool."""
    latency: float
    """Seconds before the first byte of a copy."""
    token: float
    """Seconds that each token of a copy takes on its engine's link."""
    shared: bool
    chunk: int = 1
    """Tokens of a chunk, where that is more than an engine's block."""


class Tier:
    """The tier of one engine, or of all."""

    __slots__ = ("_cache", "_free", "copied", "model")

    def __init__(self, model: TierModel, block: int) -> None:
        self.model = model
        self.copied = 0
        """Tokens, of all copies."""
        self._cache = Cache(model.tokens, max(block, model.chunk))
        self._free: dict[int, float] = {}
        """Engine → when its link has no copy to do."""

    def store(self, turn: Turn) -> None:
        """Store a prompt that was computed."""
        self._use(turn, turn.prompt)

    def _use(self, turn: Turn, tokens: int) -> None:
        """Store the beginning of a prompt, as most recently used."""
        nodes, sizes = [], []
        for node, size in zip(turn.nodes, turn.sizes, strict=True):
            if tokens <= 0:
                break
            nodes.append(node)
            sizes.append(min(size, tokens))
            tokens -= size
        if self._cache.admit(nodes, sizes, 0):
            self._cache.release(nodes, sizes, 0)

    def fetch(self, turn: Turn, engine: int, cached: int, now: float) -> float:
        """Copy the prefix of a prompt beyond the engine's cached part; return the time at which the copy ends.

        Sets `turn.copied`. Prefixes that are computed as quickly are not copied: callers do not request it.
        """
        result = self._cache.find(turn.nodes, turn.sizes)
        if result <= cached:
            return now
        self._use(turn, result)
        turn.copied = result
        count = result - cached
        self.copied += count
        started = max(now, self._free.get(engine, 0.0))
        self._free[engine] = started + count * self.model.token
        return self._free[engine] + self.model.latency
