import pytest

from promptgroup_research.policies.borders import REST, Borders
from promptgroup_research.simulator.workloads import chat
from promptgroup_research.simulator.world import World


def served(policy, rate=20):
    world = World(policy, chat(rate, 30, 1, groups=2), 4)
    world.run(1500)
    assert all(turn.ended > 0 for turn in world.turns)
    places = {}
    for turn in world.turns:
        places.setdefault(turn.session.group, set()).add(turn.replica)
    return places


def test_behind_hard_borders_each_group_has_its_own_replicas_alone():
    assert served(Borders([(0, 2), (1, 1), (REST, 1)], hard=True)) == {0: {0, 1}, 1: {2}, REST: {3}}


def test_behind_soft_borders_overflow_goes_to_the_others():
    places = served(Borders([(0, 2), (1, 2)], hard=False), rate=60)
    assert places[0] > {0, 1} or places[1] > {2, 3}
    assert places[REST] == {0, 1, 2, 3}


@pytest.mark.parametrize("hard", [True, False])
def test_names_tell_the_border(hard):
    assert ("hard" in Borders([(0, 1)], hard=hard).name) is hard
