from dataclasses import replace

import pytest

from promptgroup_operator.sizing.shared import least_replicas, split, together
from promptgroup_operator.world.load import PoolMember
from support.loads import load


def member(seen, *, current=4, low=1, high=12, name="a"):
    return PoolMember(name, seen, low, high, current)


HEAVY, LIGHT = load(40, usage=0.45, sessions=300), load(8, usage=0.07, sessions=60, p95=0.1)


def rising(own, *others):
    found = least_replicas(member(own), others)
    assert found is not None
    return found[0]


def test_a_group_alone_is_a_pool_of_one():
    assert rising(HEAVY) == 5


def test_what_another_group_can_spare_is_not_added():
    assert rising(HEAVY, member(LIGHT, name="b")) == 4


def test_a_pool_that_lacks_replicas_gets_them_where_the_work_is():
    assert rising(HEAVY, member(HEAVY, name="b")) == 5
    assert rising(LIGHT, member(HEAVY, name="b", current=1)) < 4


def test_of_a_group_that_nothing_is_known_of_nothing_is_lent():
    assert rising(HEAVY, member(None, name="b")) == 5
    assert rising(HEAVY, member(load(0.1, prefill_rate=0), name="b")) == 5


def test_of_an_unknown_load_nothing_is_said():
    assert least_replicas(member(None), ()) is None


def test_a_pool_at_its_bounds_asks_for_more():
    assert least_replicas(member(HEAVY, high=4), [member(HEAVY, name="b", high=4)])[0] == 5


def test_a_pool_that_has_too_many_gives_them_away():
    own = member(LIGHT)
    found = least_replicas(own, [member(LIGHT, name="b")], margin=0.9)
    assert found is not None
    assert found[0] < 4


@pytest.mark.parametrize(
    ("total", "weights", "bounds", "parts"),
    [
        (10, [1, 1], [(0, 20)] * 2, [5, 5]),
        (10, [2, 1], [(0, 20)] * 2, [7, 3]),
        (10, [1, 0.001], [(0, 20), (2, 20)], [8, 2]),
        (10, [1, 1], [(0, 3), (0, 20)], [3, 7]),
        (1, [1, 1, 1], [(1, 5)] * 3, [1, 1, 1]),
        (99, [1, 1], [(0, 3), (0, 4)], [3, 4]),
        (5, [1, 1], [(0, 9)] * 2, [3, 2]),
    ],
    ids=["halves", "largest remainder", "the least", "the most", "more least than there is", "all they may", "a tie"],
)
def test_whole_replicas_in_proportion(total, weights, bounds, parts):
    assert split(total, weights, bounds) == parts


def test_two_loads_are_one():
    both = together([load(10, replicas=4, hit_rate=0.9), load(30, replicas=4, hit_rate=0.5, usage=0.35)])
    assert both.engines.hit_rate == pytest.approx(0.6)
    assert (both.engines.replicas, both.engines.requests, both.clients.sessions) == (8, 40, 240)
    assert both.engines.usage == pytest.approx(0.25)
    assert both.engines.first_token.total == 2000


def test_what_one_of_them_does_not_know_nobody_knows():
    some = load()
    assert together([some, replace(some, clients=None)]).clients is None
    assert together([some, replace(some, engines=replace(some.engines, preemptions=None))]).engines.preemptions is None


def test_a_pool_that_lacks_replicas_gets_them_where_the_sessions_are():
    """Both have as much work, and one of them many more sessions than its caches hold."""
    wide, narrow = load(8, sessions=1500, history=4000), load(8, sessions=60)
    assert rising(wide, member(narrow, name="b")) > rising(narrow, member(wide, name="b"))
