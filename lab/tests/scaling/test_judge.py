import pytest

from promptgroup_research.scaling.fleet import Change
from promptgroup_research.scaling.judge import cost_at, gates, least_moves, moves, sheets, standings, tuned
from promptgroup_research.scaling.loads import scenes
from promptgroup_research.scaling.play import Course, Point

SCENES = scenes()


def course(scaler, missed=0.01, cost=1000.0, *, counts=(2,), seed=1, said=(), hit=0.9):
    changes = tuple(Change(60.0 * at, count) for at, count in enumerate(counts))
    points = tuple(Point(60.0 * at, 2, 5.0, hit, missed) for at in range(9))
    return Course(scaler, seed, 100, missed, 0.0, 0.1, 0.5, hit, cost, changes, points, tuple(said))


SWEEP = [
    course("HPA, queue 3", 0.01, 2000),
    course("HPA, queue 5", 0.03, 1000),
    course("HPA, queue 9", 0.04, 1500),
    course("HPA, queue 20", 0.20, 500),
]


@pytest.mark.parametrize(
    ("what", "missed", "cost"),
    [
        ("between two targets, between their costs", 0.02, 1500),
        ("fewer misses than it can have: where it has fewest", 0.001, 2000),
        ("more than it ever has: the cheapest", 0.5, 500),
        ("a target that another beats in both counts for nothing", 0.04, 1000 - 500 * 0.01 / 0.17),
    ],
)
def test_what_a_rival_pays_at_equal_misses(what, missed, cost):
    assert cost_at(standings(SWEEP), "HPA, queue", missed) == pytest.approx(cost), what


def test_a_tuned_rival_is_the_cheapest_that_meets_the_objective():
    assert tuned(standings(SWEEP), "HPA, queue").scaler == "HPA, queue 5"
    assert tuned(standings(SWEEP[3:]), "HPA, queue").scaler == "HPA, queue 20"
    assert tuned(standings(SWEEP), "fixed") is None


def test_the_least_number_of_moves_goes_by_the_highest():
    some = course("promptgroup", counts=(2, 5, 4, 6, 3))
    assert moves(some) == 3 + 1 + 2 + 3
    assert least_moves(some) == 4 + 3
    assert least_moves(course("promptgroup")) == 1


def judged(name, *courses):
    return {gate.what: gate.met for gate in gates(SCENES, {name: courses})}


def test_the_day_asks_for_cost_misses_and_calm():
    good = judged("day", course("promptgroup", 0.02, 1200, counts=(2, 5, 2)), *SWEEP)
    bad = judged("day", course("promptgroup", 0.06, 1400, counts=(2, 5, 3, 5, 2, 4, 2)), *SWEEP)
    assert set(good.values()) == {True}
    assert set(bad.values()) == {False}


def test_thrash_asks_for_more_replicas_and_hits():
    fixed = course("fixed at 6", counts=(6,), hit=0.9)
    good = judged("thrash", course("promptgroup", counts=(2, 6), hit=0.88), fixed)
    bad = judged("thrash", course("promptgroup", counts=(1,), hit=0.7), fixed)
    assert all(good.values())
    assert sum(bad.values()) == 1  # it does not oscillate


def test_drift_asks_for_no_replica_and_the_offset():
    good = judged("drift", course("promptgroup", said=((1500.0, "leave the declared one at byte 18 of 9000"),)))
    bad = judged("drift", course("promptgroup", counts=(2, 3), said=((10.0, "at byte 18"),)))
    assert all(good.values())
    assert sum(bad.values()) == 1


def test_a_table_has_ours_and_the_best_and_another_the_rest():
    best, rest = sheets(SCENES, {"day": [course("promptgroup", cost=500), *SWEEP]})
    assert [row[0] for row in best.rows] == ["promptgroup", "HPA, queue 5"]
    assert len(rest.rows) == 3
    assert best.rows[1][8] == "2.00"
