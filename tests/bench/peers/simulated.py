"""The same load on the same engines in the simulator: what sockets must agree with, and where the capacity is from."""

from bench.peers import mix
from promptgroup_research.experiments.capacity import capacity
from promptgroup_research.policies.oracle import Oracle
from promptgroup_research.simulator.measure import Figures, figures
from promptgroup_research.simulator.world import Router, World

TUNING = (1, 2, 3)
"""Seeds that settings were chosen on; runs are judged on others."""
DRAIN = 60.0
SETTLED, END = 60.0, 300.0
"""Seconds in which waits are measured to find the capacity."""


def simulate(router: Router, rate: float, seed: int, warm_up: float, until: float) -> Figures:
    """What the requests between `warm_up` and `until` seconds meet."""
    world = World(router, mix.sessions(rate, until, seed), mix.ENGINES, mix.MODEL)
    world.run(until + DRAIN)
    turns = [turn for turn in world.turns if warm_up <= turn.arrived < until]
    return figures(turns, mix.ENGINES, mix.MODEL, until + DRAIN)


def measured_capacity() -> float:
    """Requests a second at which an oracle's mean wait is twice the mean own prefill."""

    def ratio(rate: float) -> float:
        found = [simulate(Oracle(), rate, seed, SETTLED, END) for seed in TUNING]
        return sum(each.wait for each in found) / sum(each.own for each in found)

    return capacity(ratio, mix.CAPACITY / 2, mix.CAPACITY * 2)
