from datetime import timedelta

import pytest

from promptgroup_operator.load.engine_history import EARLY, STALE, EngineHistory
from promptgroup_operator.world.engine_facts import UNKNOWN
from promptgroup_operator.world.load import HIT_RATE_WINDOW, PERIOD
from promptgroup_operator.world.snapshot import Key, Spent
from support.builders import NOW, reading


def rates(*readings, container="c"):
    """Rates after (seconds, queries, hits) of one container."""
    found = EngineHistory()
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
    assert rates(*readings).rates(["c"])[0] == expected


def test_containers_count_by_their_tokens():
    found = rates((0, 0, 0), (30, 100, 100))
    found.add("d", reading(0, 0), NOW)
    found.add("d", reading(300, 0), NOW + timedelta(seconds=30))
    assert found.rates(["c", "d"])[0] == 0.25
    assert found.rates(["c"])[0] == 1.0
    assert found.rates(["c", "unknown"])[0] == 1.0
    assert found.rates([])[0] is None


def test_what_tiers_brought_is_shared_among_them_without_the_operators_own():
    found = rates()
    found.add("c", reading(0, 0), NOW)
    found.spend("c", Spent(100, 60, tiered=60), NOW)
    later = reading(400, 260, tiered=160, sources={"memory": 120, "pool": 40})
    found.add("c", later, NOW + timedelta(seconds=30))
    assert found.found_tokens(["c"]).rates == (pytest.approx(200 / 300), pytest.approx(100 / 300))
    assert found.found_tokens(["c"]).rates_by_source == {"memory": pytest.approx(0.25), "pool": pytest.approx(25 / 300)}
    assert found.found_tokens([]).rates_by_source == {}


def test_what_is_older_than_the_window_is_forgotten():
    seconds = HIT_RATE_WINDOW.total_seconds()
    found = rates((0, 0, 0), (30, 1000, 0), (seconds, 1000, 0), (seconds + 30, 1100, 100))
    assert found.rates(["c"])[0] == 1.0


def test_a_reading_as_old_as_the_window_is_the_baseline():
    seconds = HIT_RATE_WINDOW.total_seconds()
    assert rates((0, 0, 0), (seconds, 100, 50)).rates(["c"])[0] == 0.5


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
    found.add("d", reading(0), NOW + HIT_RATE_WINDOW)
    found.forget(NOW + 2 * HIT_RATE_WINDOW + timedelta(seconds=1))
    assert found.quiet_since(["c"]) is None
    assert found.quiet_since(["d"]) is not None


def test_what_the_operator_sends_itself_is_in_no_hit_rate():
    found = rates((0, 1000, 500))
    found.spend("c", Spent(200, 192), NOW)
    found.add("c", reading(1200 + 100, 692 + 30), NOW + timedelta(seconds=30))
    assert found.rates(["c"])[0] == 0.3
    found.spend("c", Spent(200, 0), NOW)
    found.add("c", reading(1500 + 100, 722 + 70), NOW + timedelta(seconds=60))
    assert found.rates(["c"])[0] == 0.5


def test_an_engine_that_only_the_operator_asks_is_quiet_and_has_no_rate():
    found = rates((0, 1000, 500))
    found.spend("c", Spent(200, 192), NOW)
    found.add("c", reading(1200, 692), NOW + timedelta(seconds=30))
    assert found.quiet_since(["c"]) == NOW
    assert found.rates(["c"])[0] is None


def test_hits_of_the_operators_own_that_are_not_known_begin_the_rate_anew():
    found = rates((0, 1000, 500))
    found.spend("c", Spent(200, None), NOW)
    found.add("c", reading(1300, 592), NOW + timedelta(seconds=30))
    assert found.rates(["c"])[0] is None
    assert found.quiet_since(["c"]) == NOW + timedelta(seconds=30)
    found.add("c", reading(1400, 682), NOW + timedelta(seconds=60))
    assert found.rates(["c"])[0] == 0.9


def test_a_warm_up_before_the_first_reading_is_in_the_baseline():
    found = EngineHistory()
    found.spend("c", Spent(200, 192), NOW)
    found.add("c", reading(200, 192), NOW)
    found.add("c", reading(300, 222), NOW + timedelta(seconds=30))
    assert found.rates(["c"])[0] == 0.3


def test_counters_that_begin_anew_begin_the_rate_anew():
    found = rates((0, 1000, 500))
    found.spend("c", Spent(200, 192), NOW)
    found.add("c", reading(50, 40), NOW + timedelta(seconds=30))
    assert found.rates(["c"])[0] is None
    found.add("c", reading(150, 90), NOW + timedelta(seconds=60))
    assert found.rates(["c"])[0] == 0.5


OF = (Key("chat", "support"), "fingerprint")
SINCE = NOW - timedelta(hours=1)


def observed(*readings, container="c", found=None):
    """Observations after (seconds, fields of a reading) of one container of the revision."""
    found = found or EngineHistory()
    for seconds, fields in readings:
        found.add(container, reading(**fields), NOW + timedelta(seconds=seconds), OF)
    return found


def test_a_load_is_of_the_revisions_engines_alone():
    found = observed((0, {}), (60, {"requests": 60}))
    observed((0, {}), (60, {"requests": 30}), container="d", found=found)
    found.add("other", reading(requests=0), NOW, (Key("chat", "support"), "another"))
    found.add("other", reading(requests=900), NOW + timedelta(seconds=60), (Key("chat", "support"), "another"))
    load = found.load(OF, {"c": SINCE, "d": SINCE}, UNKNOWN, NOW + timedelta(seconds=60))
    assert (load.stale, load.seconds, load.engines.requests, load.engines.replicas) == ("", 60, 1.5, 2)


def test_a_load_reaches_back_no_further_than_its_window():
    found = observed((0, {}), (60, {"requests": 600}), (120, {"requests": 660}))
    load = found.load(OF, {"c": SINCE}, UNKNOWN, NOW + timedelta(seconds=120))
    assert (load.seconds, load.engines.requests) == (60, 1)


def test_a_group_at_rest_that_is_looked_at_once_a_minute_has_a_load():
    found = observed((0, {}), (61, {"requests": 61}))
    assert found.load(OF, {"c": SINCE}, UNKNOWN, NOW + timedelta(seconds=61)).engines.requests == 1


def test_a_load_is_stale_when_nothing_newer_was_read():
    found = observed((0, {}), (15, {}))
    fresh = found.load(OF, {"c": SINCE}, UNKNOWN, NOW + timedelta(seconds=15) + STALE)
    assert fresh.stale == ""
    assert fresh.engines is not None
    old = found.load(OF, {"c": SINCE}, UNKNOWN, NOW + timedelta(seconds=16) + STALE)
    assert (old.stale, old.engines) == ("no engine could be read since 12:00 UTC", None)
    assert found.load(OF, {}, UNKNOWN, NOW + timedelta(hours=1)).stale == ""


def test_before_anything_was_read_nothing_is_known():
    assert EngineHistory().load(OF, {"c": SINCE}, UNKNOWN, NOW).stale == "no engine could be read yet"


def test_it_is_early_until_who_reads_and_who_is_read_have_been_there_for_a_while():
    found = observed((0, {}))
    found.begin(NOW)
    assert found.load(OF, {"c": NOW}, UNKNOWN, NOW).early
    soon, later = NOW + EARLY - timedelta(seconds=1), NOW + EARLY
    assert found.load(OF, {"c": NOW}, UNKNOWN, soon).early
    assert not found.load(OF, {"c": NOW}, UNKNOWN, later).early
    assert not found.load(OF, {"c": NOW, "d": later}, UNKNOWN, later).early
    assert found.load(OF, {"d": later}, UNKNOWN, later).early


def test_an_engine_that_began_anew_in_its_container_makes_no_load_of_the_time_in_between():
    found = observed((0, {"requests": 500, "queries": 9}), (20, {"requests": 2}), (60, {"requests": 42}))
    load = found.load(OF, {"c": SINCE}, UNKNOWN, NOW + timedelta(seconds=60))
    assert (load.engines.requests, load.engines.coverage) == (1, 1)


def test_readings_that_follow_each_other_fast_take_no_room_and_lose_nothing():
    found = observed(*((second, {"requests": second}) for second in range(601)))
    entries = found._series["c"].entries
    assert len(entries) <= HIT_RATE_WINDOW / PERIOD + 3
    load = found.load(OF, {"c": SINCE}, UNKNOWN, NOW + timedelta(seconds=600))
    assert load.engines.requests == 1


def test_own_requests_are_known_for_a_while():
    found = EngineHistory()
    found.spend("c", Spent(200, 192, 2), NOW)
    found.spend("d", Spent(100, None, 1), NOW + timedelta(minutes=2))
    assert found.own(["c", "d", "e"], NOW - timedelta(seconds=1)) == [Spent(200, 192, 2), Spent(100, None, 1)]
    assert found.own(["c", "d"], NOW + timedelta(minutes=1)) == [Spent(100, None, 1)]
    found.forget(NOW + HIT_RATE_WINDOW + timedelta(seconds=1))
    assert found.own(["c", "d"], NOW - timedelta(seconds=1)) == [Spent(100, None, 1)]


def test_what_tiers_brought_to_clients_is_a_part_of_the_rate():
    found = EngineHistory()
    found.add("c", reading(0, 0), NOW)
    found.spend("c", Spent(100, 96, 1, 64), NOW)
    found.add("c", reading(300, 196, tiered=114), NOW + timedelta(seconds=30))
    assert found.rates(["c"]) == (0.5, 0.25)
