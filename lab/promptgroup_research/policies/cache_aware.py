"""SGLang's `cache_aware`, of its model gateway (sgl-model-gateway, since 2026 smg).

One radix tree of the prompts that were sent, each stretch with the workers it was sent to. While loads are balanced,
the worker with the longest match gets the request when the match is more than `threshold` of the prompt,
else the least loaded; while they are not (difference over `absolute` and ratio over `relative`), the least loaded
gets it. Either way the prompt is recorded for it. Of several workers that have the match, the source chooses the first
of a hash map: an arbitrary one that stays the same. Its documents give thresholds of 0.3, 64 and 1.5 as defaults;
earlier releases had 0.5. The tree holds 64 million tokens before the least recent leaves are dropped
(`max_tree_size`): more than any run here sends. Answers are not recorded, and evictions by engines are not observed.
"""

from promptgroup_research.policies.peer import Peer
from promptgroup_research.simulator.turns import Turn

_ODD = 0x9E3779B97F4A7C15


class CacheAware(Peer):
    """Longest match first, as long as loads are balanced."""

    def __init__(self, threshold: float = 0.3, absolute: int = 64, relative: float = 1.5) -> None:
        super().__init__()
        self.name = "SGLang cache_aware" + (f" {threshold}" if threshold != 0.3 else "")
        self._threshold, self._absolute, self._relative = threshold, absolute, relative
        self._tree: dict[int, dict[int, int]] = {}
        """Node → worker → tokens of it that were sent there."""

    def changed(self, now: float) -> None:
        """Remove workers that are down from the tree."""
        super().changed(now)
        up = set(self.world.up)
        for workers in self._tree.values():
            for gone in workers.keys() - up:
                del workers[gone]

    def choose(self, turn: Turn, now: float) -> int:
        """By match, or by load."""
        up, loads = self.world.up, self.in_flight
        least = min(up, key=loads.__getitem__)
        most = max(loads[index] for index in up)
        chosen = least
        if not (most - loads[least] > self._absolute and most > self._relative * loads[least]):
            matched, worker = self._match(turn)
            if worker is not None and matched > self._threshold * turn.prompt:
                chosen = worker
        self._enter(turn, chosen)
        return chosen

    def _match(self, turn: Turn) -> tuple[int, int | None]:
        tree = self._tree
        matched, owner = 0, None
        for node, size in zip(turn.nodes, turn.sizes, strict=True):
            workers = tree.get(node)
            if not workers:
                break
            longest = min(size, max(workers.values()))
            matched += longest
            have = [worker for worker, tokens in workers.items() if tokens >= longest]
            # arbitrary, and the same each time
            owner = have[0] if len(have) == 1 else min(have, key=lambda worker: (node * 31 + worker) * _ODD % 2**64)
            if longest < size:
                break
        return matched, owner

    def _enter(self, turn: Turn, worker: int) -> None:
        tree = self._tree
        for node, size in zip(turn.nodes, turn.sizes, strict=True):
            workers = tree.setdefault(node, {})
            if workers.get(worker, 0) < size:
                workers[worker] = size
