"""Recorded runs of real engines that share a KV tier, and the simulator's results for the same requests.

The requests of a recording were sent one after the other, so that nothing depends on times. It is a file of JSON, one
object per line: first the capacities of the engines and the tier, then each request with its path in the tree of all
prompts (`Turn.nodes`), the engine that served it, and the engine's counts. The prefix, node 0, is cached beforehand.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Self

from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.tier import TierModel
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.world import World

APART = 1000.0
"""Seconds between two requests: each has ended before the next one arrives."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the engines and the tier of a recording, in tokens."""

    kv: int
    """Capacity of an engine's own cache."""
    block: int
    """Block of that cache."""
    tier: int
    """Capacity of the tier that all engines share."""
    chunk: int
    """Chunk of that tier."""
    prefix: int
    """Length of the prefix."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    engine: int
    nodes: tuple[int, ...]
    sizes: tuple[int, ...]
    cached: int
    """Cached tokens, as reported by the engine."""
    copied: int
    """Cached tokens that were copied from the tier, by the engine's counter."""


class Found(NamedTuple):
    """Shares of all prompt tokens."""

    engine: float
    """Cached by the engines themselves."""
    tier: float
    """Copied from the tier."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A run."""

    sizes: Sizes
    requests: Sequence[Asked]

    def write(self, path: Path) -> None:
        """Write it to a file."""
        lines: list[Sizes | Asked] = [self.sizes, *self.requests]
        path.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it from a file."""
        first, *rest = map(json.loads, path.read_text().splitlines())
        paths = ({**item, "nodes": tuple(item["nodes"]), "sizes": tuple(item["sizes"])} for item in rest)
        return cls(Sizes(**first), [Asked(**item) for item in paths])

    @property
    def tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(sum(request.sizes) for request in self.requests)

    def seen(self) -> Found:
        """Return the shares that the engines reported."""
        copied = sum(request.copied for request in self.requests)
        cached = sum(request.cached for request in self.requests)
        return Found((cached - copied) / self.tokens, copied / self.tokens)

    def simulated(self) -> Found:
        """Return the shares that simulated engines have cached of the same requests."""
        sizes = self.sizes
        turns = [_turn(item.nodes, item.sizes, APART * (1 + at)) for at, item in enumerate(self.requests)]
        places = {turn.session.key: item.engine for turn, item in zip(turns, self.requests, strict=True)}
        world = World(
            _AsRecorded(places),
            [turn.session for turn in turns],
            1 + max(places.values()),
            Model(kv_tokens=sizes.kv, block=sizes.block),
            TierModel("recorded", sizes.tier, 0.0, 0.0, shared=True, chunk=sizes.chunk),
        )
        for engine in world.engines:
            engine.warm(0, sizes.prefix)
        world.tiers[0].store(_turn((0,), (sizes.prefix,), 0.0))
        world.run(APART * (2 + len(turns)))
        copied = world.tiers[0].copied
        return Found((sum(turn.cached for turn in turns) - copied) / self.tokens, copied / self.tokens)


def _turn(nodes: tuple[int, ...], sizes: tuple[int, ...], began: float) -> Turn:
    session = Session(int(began), nodes[0], sizes[0], began)
    turn = Turn(session, nodes, sizes, output=1, number=0)
    session.turns.append(turn)
    return turn


class _AsRecorded:
    """Sends each request to the engine that served it in the recording."""

    name = "as recorded"

    def __init__(self, places: dict[int, int]) -> None:
        self._places = places

    def start(self, world: World) -> None:
        """There is nothing to prepare."""

    def place(self, turn: Turn, now: float) -> int:
        """Return the engine that served it."""
        return self._places[turn.session.key]

    def first_token(self, turn: Turn, now: float) -> None:
        """Nothing is learned."""

    def ended(self, turn: Turn, now: float) -> None:
        """Nothing is learned."""

    def lost(self, turn: Turn, now: float) -> None:
        """No engine dies."""

    def changed(self, now: float) -> None:
        """All engines stay."""
