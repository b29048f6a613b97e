from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_operator.load import load_window
from promptgroup_operator.load.load_window import GAP, Entry, FoundTokens, OwnRequests
from promptgroup_operator.world.engine_facts import UNKNOWN, Measured
from promptgroup_operator.world.samples import Histogram
from support.builders import NOW, reading

SINCE = NOW - timedelta(minutes=1)


def entries(*readings):
    """Entries from (seconds, fields of the reading[, fields of the entry])."""
    found = []
    for seconds, fields, *more in readings:
        at = NOW + timedelta(seconds=seconds)
        found.append(Entry(at, replace(reading(), **fields), **{"own": OwnRequests(), **(more[0] if more else {})}))
    return found


def engines(histories, serving=None, measured=UNKNOWN):
    serving = serving if serving is not None else dict.fromkeys(histories, NOW - timedelta(hours=1))
    return load_window.engines(histories, serving, SINCE, measured)


@pytest.mark.parametrize(
    ("hits", "queries", "tiered", "expected"),
    [
        (1e15, 1e-300, 1e15, (1.0, 1.0)),
        (1e15, 1.0, 0.0, (1.0, 0.0)),
        (-5.0, 10.0, 3.0, (0.0, 0.0)),
        (5.0, 10.0, 8.0, (0.5, 0.5)),
        (5.0, 10.0, 1.0, (0.5, 0.1)),
        (5.0, 0.0, 1.0, (None, None)),
        (5.0, -1.0, 1.0, (None, None)),
    ],
)
def test_shares_of_what_was_found_are_from_0_to_1_whatever_an_engine_counts(hits, queries, tiered, expected):
    found = FoundTokens(queries, hits, tiered, {"memory": 1e15, "pool": 1e-300})
    assert found.rates == expected
    assert sum(found.rates_by_source.values()) == pytest.approx(expected[1] or 0.0)


def test_rates_are_of_the_whole_window_and_of_all_replicas():
    busy = {"queries": 6000, "hits": 3000, "generated": 600, "requests": 60}
    seconds, found = engines({"a": entries((-60, {}), (0, busy)), "b": entries((-60, {}), (0, busy))})
    assert seconds == 60
    assert (found.queries, found.hits, found.generated, found.requests) == (200, 100, 20, 2)
    assert (found.replicas, found.coverage, found.hit_rate) == (2, 1, 0.5)


def test_what_kv_tiers_brought_is_a_rate_and_begins_anew_with_its_counter():
    told = entries((-60, {"hits": 100, "tiered": 50}), (-30, {"hits": 400, "tiered": 200}))
    assert engines({"a": told})[1].tiered == 5
    assert load_window.counters_reset(replace(reading(), tiered=5.0), replace(reading(), tiered=4.0))


def test_times_and_tokens_that_an_engine_tells_are_rates_too():
    told = {"computed": 600.0, "prefill_seconds": 6.0, "decode_seconds": 120.0, "queue_seconds": 3.0}
    zero = dict.fromkeys(told, 0.0)
    _, found = engines(
        {"a": entries((-60, zero | {"preemptions": 0.0}), (0, told | {"preemptions": 6.0}))},
        measured=Measured(prefill_rate=900),
    )
    assert (found.computed, found.prefill_busy, found.decode_busy, found.queue_busy) == (10, 0.1, 2, 0.05)
    assert (found.preemptions, found.prefill_rate) == (0.1, 900)


def test_what_one_engine_does_not_tell_is_unknown_of_all():
    told = entries((-60, {"computed": 0.0}), (0, {"computed": 9.0}))
    _, found = engines({"a": told, "b": entries((-60, {}), (0, {}))})
    assert (found.computed, found.prefill_busy, found.preemptions) == (None, None, None)


def test_gauges_are_means_over_time_and_usage_over_replicas_too():
    one = entries((-60, {"running": 0, "usage": 0.2}), (-40, {"running": 4}), (0, {"running": 4, "waiting": 2}))
    _, found = engines({"a": one, "b": entries((-60, {"usage": 0.4}), (0, {"usage": 0.4}))})
    assert found.running == pytest.approx((2 * 20 + 4 * 40) / 60)
    assert found.waiting == pytest.approx(40 / 60)
    assert found.usage == pytest.approx((0.1 * 20 + 0.4 * 60) / 120)


LATE = {
    "a replica that came halfway counts half": (NOW - timedelta(seconds=30), 1.5, 1.0),
    "one that was there and not read lowers the coverage": (NOW - timedelta(hours=1), 1.5, 0.75),
}


@pytest.mark.parametrize("case", LATE)
def test_replicas_and_coverage(case):
    since, replicas, coverage = LATE[case]
    histories = {"a": entries((-60, {}), (0, {})), "b": entries((-30, {}), (0, {}))}
    _, found = engines(histories, {"a": NOW - timedelta(hours=1), "b": since})
    assert (found.replicas, found.coverage) == (replicas, coverage)


def test_a_replica_that_was_never_read_lowers_the_coverage():
    start = NOW - timedelta(hours=1)
    _, found = engines({"a": entries((-60, {}), (0, {}))}, {"a": start, "b": start})
    assert (found.replicas, found.coverage) == (1, 0.5)


def test_a_replica_that_went_counts_for_as_long_as_it_was_read():
    gone = entries((-60, {}), (-30, {"requests": 30}))
    _, found = engines({"a": gone, "b": entries((-60, {}), (0, {}))}, {"b": NOW - timedelta(hours=1)})
    assert (found.replicas, found.coverage, found.requests) == (1.5, 1, 0.5)


def test_counters_that_began_anew_say_nothing_of_the_time_in_between():
    told = entries((-60, {"requests": 100}), (-30, {"requests": 5}, {"begins": True}), (0, {"requests": 35}))
    _, found = engines({"a": told})
    assert found.requests == 1.0
    assert found.replicas == 1.0


def test_readings_far_apart_say_nothing_of_the_window():
    far = -GAP.total_seconds() - 1
    assert engines({"a": entries((far, {}), (0, {"requests": 9}))}) is None
    assert engines({"a": entries((far + 1, {}), (0, {"requests": 9}))}) is not None


@pytest.mark.parametrize("histories", [{}, {"a": []}, {"a": entries((0, {}))}])
def test_without_two_readings_nothing_is_known(histories):
    assert engines(histories) is None


def test_what_is_older_than_the_window_is_not_of_it():
    _, found = engines({"a": entries((-120, {}), (-60, {"requests": 600}), (0, {"requests": 600}))})
    assert found.requests == 0


def test_the_operators_own_requests_are_taken_off():
    before = {"computed": 0.0, "prefill_seconds": 0.0, "first_token": Histogram((0.1, 1.0), (0, 0, 0))}
    after = {
        "queries": 1000,
        "hits": 700,
        "generated": 52,
        "requests": 12,
        "computed": 300.0,
        "prefill_seconds": 3.0,
        "first_token": Histogram((0.1, 1.0), (1, 8, 3)),
    }
    _, found = engines({"a": entries((-60, before), (0, after, {"own": OwnRequests(400, 340, 2)}))})
    assert (found.queries * 60, found.hits * 60, found.generated * 60, found.requests * 60) == (600, 360, 50, 10)
    assert found.computed * 60 == pytest.approx(240)
    assert found.computed / found.prefill_busy == pytest.approx(100), "tokens a second stay as measured"
    assert found.first_token.counts == (0, 7, 3)


def test_more_of_the_operators_own_than_an_engine_counts_is_nothing_of_the_clients():
    many = {"queries": 10, "hits": 10, "tiered": 10.0, "generated": 1, "requests": 1}
    _, found = engines({"a": entries((-60, {}), (0, many, {"own": OwnRequests(20, 20, 2, tiered=20)}))})
    assert (found.queries, found.hits, found.tiered, found.generated, found.requests) == (0, 0, 0, 0, 0)


def test_of_what_one_engine_found_the_operators_own_part_is_taken_off_and_restarts_say_nothing():
    first = {"queries": 100, "hits": 50, "tiered": 10.0, "sources": {"volume": 10.0}}
    second = {"queries": 1100, "hits": 750, "tiered": 160.0, "sources": {"volume": 110.0, "peer": 50.0}}
    before, after = OwnRequests(100, 50, 1, tiered=10), OwnRequests(300, 150, 2, tiered=40)
    seen = entries((-60, first, {"own": before}), (0, second, {"own": after}))
    found = load_window.client_hits(seen)
    assert found == FoundTokens(800, 600, 120.0, {"volume": 100.0, "peer": 50.0})
    anew = entries((60, {"queries": 2000, "hits": 2000, "tiered": 2000.0}, {"own": after, "begins": True}))
    assert load_window.client_hits([*seen, *anew]) == found


def test_what_only_the_operator_sent_is_nothing():
    own = {"queries": 400, "hits": 340, "generated": 2, "requests": 2, "computed": 60.0, "prefill_seconds": 0.6}
    zero = {"computed": 0.0, "prefill_seconds": 0.0}
    _, found = engines({"a": entries((-60, zero), (0, own, {"own": OwnRequests(400, 340, 2)}))})
    assert (found.queries, found.generated, found.requests, found.computed, found.prefill_busy) == (0, 0, 0, 0, 0)
    assert found.hit_rate is None


def test_the_least_cache_is_the_size_and_measurements_stand_in_for_it():
    small = entries((-60, {"kv_tokens": 0}), (0, {"kv_tokens": 0}))
    large = entries((-60, {}), (0, {"kv_tokens": 90}))
    assert engines({"a": small, "b": large})[1].kv_tokens == 90
    assert engines({"a": small}, measured=Measured(kv_tokens=70))[1].kv_tokens == 70


FELL = ["queries", "hits", "generated", "requests", "computed", "prefill_seconds", "decode_seconds", "queue_seconds"]


@pytest.mark.parametrize("counter", [*FELL, "preemptions"])
def test_any_counter_that_falls_tells_of_another_process(counter):
    before, after = replace(reading(), **{counter: 2.0}), replace(reading(), **{counter: 1.0})
    assert load_window.counters_reset(before, after)
    assert not load_window.counters_reset(after, before)
