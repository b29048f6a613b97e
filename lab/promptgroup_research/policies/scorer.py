"""The endpoint picker of llm-d and the Gateway API Inference Extension (GIE): weighted scores, the highest wins.

Prefix (weight 3): the share of the prompt's blocks that a pod has by an index; the index stores the last 500,000 tokens
sent to each pod and reads 256 blocks of 16 tokens of a prompt at most. Queue (2): 1 for the shortest queue down to 0
for the longest. KV (2): the free share of the KV cache. Queue and KV are scraped every 50 ms.
Source: `pkg/epp/scheduling` of kubernetes-sigs/gateway-api-inference-extension and llm-d's router.
"""

import random
from collections import OrderedDict

from promptgroup_research.policies.peer import Peer
from promptgroup_research.simulator.turns import Turn
from promptgroup_research.simulator.world import World

BLOCK = 16
INDEX_TOKENS = 500_000
"""A pod's part of the index: 31,250 blocks."""
SCRAPE = 0.05
"""Scrape interval of the engines' metrics, in seconds."""


class Scorer(Peer):
    """3 prefix + 2 queue + 2 KV."""

    def __init__(self, cap: int | None = 256 * BLOCK, seed: int = 0) -> None:
        super().__init__()
        self.name = "llm-d / GIE" + ("" if cap is not None else " no cap")
        self._cap = cap
        self._draw = random.Random(seed)  # noqa: S311 - ties
        self._index: list[OrderedDict[int, int]] = []
        """Per pod: node → tokens of it, the least recent first."""
        self._tokens: list[int] = []
        self._queue: list[int] = []
        self._free: list[float] = []

    def start(self, world: World) -> None:
        """Begin to scrape the engines."""
        super().start(world)
        world.every(SCRAPE, self._scrape)

    def changed(self, now: float) -> None:
        """Start new pods with an empty part of the index, and clear that of removed pods."""
        super().changed(now)
        while len(self._index) < len(self.world.engines):
            self._index.append(OrderedDict())
            self._tokens.append(0)
        for index in range(len(self._index)):
            if index not in self.world.up:
                self._index[index].clear()
                self._tokens[index] = 0
        self._scrape(now)

    def choose(self, turn: Turn, now: float) -> int:
        """The highest score."""
        up = self.world.up
        queues = self._queue
        most, least = max(queues[item] for item in up), min(queues[item] for item in up)
        best, chosen = -1.0, []
        for item in up:
            queue = (most - queues[item]) / (most - least) if most > least else 1.0
            score = 3 * self._prefix(turn, item) + 2 * queue + 2 * self._free[item]
            if score > best:
                best, chosen = score, [item]
            elif score == best:
                chosen.append(item)
        pod = chosen[0] if len(chosen) == 1 else self._draw.choice(chosen)
        self._enter(turn, pod)
        return pod

    def _prefix(self, turn: Turn, pod: int) -> float:
        index = self._index[pod]
        limit = turn.prompt if self._cap is None else min(self._cap, turn.prompt)
        matched = 0
        for node, size in zip(turn.nodes, turn.sizes, strict=True):
            have = min(index.get(node, 0), size)
            matched += have
            if have < size or matched >= limit:
                break
        blocks = limit // BLOCK
        return min(matched // BLOCK, blocks) / blocks if blocks else 0.0

    def _enter(self, turn: Turn, pod: int) -> None:
        index = self._index[pod]
        left = turn.prompt if self._cap is None else self._cap
        for node, size in zip(turn.nodes, turn.sizes, strict=True):
            if left <= 0:
                break
            known = index.get(node, 0)
            tokens = max(known, min(size, left))
            self._tokens[pod] += tokens - known
            index[node] = tokens
            index.move_to_end(node)
            left -= size
        while self._tokens[pod] > INDEX_TOKENS:
            self._tokens[pod] -= index.popitem(last=False)[1]

    def _scrape(self, now: float) -> None:
        engines = self.world.engines
        self._queue = [len(engine.waiting) for engine in engines]
        self._free = [1 - engine.cache.held / engine.cache.capacity for engine in engines]
