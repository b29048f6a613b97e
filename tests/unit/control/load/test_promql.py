from datetime import timedelta

import pytest

from promptgroup_operator.engines.dialects.sglang import METRICS as SGLANG
from promptgroup_operator.engines.dialects.vllm import METRICS as VLLM
from promptgroup_operator.load import promql
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import PromptDrift
from promptgroup_operator.world.samples import Histogram
from promptgroup_operator.world.snapshot import GuestSubject, Key, Spent
from support.builders import NOW, ago

KNOWN = Measured(400_000, 9000, 96)
SERVING = {"p0": ago(hours=1), "p1": ago(hours=1)}


def texts(names=VLLM, selector=""):
    return [each.text() for each in promql.engine_queries(names, "chat", "support-1a2b3c4d", selector)]


def test_engines_are_asked_by_the_pods_of_the_deployment():
    for text in texts():
        assert 'namespace="chat",pod=~"support-1a2b3c4d-.+"' in text
    assert 'pod=~"a[.]b-.+"' in promql.engine_queries(VLLM, "chat", "a.b")[0].text()


def test_both_names_of_a_metric_are_asked_for_pod_by_pod():
    (counters, gauges, _) = texts()
    assert "or sum by (pod) (rate(vllm:gpu_prefix_cache_hits_total{" in counters
    assert "or avg by (pod) (avg_over_time(vllm:gpu_cache_usage_perc{" in gauges


def test_what_an_engine_does_not_tell_is_not_asked():
    (counters, *_) = texts(SGLANG)
    assert '"requests"' in counters
    assert '"prefill"' not in counters


def test_a_selector_is_in_every_query():
    every = [
        *promql.engine_queries(VLLM, "chat", "d", 'cluster="eu"'),
        *promql.router_queries([GuestSubject(Key("chat", "s"), "aa", 0)], (), 'cluster="eu"'),
    ]
    for text in (each.text() for each in every):
        assert text.count('cluster="eu"') == text.count("{")


def test_first_tokens_are_asked_for_of_answers_that_are_streamed():
    (_, first) = [each.text() for each in promql.router_queries([GuestSubject(Key("chat", "s"), "aa", 0)])]
    assert (
        'revision_first_token_seconds_bucket{namespace=~"chat",group="chat/s",revision="aa",streamed="true"}[' in first
    )


def test_an_answer_is_what_is_a_number():
    result = [
        {"metric": {"what": "queries"}, "value": [1, "7.5"]},
        {"metric": {"what": "hits"}, "value": [1, "NaN"]},
        {"metric": {"what": "usage"}, "value": [1, "+Inf"]},
    ]
    assert promql.parse_result(result) == [({"what": "queries"}, 7.5)]


@pytest.mark.parametrize("result", [[{}], [{"metric": {}, "value": [1, "x"]}], [{"metric": {}, "value": []}], [3]])
def test_what_is_no_answer_is_an_error(result):
    with pytest.raises((ValueError, KeyError, TypeError, IndexError)):
        promql.parse_result(result)


def told(**values):
    return [({"what": what}, value) for what, value in values.items()]


def scrapes(**pods):
    return [({"what": "scrapes", "pod": pod}, count) for pod, count in pods.items()]


def engines(found, own=(), serving=SERVING):
    return promql.engines(found, serving, own, KNOWN, NOW)


def test_engines():
    values = told(requests=2.0, queries=200.0, hits=100.0, generated=20.0, running=3.0, waiting=0.5, usage=0.4)
    buckets = [({"what": "first", "le": bound}, count) for bound, count in (("0.1", 100), ("+Inf", 240))]
    found = engines([*values, *scrapes(p0=8, p1=8), *buckets])
    assert (found.requests, found.queries, found.hits, found.generated) == (2, 200, 100, 20)
    assert (found.running, found.waiting, found.usage) == (3, 0.5, 0.4)
    assert (found.replicas, found.coverage) == (2, 1)
    assert found.first_token == Histogram((0.1,), (100, 140))
    assert (found.kv_tokens, found.prefill_rate) == (400_000, 9000)
    assert (found.computed, found.prefill_busy, found.preemptions) == (None, None, None)


def test_what_kv_tiers_brought_is_found_too():
    (counters, *_) = texts()
    assert "rate(vllm:external_prefix_cache_hits_total{" in counters
    (counters, *_) = texts(SGLANG, 'cluster="eu"')
    assert (
        'rate(sglang:cached_tokens_total{namespace="chat",pod=~"support-1a2b3c4d-.+",cache_source!~"device|total",'
        in counters
    )
    apart = engines([*told(queries=200.0, hits=100.0, tiers=60.0), *scrapes(p0=8)])
    assert (apart.hits, apart.tiered) == (160, 60)
    among = engines([*told(queries=200.0, hits=100.0, tiered=60.0), *scrapes(p0=8)])
    assert (among.hits, among.tiered) == (100, 60)


@pytest.mark.parametrize("found", [[], told(queries=1.0), scrapes(p0=8), told(hits=1.0) + scrapes(p0=8)])
def test_engines_that_prometheus_does_not_know_are_unknown(found):
    assert engines(found) is None


COVERAGE = {
    "all of them all the time": ({"p0": 8, "p1": 8}, SERVING, 2, 1),
    "one that is not scraped": ({"p0": 8}, SERVING, 1, 0.5),
    "one that came halfway": ({"p0": 8, "p1": 4}, {**SERVING, "p1": NOW - promql.WINDOW / 2}, 1.5, 1),
    "one that went halfway": ({"p0": 8, "p1": 4}, {"p0": ago(hours=1)}, 1.5, 1),
    "one with a gap": ({"p0": 8, "p1": 6}, SERVING, 1.75, 0.875),
}


@pytest.mark.parametrize("case", COVERAGE)
def test_replicas_and_coverage(case):
    pods, serving, replicas, coverage = COVERAGE[case]
    found = engines(told(queries=1.0) + scrapes(**pods), serving=serving)
    assert (found.replicas, found.coverage) == (replicas, coverage)


def test_the_operators_own_requests_are_taken_off():
    seconds = promql.WINDOW.total_seconds()
    rates = {"queries": 1000, "hits": 700, "generated": 52, "requests": 12, "computed": 300, "prefill": 3}
    found = engines(
        told(**{what: value / seconds for what, value in rates.items()}) + scrapes(p0=8), own=[Spent(400, 340, 2)]
    )
    assert (found.queries * seconds, found.hits * seconds) == (pytest.approx(600), pytest.approx(360))
    assert (found.generated * seconds, found.requests * seconds) == (pytest.approx(50), pytest.approx(10))
    assert found.computed * seconds == pytest.approx(240)
    assert found.computed / found.prefill_busy == pytest.approx(100)


def test_own_requests_that_prometheus_has_not_seen_yet_make_no_negative_load():
    found = engines(told(queries=0.0, computed=0.0, prefill=0.0) + scrapes(p0=8), own=[Spent(400, None, 2)])
    assert (found.queries, found.hits, found.requests, found.generated, found.computed) == (0, 0, 0, 0, 0)


def test_clients_and_where_they_leave_the_prompt():
    values = told(requests=2.0, errors=0.5, opening=0.5, tokens=900.0, sessions=7.0, session_tokens=9000.0, waiting=1.0)
    found = values + told(served=3.0, near_misses=1.0, near_miss_offset=120.4)
    clients = promql.clients(found, 96)
    assert (clients.requests, clients.errors, clients.prompt_tokens, clients.sessions) == (2, 0.5, 900, 7)
    assert (clients.session_tokens, clients.held, clients.declared_tokens) == (9000, 1, 96)
    assert clients.opening == 0.25
    assert promql.drift(found, 4000) == PromptDrift(0.25, 120, 4000)


def test_a_router_that_has_served_nobody_has_a_load_of_zero():
    clients = promql.clients(told(sessions=0.0), 96)
    rates = (clients.requests, clients.errors, clients.prompt_tokens, clients.answer_tokens, clients.held)
    assert (rates, clients.looked_up, clients.cached) == ((0, 0, 0, 0, 0), 0, 0)
    assert clients.opening is None


def test_what_was_evicted_by_its_distance():
    bands = [({"what": "evicted", "within": band}, value) for band, value in (("2", 3.0), ("more", 1.0))]
    assert promql.clients(told(sessions=1.0) + bands, 96).evicted == (3.0, 0.0, 0.0, 0.0, 1.0)


def test_without_routers_nothing_is_known_of_clients_and_nobody_drifts():
    assert promql.clients([], 96) is None
    assert promql.drift([], 4000) is None
    assert promql.drift(told(served=3.0, near_misses=1.0), 4000) is None, "nobody says where"
    assert promql.drift(told(served=3.0, near_misses=0.0), 4000) is None


def test_the_newest_sample():
    assert promql.newest(told(newest=NOW.timestamp())) == NOW.timestamp()
    assert promql.newest([]) is None
    assert timedelta() < promql.STALE


def test_series_of_routers_count_by_the_namespace_of_their_target():
    for query in promql.router_queries([GuestSubject(Key("chat", "s"), "aa", 0)], ["gateway"]):
        text = query.text()
        assert text.count('namespace=~"chat|gateway",group="chat/s"') == text.count("{")


@pytest.mark.parametrize(
    "result", [{}, [{}], [{"metric": {}, "value": [0, True]}], [{"metric": [], "value": [0, "1"]}], [1], None]
)
def test_an_answer_of_another_form_is_an_error(result):
    if result == {}:
        assert promql.parse_result(result) == []
        return
    with pytest.raises((ValueError, TypeError, KeyError, IndexError)):
        promql.parse_result(result)


def test_values_over_time_are_read_without_those_that_are_not_finite():
    result = [{"metric": {"group": "a"}, "values": [[10, "0.5"], [40.0, "NaN"], [70, "+Inf"], [100, "1"]]}]
    assert promql.parse_range(result) == [({"group": "a"}, [(10, 0.5), (100, 1.0)])]
    assert promql.parse_range([]) == []


@pytest.mark.parametrize("result", [[{}], [{"metric": {}, "values": [[1]]}], [{"metric": {}, "values": 3}], [3]])
def test_what_is_no_answer_over_time_is_refused(result):
    with pytest.raises((ValueError, TypeError, KeyError, IndexError)):
        promql.parse_range(result)


def test_guests_are_asked_for_together():
    guests = [GuestSubject(Key("chat", "a.b"), "aa", 0), GuestSubject(Key("chat", "c"), "bb", 0)]
    text = promql.router_queries(guests)[0].text()
    assert 'group=~"chat/a[.]b|chat/c",revision=~"aa|bb"' in text
    assert "promptgroup_router_slot_cached_tokens_total" in text
