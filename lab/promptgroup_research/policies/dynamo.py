"""NVIDIA Dynamo's KV router: the least `weight x prefill blocks + active blocks`.

Prefill blocks: the tokens that a worker has still to prefill and those of this prompt that it has not cached, in blocks
of 16. Active blocks: those that its running requests and this one hold, a shared block counted once. Without KV events
it assumes that a worker caches a prompt for 120 s after it was sent there. Default weight 1; 30 was the best in tuning.
Source: `docs/components/router` and `lib/kv-router` of ai-dynamo/dynamo. With `events` it has the exact caches.
"""

import random

from promptgroup_research.policies.peer import Peer
from promptgroup_research.simulator.turns import Turn

BLOCK = 16
BELIEF = 120.0
"""Seconds that an entry lives after it was sent."""


class Dynamo(Peer):
    """Prefill and decode load, less the overlap."""

    def __init__(self, weight: float = 1.0, *, events: bool = False, seed: int = 0) -> None:
        super().__init__()
        self.name = f"NVIDIA Dynamo w={weight:g}" + (" events" if events else "")
        self._weight, self._events = weight, events
        self._draw = random.Random(seed)  # noqa: S311 - ties
        self._sent: list[dict[int, tuple[int, float]]] = []
        """Per worker: node → (tokens of it, when last sent)."""
        self._prefill: list[int] = []
        """Tokens still to be prefilled, per worker."""
        self._held: list[dict[int, int]] = []
        """Per worker: node → running requests that hold it."""
        self._active: list[int] = []
        """Tokens of these nodes, per worker."""

    def changed(self, now: float) -> None:
        """Start new workers with no state, and clear the state of removed ones."""
        super().changed(now)
        while len(self._sent) < len(self.world.engines):
            self._sent.append({})
            self._held.append({})
            self._prefill.append(0)
            self._active.append(0)
        for index in set(range(len(self._sent))) - set(self.world.up):
            self._sent[index].clear()

    def choose(self, turn: Turn, now: float) -> int:
        """The least cost."""
        best = float("inf")
        chosen: list[tuple[int, int]] = []
        for item in self.world.up:
            uncached = turn.prompt - self._overlap(turn, item, now)
            held = self._held[item]
            new = sum(size for node, size in zip(turn.nodes, turn.sizes, strict=True) if node not in held)
            cost = (self._weight * (self._prefill[item] + uncached) + self._active[item] + new) / BLOCK
            if cost < best:
                best, chosen = cost, [(item, uncached)]
            elif cost == best:
                chosen.append((item, uncached))
        worker, missing = chosen[0] if len(chosen) == 1 else self._draw.choice(chosen)
        turn.pick = missing
        self._prefill[worker] += missing
        held, sent = self._held[worker], self._sent[worker]
        for node, size in zip(turn.nodes, turn.sizes, strict=True):
            if node in held:
                held[node] += 1
            else:
                held[node] = 1
                self._active[worker] += size
            sent[node] = (size, now)
        return worker

    def first_token(self, turn: Turn, now: float) -> None:
        """Its prefill is done."""
        self._done(turn)

    def ended(self, turn: Turn, now: float) -> None:
        """Release its blocks; its answer is part of its last block's node."""
        super().ended(turn, now)
        self._release(turn)

    def lost(self, turn: Turn, now: float) -> None:
        """Release its blocks and its prefill."""
        super().lost(turn, now)
        self._done(turn)
        self._release(turn)

    def _overlap(self, turn: Turn, worker: int, now: float) -> int:
        if self._events:
            return self.world.engines[worker].cache.find(turn.nodes, turn.sizes)
        sent = self._sent[worker]
        result = 0
        for node, size in zip(turn.nodes, turn.sizes, strict=True):
            tokens, when = sent.get(node, (0, 0.0))
            if not tokens or now - when > BELIEF:
                break
            result += min(tokens, size)
            if tokens < size:
                break
        return result

    def _done(self, turn: Turn) -> None:
        if isinstance(turn.pick, int):
            self._prefill[turn.replica] -= turn.pick
            turn.pick = None

    def _release(self, turn: Turn) -> None:
        held = self._held[turn.replica]
        for node, size in zip(turn.nodes, turn.sizes, strict=True):
            held[node] -= 1
            if not held[node]:
                del held[node]
                self._active[turn.replica] -= size
