"""Requests that share nothing have engines of their own."""

from promptgroup_research.disaggregation.separate_pools import SeparatePools
from promptgroup_research.simulator.workloads import chat
from promptgroup_research.simulator.world import World


def test_nothing_crosses_the_border():
    world = World(SeparatePools(2, seed=1), chat(10, 20, 1), 6)
    world.run(300)
    places = {(turn.session.group < 0): set() for turn in world.turns}
    for turn in world.turns:
        places[turn.session.group < 0].add(turn.replica)
    assert places == {True: {0, 1}, False: {2, 3, 4, 5}}
