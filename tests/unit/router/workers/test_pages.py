import re
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from promptgroup_router.base.exposition import OPENMETRICS, Exemplar
from promptgroup_router.base.metrics import Counter, LatencyHistogram, Metrics
from promptgroup_router.undeclared.unmatched import UNMATCHED
from promptgroup_router.workers import pages

NAMES = sorted(name for name in dir(Metrics()) if hasattr(getattr(Metrics(), name), "lines"))
LABELS = st.sampled_from(["a/b", 'quoted "x"', "back\\slash", "two\nlines", "spa ced", "é"])
EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(NAMES), st.lists(LABELS, min_size=6, max_size=6), st.integers(1, 9)),
    max_size=60,
)


def counts(metric):
    return isinstance(metric, LatencyHistogram) or metric._kind == "counter"


def gauges():
    return {
        metric.name.removeprefix("promptgroup_router_")
        for metric in Metrics().all
        if isinstance(metric, Counter) and metric._kind == "gauge"
    }


def record(metrics, name, labels, amount):
    metric = getattr(metrics, name)
    labels = labels[: len(metric._labels)]
    if isinstance(metric, LatencyHistogram):
        metric.observe(*labels, value=amount / 8)
    else:
        metric.add(*labels, amount=amount)


def values(text):
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.heavy
@given(EVENTS)
def test_what_workers_counted_together_reads_as_if_one_had_counted_it(events):
    workers, alone = [Metrics() for _ in range(4)], Metrics()
    for worker, name, labels, amount in events:
        if counts(getattr(alone, name)):
            record(workers[worker], name, labels, amount)
            record(alone, name, labels, amount)
    merged = pages.merge([pages.parse(each.text()) for each in workers])
    counted = {name for name in NAMES if counts(getattr(alone, name))}
    families = {getattr(alone, name).name for name in counted}
    assert {key: value for key, value in values(pages.text(merged)).items() if key[0] in families} == {
        key: value for key, value in values(alone.text()).items() if key[0] in families
    }
    assert values(pages.text(pages.counters(merged))) == values(pages.text(pages.counters(pages.parse(alone.text()))))


@given(EVENTS)
def test_a_page_alone_stays_as_it_is(events):
    alone = Metrics()
    for _, name, labels, amount in events:
        record(alone, name, labels, amount)
    page = pages.parse(alone.text())
    assert pages.text(page) == alone.text()
    before = deepcopy(page)
    assert pages.text(pages.merge([page])) == alone.text()
    assert page == before


@given(EVENTS, st.integers(0, 60))
def test_no_sum_falls_when_a_worker_ends_and_its_counters_are_kept(events, at):
    workers = [Metrics() for _ in range(4)]
    for worker, name, labels, amount in events[:at]:
        record(workers[worker], name, labels, amount)
    parsed = [pages.parse(each.text()) for each in workers]
    before = pages.merge(parsed)
    after = pages.merge([*parsed[1:], pages.counters(parsed[0])])
    assert pages.counters(before) == pages.counters(after) or values(pages.text(pages.counters(before))) == values(
        pages.text(pages.counters(after))
    )


@given(st.text(max_size=400))
def test_any_text_is_read(text):
    pages.text(pages.merge([pages.parse(text), pages.parse(text)]))


def counted(*subjects):
    metrics = Metrics()
    metrics.table_info.replace({("v1", "file"): 1})
    metrics.retries.add("RESET")
    for group, revision in subjects:
        metrics.requests.add(group, "200")
        metrics.revision_prompt_tokens.add(group, revision, amount=5)
    return pages.parse(metrics.text())


def test_what_is_gone_is_forgotten_with_the_workers_that_counted_it():
    ended = pages.counters(counted(("a/kept", "1"), ("a/kept", "old"), ("a/gone", "1"), (UNMATCHED, "1")))
    shown = pages.text(pages.still_told(ended, [counted(("a/kept", "1")), counted()]))
    assert set(re.findall(r'(?:requests|tokens)_total\{group="([^"]*)",(?:code|revision)="([^"]*)"', shown)) == {
        (UNMATCHED, "200"),
        ("a/kept", "200"),
        ("a/kept", "1"),
    }
    assert 'retries_total{reason="RESET"} 1' in shown
    assert pages.still_told(ended, []) == ended
    assert pages.still_told(ended, [pages.parse(Metrics().text())]) == ended  # one that has just started


def test_each_gauge_is_either_added_or_taken_once():
    assert gauges() == pages.ADDED | set(pages.ONCE)
    assert not pages.ADDED & set(pages.ONCE)


def page_with(name, *values):
    found = []
    for value in values:
        metrics = Metrics()
        getattr(metrics, name).replace(
            {(): value} if not getattr(metrics, name)._labels else {("chat/support",): value}
        )
        found.append(pages.parse(metrics.text()))
    return found


@pytest.mark.parametrize(
    ("name", "series", "values", "expected"),
    [
        ("waiting", "waiting", (2, 3, 4), 9),
        ("connections", "connections", (20, 0, 1), 21),
        ("conflicts", 'conflicts{group="chat/support"}', (1, 1, 1), 1),
        ("table_age", "table_age_seconds", (1, 30.5, 2), 30.5),
        ("departed_at", 'departed_at_bytes{group="chat/support"}', (10, 40, 30), 30),
        ("peer_key", "peer_key", (1, 0, 1), 0),
        ("peers", "peers", (2, 2, 2), 0),  # they hear each other, and no other router
        ("peers", "peers", (5, 4, 5), 3),
        ("peers", "peers", (0, 0, 0), 0),
        ("workers", "workers", (1, 1, 1), 3),
    ],
)
def test_gauges_of_three_workers(name, series, values, expected):
    merged = pages.merge(page_with(name, *values))
    assert f"promptgroup_router_{series} {expected}\n" in pages.text(merged)


def test_tables_that_workers_have_for_a_moment_are_all_shown():
    one, other = Metrics(), Metrics()
    one.table_info.replace({("v1", "file"): 1})
    other.table_info.replace({("v2", "file"): 1})
    found = values(pages.text(pages.merge([pages.parse(each.text()) for each in (one, other, other)])))
    assert [value for (name, _), value in found.items() if name.endswith("table_info")] == [1, 1]


def test_exemplars_of_workers_are_put_together_and_the_last_of_a_bucket_stays():
    workers = [Metrics() for _ in range(3)]
    for metrics, trace, value, at in zip(workers, (1, 2, 3), (0.3, 0.4, 9.0), (20.0, 10.0, 5.0), strict=True):
        metrics.first_byte.observe("chat/a", value=value)
        metrics.first_byte.series(("chat/a",)).mark(Exemplar(trace, value, at))
    read = [pages.parse(each.text(OPENMETRICS)) for each in workers]
    merged = pages.merge([pages.counters(read[0]), *read[1:]])
    lines = pages.text(merged, OPENMETRICS).splitlines()
    assert [line.partition(" # ")[2] for line in lines if " # {" in line] == [
        f'{{trace_id="{1:032x}"}} 0.3 20.000',
        f'{{trace_id="{3:032x}"}} 9.0 5.000',
    ]
    assert lines[-1] == "# EOF"
    assert "trace_id" not in pages.text(merged)
    assert 'seconds_count{group="chat/a"} 3' in pages.text(merged)


@given(EVENTS)
def test_a_page_in_openmetrics_alone_stays_as_it_is(events):
    alone = Metrics()
    for _, name, labels, amount in events:
        record(alone, name, labels, amount)
        metric = getattr(alone, name)
        if isinstance(metric, LatencyHistogram):
            metric.series(tuple(labels[: len(metric._labels)])).mark(Exemplar(2**127, amount / 8, 1.7e9))
    page = pages.parse(alone.text(OPENMETRICS))
    assert pages.text(page, OPENMETRICS) == alone.text(OPENMETRICS)
    assert pages.text(page) == alone.text()


def test_a_label_that_looks_like_an_exemplar_is_a_label():
    alone = Metrics()
    alone.unmatched.add(f'm # {{trace_id="{1:032x}"}} 1 1')
    page = pages.parse(alone.text(OPENMETRICS))
    assert pages.text(page) == alone.text()
    assert page["unmatched_requests_total"].exemplars == {}
