"""One run: a scene, a scaler, a seed."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from promptgroup_research.policies.ours import Ours
from promptgroup_research.scaling.fleet import Change, Fleet
from promptgroup_research.scaling.hpa import SYNC_SECONDS
from promptgroup_research.scaling.loads import Scene
from promptgroup_research.scaling.meter import Live, Meter
from promptgroup_research.scaling.scalers import Scaler
from promptgroup_research.simulator.measure import hit, percentile, ttfts
from promptgroup_research.simulator.turns import Turn
from promptgroup_research.simulator.world import World

DRAIN = 60.0
"""Seconds after the last arrival in which first tokens may still arrive."""
BIN = 60.0
"""Seconds of a point in the course of a run."""


@dataclass(frozen=True, slots=True)
class Point:
    """A minute of a run, on average."""

    when: float
    """Its begin."""
    wanted: int
    """Replicas, at its end."""
    requests: float
    """A second."""
    hit: float
    missed: float
    """Share of its requests."""


@dataclass(frozen=True, slots=True)
class Course:
    """The course of a scaler in a run."""

    scaler: str
    seed: int
    requests: int
    missed: float
    """Share of requests whose first token was later than the target, or missing."""
    refused: float
    """Share of requests."""
    p50: float
    p99: float
    """TTFT, seconds."""
    hit: float
    """Share of prompt tokens that were cached."""
    replica_seconds: float
    changes: tuple[Change, ...]
    points: tuple[Point, ...]
    said: tuple[tuple[float, str], ...]
    """(time, reason) of the scaler, each time that its reason changed."""
    needs: tuple[int, ...] = ()
    """Replicas that the load needs, every `SYNC_SECONDS`; empty for scalers that have no model of it."""


Maker = Callable[[Scene], Scaler]


def play(scene: Scene, make: Maker, seed: int) -> Course:
    """Simulate."""
    sessions = scene.write(scene.length, seed)
    router = Ours(seed=seed)
    prompts = sorted({(s.turns[0].nodes[0], s.tier1) for s in sessions if s.group >= 0 and s.turns[0].nodes[0] >= 0})
    declared = round(statistics.fmean(tokens for _, tokens in prompts)) if prompts else 0
    meter = Meter(router, declared, lambda: _live(router), scene.drift)
    world = World(meter, sessions, scene.begin, scene.model)
    fleet = Fleet(world, prompts)
    scaler = make(scene)
    value: list[tuple[float, str]] = []

    def decide(now: float) -> None:
        if now <= scene.length:
            fleet.scale(scaler.recommend(now, meter, fleet))
            words = getattr(scaler, "said", "")
            if words and (not value or value[-1][1] != words):
                value.append((now, words))

    world.every(SYNC_SECONDS, decide)
    world.run(scene.length)
    seconds = fleet.seconds()
    world.run(scene.length + DRAIN)
    ended = scene.length + DRAIN
    judged = [turn for turn in world.turns if turn.arrived < scene.length]
    times = ttfts(judged, ended)
    return Course(
        scaler.name, seed, len(judged),
        missed=_missed(judged, scene.target, ended),
        refused=sum(turn.refused for turn in judged) / max(1, len(judged)),
        p50=percentile(times, 0.5), p99=percentile(times, 0.99), hit=hit(judged), replica_seconds=seconds,
        changes=tuple(fleet.changes), points=_points(scene, judged, fleet.changes), said=tuple(value),
        needs=tuple(getattr(scaler, "needs", ())),
    )  # fmt: skip


def _live(router: Ours) -> Live:
    replicas = router.balancers[0].members.replicas.values()
    return Live(
        sum(len(replica.live) for replica in replicas),
        sum(replica.live.tokens for replica in replicas),
        len(router.held[0]),
    )


def _points(scene: Scene, judged: Sequence[Turn], changes: Sequence[Change]) -> tuple[Point, ...]:
    bins: list[list[Turn]] = [[] for _ in range(int(scene.length / BIN))]
    for turn in judged:
        if turn.arrived < len(bins) * BIN:
            bins[int(turn.arrived / BIN)].append(turn)
    points = []
    for number, some in enumerate(bins):
        desired = next(change.wanted for change in reversed(changes) if change.when <= (number + 1) * BIN)
        missed = _missed(some, scene.target, scene.length + DRAIN)
        points.append(Point(number * BIN, desired, len(some) / BIN, hit(some), missed))
    return tuple(points)


def _missed(turns: Sequence[Turn], target: float, ended: float) -> float:
    late = sum(ttft > target for ttft in ttfts(turns, ended)) + sum(turn.refused for turn in turns)
    return late / max(1, len(turns))
