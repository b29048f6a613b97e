import pytest

from promptgroup_research.policies.random_choice import RandomChoice
from promptgroup_research.simulator.workloads import agents, chat
from promptgroup_research.simulator.world import World


def shape(sessions):
    return [
        (session.key, session.began, [(turn.nodes, turn.sizes, turn.output, turn.think) for turn in session.turns])
        for session in sessions
    ]


@pytest.mark.parametrize("workload", [chat, agents])
def test_a_seed_gives_the_same_sessions_whatever_was_drawn_before(workload):
    first = shape(workload(10, 30, 7))
    assert shape(workload(10, 30, 7)) == first
    assert shape(workload(10, 30, 8)) != first


@pytest.mark.parametrize("workload", [chat, agents])
def test_a_turn_repeats_the_one_before_with_its_answer(workload):
    for session in workload(10, 30, 7):
        for before, after in zip(session.turns, session.turns[1:], strict=False):
            assert after.nodes[:-1] == before.nodes
            assert after.sizes[:-1] == (*before.sizes[:-1], before.sizes[-1] + before.output)
            assert after.history == before.prompt + before.output


def test_requests_of_agents_come_at_the_rate_that_was_asked_for():
    turns = sum(len(session.turns) for seed in range(4) for session in agents(20, 500, seed))
    assert turns == pytest.approx(4 * 20 * 500, rel=0.1)


def test_chat_comes_at_its_rate_from_the_beginning():
    world = World(RandomChoice(), chat(40, 200, 1), 16)
    world.run(200)
    for begin in range(0, 200, 40):
        assert sum(begin <= turn.arrived < begin + 40 for turn in world.turns) == pytest.approx(40 * 40, rel=0.15)


def test_a_group_shares_its_prefix_and_the_others_share_nothing():
    sessions = chat(20, 60, 3)
    roots = {}
    for session in sessions:
        if session.group >= 0:
            assert roots.setdefault(session.group, session.turns[0].nodes[0]) == session.turns[0].nodes[0]
    assert len(set(roots.values())) == 6
    alone = [session.turns[0].nodes for session in sessions if session.group < 0]
    assert len(alone) == len(set(alone))
