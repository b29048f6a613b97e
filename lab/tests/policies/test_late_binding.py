"""Late binding: a request waits in the router until its replica is nearly idle, and each one ends."""

import pytest

from promptgroup_research.policies.late_binding import LateBinding
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.workloads import agents
from promptgroup_research.simulator.world import World

HOUR = 2000.0


def question(session: int, tokens: int) -> Session:
    """A session of one turn that shares nothing."""
    made = Session(session, 0, 0, 0.0)
    made.turns.append(Turn(made, (session,), (tokens,), 10, 0))
    return made


@pytest.mark.parametrize("routers", [1, 4])
def test_every_request_ends_though_replicas_come_and_go(routers):
    policy = LateBinding(routers=routers, seed=1)
    sessions = agents(6, 20, seed=1)
    world = World(policy, sessions, 4)
    world.at(5.0, lambda: world.kill(1))
    world.at(8.0, lambda: world.revive(1))
    world.run(HOUR)
    assert len(world.turns) == sum(len(session.turns) for session in sessions)
    assert all(turn.ended > 0 for turn in world.turns)


def test_a_short_request_goes_before_a_long_one_that_came_at_the_same_time():
    policy = LateBinding()
    world = World(policy, [question(1, 20_000), question(2, 20_000), question(3, 100)], 1)
    world.run(HOUR)
    first, second, third = sorted(world.turns, key=lambda turn: turn.sent)
    assert [first.prompt, second.prompt, third.prompt] == [20_000, 100, 20_000]
    assert second.sent >= 0.9 * first.first, "nothing is sent while the replica has seconds of prefill"
