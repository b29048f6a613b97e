from datetime import timedelta

import pytest

from promptgroup_operator.engine import Reading
from promptgroup_operator.hitrate import PERIOD, WINDOW, HitRates
from support.builders import NOW


def reading(queries, hits=0.0):
    return Reading(queries=queries, hits=hits, busy=0, step=16, caching=True, kv_tokens=0)


def rates(*readings, container="c"):
    """Rates after (seconds, queries, hits) of one container."""
    found = HitRates()
    for seconds, queries, hits in readings:
        found.add(container, reading(queries, hits), NOW + timedelta(seconds=seconds))
    return found


RATES = {
    "nothing is known without a reading": ([], None),
    "nothing is known from one reading": ([(0, 100, 50)], None),
    "nothing is known without lookups in between": ([(0, 100, 50), (30, 100, 50)], None),
    "what ran before the first reading is not counted": ([(0, 1000, 0), (30, 1100, 90)], 0.9),
    "no hit is zero": ([(0, 0, 0), (30, 100, 0)], 0.0),
    "every hit is one": ([(0, 0, 0), (30, 100, 100)], 1.0),
}


@pytest.mark.parametrize("case", RATES)
def test_rate(case):
    readings, expected = RATES[case]
    assert rates(*readings).rate(["c"]) == expected


def test_containers_count_by_their_tokens():
    found = rates((0, 0, 0), (30, 100, 100))
    found.add("d", reading(0, 0), NOW)
    found.add("d", reading(300, 0), NOW + timedelta(seconds=30))
    assert found.rate(["c", "d"]) == 0.25
    assert found.rate(["c"]) == 1.0
    assert found.rate(["c", "unknown"]) == 1.0
    assert found.rate([]) is None


def test_what_is_older_than_the_window_is_forgotten():
    seconds = WINDOW.total_seconds()
    found = rates((0, 0, 0), (30, 1000, 0), (seconds, 1000, 0), (seconds + 30, 1100, 100))
    assert found.rate(["c"]) == 1.0


def test_a_reading_as_old_as_the_window_is_the_baseline():
    seconds = WINDOW.total_seconds()
    assert rates((0, 0, 0), (seconds, 100, 50)).rate(["c"]) == 0.5


def test_an_engine_is_read_at_most_once_a_period():
    found = rates((0, 0, 0))
    assert found.due("unknown", NOW)
    assert not found.due("c", NOW + PERIOD - timedelta(seconds=1))
    assert found.due("c", NOW + PERIOD)


QUIET = {
    "nothing is known": ([], None),
    "from the first reading": ([(0, 100, 0)], 0),
    "an engine that computes is not quiet": ([(0, 100, 0), (30, 101, 0)], 30),
    "an engine that computes no more is": ([(0, 100, 0), (30, 101, 0), (60, 101, 0)], 30),
}


@pytest.mark.parametrize("case", QUIET)
def test_quiet_since(case):
    readings, expected = QUIET[case]
    since = rates(*readings).quiet_since(["c"])
    assert since == (NOW + timedelta(seconds=expected) if expected is not None else None)


def test_engines_are_quiet_since_the_last_of_them_worked():
    found = rates((0, 0, 0))
    found.add("d", reading(0), NOW + timedelta(seconds=50))
    assert found.quiet_since(["c", "d"]) == NOW + timedelta(seconds=50)


def test_engines_that_are_gone_are_dropped_and_others_kept():
    found = rates((0, 0, 0))
    found.add("d", reading(0), NOW + WINDOW)
    found.forget(NOW + 2 * WINDOW + timedelta(seconds=1))
    assert found.quiet_since(["c"]) is None
    assert found.quiet_since(["d"]) is not None
