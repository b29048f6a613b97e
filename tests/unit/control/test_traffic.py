from datetime import timedelta

import pytest

from promptgroup_operator.judge import quantile
from promptgroup_operator.observed import Key
from promptgroup_operator.samples import Flow, Histogram, Stratum
from promptgroup_operator.traffic import PERIOD, SETTLED, WINDOW, Counts, Readings, parse
from promptgroup_router.metrics import CACHED_BUCKETS, FIRST_TOKEN_BUCKETS, Metrics
from support.builders import NOW

KEY = Key("chat", "support")

TEXT = """\
# HELP REVISION_requests_total Requests
REVISION_requests_total{group="chat/support",revision="aa",turn="first",how="name",outcome="ok"} 7
REVISION_requests_total{group="chat/support",revision="aa",turn="first",how="content",outcome="ok"} 2
REVISION_requests_total{group="chat/support",revision="aa",turn="later",how="name",outcome="failed"} 1
REVISION_requests_total{group="chat/supporter",revision="aa",turn="first",how="name",outcome="ok"} 99
REVISION_first_token_seconds_bucket{group="chat/support",revision="aa",turn="first",le="0.1"} 3
REVISION_first_token_seconds_bucket{group="chat/support",revision="aa",turn="first",le="1"} 8
REVISION_first_token_seconds_bucket{group="chat/support",revision="aa",turn="first",le="+Inf"} 9
REVISION_first_token_seconds_sum{group="chat/support",revision="aa",turn="first"} 4.5
REVISION_cached_ratio_bucket{group="chat/support",revision="aa",turn="first",le="0"} 1
REVISION_cached_ratio_bucket{group="chat/support",revision="aa",turn="first",le="+Inf"} 1
promptgroup_router_requests_total{group="chat/support",code="200"} 10
garbage {
""".replace("REVISION_", "promptgroup_router_revision_")


def test_a_group_is_read_out_of_a_routers_metrics():
    found = parse(TEXT, KEY)
    assert found.flows == {"aa": Flow(10, 8)}
    first = Histogram((0.1, 1.0), (3.0, 5.0, 1.0))
    assert found.samples == {
        "aa": {"first": Stratum(9, 0, first, Histogram((0.0,), (1.0, 0.0))), "later": Stratum(1, 1)}
    }
    assert parse("", KEY) == parse("\0" * 99, KEY) == Counts()


def test_what_a_router_counts_is_what_is_read():
    metrics = Metrics()
    for labels in (("first", "name", "ok"), ("later", "content", "failed")):
        metrics.revision_requests.add("chat/support", "aa", *labels)
    metrics.revision_first_token.observe("chat/support", "aa", "first", value=0.2)
    metrics.revision_cached.observe("chat/support", "aa", "first", value=0.95)
    found = parse(metrics.text(), KEY)
    assert found.flows == {"aa": Flow(2, 1)}
    assert found.samples["aa"]["later"] == Stratum(1, 1)
    first = found.samples["aa"]["first"]
    assert (first.first_token.bounds, first.cached.bounds) == (FIRST_TOKEN_BUCKETS, CACHED_BUCKETS)
    assert first.first_token.total == first.cached.total == 1
    assert 0.19 < quantile(first.first_token, 0.5) < 0.23
    assert quantile(first.cached, 0.5) == 0.95


def counts(requests, errors=0):
    return Counts({"aa": Flow(requests, requests)}, {"aa": {"first": Stratum(requests, errors)}})


def after(seconds):
    return NOW + timedelta(seconds=seconds)


def test_what_ran_before_the_first_reading_does_not_count():
    readings = Readings()
    assert readings.traffic(KEY, NOW) is None
    readings.add(KEY, 1, {"r": counts(100)}, NOW)
    readings.add(KEY, 1, {"r": counts(130)}, after(5))
    traffic = readings.traffic(KEY, after(5))
    assert traffic.flows == {"aa": Flow(30, 30)}
    assert traffic.samples == {"aa": {"first": Stratum(30, 0)}}


def test_nothing_is_known_of_shares_before_some_time_has_passed():
    readings = Readings()
    readings.add(KEY, 1, {"r": counts(0)}, NOW)
    assert not readings.traffic(KEY, NOW + SETTLED - timedelta(seconds=1)).known
    assert readings.traffic(KEY, NOW + SETTLED).known


def test_shares_are_of_the_window_samples_of_the_step():
    readings = Readings()
    for second in range(0, 100, 5):
        readings.add(KEY, 1, {"r": counts(second * 10)}, after(second))
    traffic = readings.traffic(KEY, after(95))
    assert traffic.flows["aa"].requests == pytest.approx(WINDOW.total_seconds() * 10)
    assert traffic.samples["aa"]["first"].requests == 950
    readings.add(KEY, 2, {"r": counts(1000)}, after(100))
    assert readings.traffic(KEY, after(100)).samples["aa"]["first"].requests == 0
    readings.add(KEY, 2, {"r": counts(1010)}, after(105))
    assert readings.traffic(KEY, after(105)).samples["aa"]["first"].requests == 10


def test_routers_add_up_and_one_that_is_gone_is_of_the_step_but_not_of_the_window():
    readings = Readings()
    readings.add(KEY, 1, {"r": counts(0), "s": counts(5)}, NOW)
    readings.add(KEY, 1, {"r": counts(10), "s": counts(25)}, after(5))
    assert readings.traffic(KEY, after(5)).flows["aa"].requests == 30
    for second in range(10, 60, 5):
        readings.add(KEY, 1, {"r": counts(10)}, after(second))
    traffic = readings.traffic(KEY, after(55))
    assert traffic.flows["aa"].requests == 0
    assert traffic.samples["aa"]["first"].requests == 30


def test_a_group_is_read_no_more_often_than_it_needs_and_forgotten_when_it_is_not():
    readings = Readings()
    assert readings.due(KEY, NOW)
    readings.add(KEY, 1, {}, NOW)
    assert not readings.due(KEY, NOW)
    assert readings.due(KEY, NOW + PERIOD)
    assert readings.traffic(KEY, NOW) is None, "no router answered"
    readings.add(KEY, 1, {"r": counts(1)}, NOW)
    readings.forget(NOW + timedelta(hours=1))
    assert readings.traffic(KEY, NOW + timedelta(hours=1)) is None
