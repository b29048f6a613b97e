"""A day of a group that sleeps, decided on by the operator's own code."""

from pathlib import Path

import pytest

from promptgroup_research.scaling.sleeping import DAY, HOUR, SERVE, SHAPES, WAKE_TIMEOUT, arrivals, play, sheet

PAGE = Path(__file__).parents[3] / "docs" / "research" / "sizing-bench.md"
NOON = DAY / 2


def test_a_day_without_requests_costs_the_time_until_it_falls_asleep():
    day = play([], "30m", 120)
    assert day.replica_hours == pytest.approx(0.5, abs=0.01)
    assert (day.wakes, day.waits, day.failed) == (0, (), 0)


def test_one_request_wakes_it_once_and_waits_for_the_start():
    day = play([NOON], "30m", 120)
    assert (day.wakes, day.failed) == (1, 0)
    assert day.waits == (pytest.approx(121, abs=1),)
    assert day.replica_hours == pytest.approx(0.5 + 0.5 + 120 / HOUR, abs=0.02)


def test_requests_that_come_while_it_starts_wait_for_less_and_start_nothing_more():
    day = play([NOON, NOON + 60, NOON + 200], "30m", 120)
    assert day.wakes == 1
    assert [round(wait, -1) for wait in day.waits] == [120, 60]


def test_a_request_that_waits_for_longer_than_routers_hold_it_fails():
    day = play([NOON], "30m", WAKE_TIMEOUT + 1)
    assert (day.failed, day.waits) == (1, ())


def test_a_group_that_is_asked_all_the_time_never_sleeps():
    day = play([SERVE * n for n in range(int(DAY / SERVE))], "10m", 120)
    assert (day.wakes, day.waits) == (0, ())
    assert day.replica_hours == pytest.approx(24)


@pytest.mark.parametrize("shape", SHAPES)
def test_arrivals_are_those_of_the_seed_and_in_order(shape):
    times = arrivals(shape, 1)
    assert times == sorted(times) == arrivals(shape, 1) != arrivals(shape, 2)


def test_the_page_has_the_figures_of_the_program():
    shape = "office hours, one session an hour"
    rows = [line for line in sheet([shape]).markdown().splitlines() if "| 30m |" in line]
    assert len(rows) == 3
    page = PAGE.read_text()
    assert [row for row in rows if row not in page] == []
