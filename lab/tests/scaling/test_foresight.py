import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_research.scaling.fleet import START_SECONDS
from promptgroup_research.scaling.foresight import least

STEP = START_SECONDS / 2
"""A start takes two steps."""


def counts(needs, begin=1, most_moves=float("inf")):
    return least(needs, STEP, begin, most_moves).counts


@pytest.mark.parametrize(
    ("what", "needs", "begin", "expected"),
    [
        ("a start begins early enough", (1, 1, 1, 1, 2, 1), 1, (1, 1, 2, 2, 2, 1)),
        ("what is not needed leaves at once", (1, 1, 1, 1), 3, (1, 1, 1, 1)),
        ("a short pause is not worth a start", (2, 1, 1, 2), 2, (2, 2, 2, 2)),
        ("a long one is", (2, 1, 1, 1, 1, 2), 2, (2, 1, 1, 2, 2, 2)),
        ("no one can start before the load is there", (2, 2, 1), 1, (2, 2, 1)),
    ],
)
def test_the_cheapest_schedule(what, needs, begin, expected):
    assert counts(needs, begin) == expected, what


def test_fewer_moves_keep_replicas_over_the_shortest_pauses():
    needs = (2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 2)
    assert least(needs, STEP, 2, 9).moves == 4
    fewer = least(needs, STEP, 2, 2)
    assert fewer.moves == 2
    assert fewer.counts[:5] == (2,) * 5
    assert least(needs, STEP, 2, 0).counts == (2,) * 11


def cheapest(needs, begin):
    """By dynamic programming over all schedules: a replica is off, starts for two steps, or serves."""
    total, never = 0.0, float("inf")
    for level in range(1, max(begin, *needs) + 1):
        off, first, second, serves = (never, never, never, 0.0) if level <= begin else (0.0, never, never, never)
        for need in needs:
            off, first, second, serves = min(off, serves), off + 1, first + 1, min(second, serves) + 1
            if need >= level:
                off = first = second = never
        total += min(off, first, second, serves)
    return total * STEP


NEEDS = st.tuples(st.integers(1, 4), st.lists(st.integers(1, 4), max_size=30)).map(lambda n: (n[0], n[0], *n[1]))
"""Needs whose first two steps are those of the replicas that are there."""


@given(NEEDS)
def test_it_covers_the_needs_at_the_least_cost(needs):
    schedule = least(needs, STEP, needs[0], float("inf"))
    assert all(count >= need for count, need in zip(schedule.counts, needs, strict=True))
    assert schedule.replica_seconds == pytest.approx(cheapest(needs, needs[0]))


@given(NEEDS, st.integers(0, 20))
def test_fewer_moves_cost_no_less_and_cover_the_needs(needs, most_moves):
    free, bound = (least(needs, STEP, needs[0], moves) for moves in (float("inf"), most_moves))
    assert bound.replica_seconds >= free.replica_seconds
    assert bound.moves <= free.moves
    assert all(count >= need for count, need in zip(bound.counts, needs, strict=True))
