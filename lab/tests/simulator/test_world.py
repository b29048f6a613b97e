from collections import Counter

import pytest

from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator.workloads import agents, chat
from promptgroup_research.simulator.world import World

HOUR = 2000.0


@pytest.mark.parametrize("routers", [1, 2])
def test_every_request_ends_once(routers):
    sessions = chat(20, 20, seed=1)
    world = World(Ours(routers=routers), sessions, 4)
    world.run(HOUR)
    assert len(world.turns) == sum(len(session.turns) for session in sessions)
    assert len({id(turn) for turn in world.turns}) == len(world.turns)
    for turn in world.turns:
        assert turn.arrived <= turn.admitted < turn.first <= turn.ended
        assert 0 <= turn.cached < turn.prompt
    for engine in world.engines:
        assert (engine.running, engine.cache.held, len(engine.waiting)) == (0, 0, 0)


def test_every_request_ends_though_a_replica_dies_and_comes_back():
    sessions = agents(40, 40, seed=1)
    world = World(Ours(), sessions, 4)
    world.at(8.0, lambda: world.kill(2))
    world.at(15.0, lambda: world.revive(2))
    world.run(HOUR)
    assert len(world.turns) == sum(len(session.turns) for session in sessions)
    assert all(turn.ended > 0 for turn in world.turns)
    assert [turn for turn in world.turns if turn.replica == 2 and 8 < turn.arrived < 15] == []
    assert Counter(turn.tries for turn in world.turns)[2] > 0
    assert [turn for turn in world.turns if turn.replica == 2 and turn.arrived > 15]


def test_a_replica_that_is_not_up_gets_nothing():
    world = World(Ours(), chat(20, 10, seed=1), 4)
    world.at(3.0, lambda: world.set_up((0, 1, 3)))
    world.run(HOUR)
    assert [turn for turn in world.turns if turn.replica == 2 and turn.arrived > 3] == []
    assert all(turn.ended > 0 for turn in world.turns)


def test_who_had_a_first_token_comes_again_as_a_new_request():
    sessions = chat(20, 10, seed=1)
    world = World(Ours(), sessions, 4)
    world.run(5.0)
    begun = [turn for turn in world.turns if turn.replica == 1 and turn.first >= 0 > turn.ended]
    others = [turn for turn in world.turns if turn.replica == 1 and turn.first < 0]
    before = [turn.arrived for turn in others]
    world.kill(1)
    assert begun
    assert {turn.arrived for turn in begun} == {5.0}
    assert [turn.arrived for turn in others] == before
