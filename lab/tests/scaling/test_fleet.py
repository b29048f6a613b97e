import pytest

from promptgroup_research.policies.ours import Ours
from promptgroup_research.scaling.fleet import Fleet
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.workloads import chat
from promptgroup_research.simulator.world import World

START = 10.0


def fleet(replicas=2, sessions=(), prompts=((1, 160),)):
    world = World(Ours(), sessions, replicas)
    # events go on as long as there are some
    world.at(10_000, lambda: None)
    return world, Fleet(world, prompts, START)


def test_a_replica_comes_warm_after_its_start():
    world, some = fleet()
    world.at(5, lambda: some.scale(3))
    world.run(14.9)
    assert (world.up, world.engines[2].alive) == ((0, 1), False)
    world.run(15)
    assert world.up == (0, 1, 2)
    assert world.engines[2].cache.find((1, -1), (160, 100)) == 160


def test_the_highest_slot_goes_first_and_comes_back_empty_but_warm():
    world, some = fleet(3)
    world.engines[2].warm(7, 320)
    some.scale(2)
    assert world.up == (0, 1)
    world.run(2)
    assert not world.engines[2].alive
    some.scale(3)
    world.run(20)
    assert world.up == (0, 1, 2)
    assert len(world.engines) == 3
    found = [world.engines[2].cache.find((node, -1), (size, 100)) for node, size in ((7, 320), (1, 160))]
    assert found == [0, 160]


def test_what_runs_ends_before_a_replica_goes():
    session = Session(1, 1, 160, 0.0)
    session.turns = [Turn(session, (1, 2), (160, 10), 1000, 0)]
    world, some = fleet(1, [session])
    world.run(0.5)
    some.scale(0)
    world.run(200)
    (turn,) = world.turns
    assert turn.ended > 5
    assert not world.engines[0].alive


def test_replicas_are_paid_for_while_they_start_and_drain():
    world, some = fleet(1)
    world.run(0)
    some.scale(2)
    world.at(20, lambda: some.scale(1))
    world.run(100)
    # one all the time, one from 0 to 20 and until it is seen to be empty
    assert some.seconds() == pytest.approx(100 + 21, abs=1)


def test_a_start_that_is_wanted_no_more_is_given_up():
    world, some = fleet(1)
    some.scale(2)
    world.at(5, lambda: some.scale(1))
    world.at(7, lambda: some.scale(2))
    world.run(16.9)
    assert world.up == (0,)
    world.run(17)
    assert world.up == (0, 1)


def test_no_request_is_lost_on_the_way_up_and_down():
    sessions = chat(6, 120, 1)
    world, some = fleet(2, sessions)
    for when, count in ((10, 4), (40, 1), (60, 3), (75, 2)):
        world.at(when, lambda count=count: some.scale(count))
    world.run(9_000)
    assert all(turn.ended > 0 and turn.tries == 1 for turn in world.turns)
    assert len(world.turns) == sum(len(session.turns) for session in sessions)
