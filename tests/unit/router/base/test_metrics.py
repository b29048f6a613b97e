import asyncio
import re
from pathlib import Path

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from promptgroup_router.base import settings
from promptgroup_router.base.exposition import OPENMETRICS, Exemplar
from promptgroup_router.base.metrics import LATENCY_BUCKETS, Counter, LatencyHistogram, Metrics
from promptgroup_router.server import Router


def parsed(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name.removeprefix("promptgroup_router_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }


def test_counters_are_exposed_with_their_labels():
    metrics = Metrics()
    metrics.requests.add("chat/support", "200")
    metrics.requests.add("chat/support", "200")
    metrics.cached_tokens.add("chat/support", amount=464)
    found = parsed(metrics)
    assert found["requests_total", (("code", "200"), ("group", "chat/support"))] == 2
    assert found["cached_tokens_total", (("group", "chat/support"),)] == 464
    assert found["ejections_total", ()] == 0


def test_histograms_count_up_to_each_bound():
    metrics = Metrics()
    for value in (0.001, LATENCY_BUCKETS[0], 0.3, 9999.0):
        metrics.first_byte.observe("g", value=value)
    found = parsed(metrics)

    def bucket(bound):
        return found["time_to_first_byte_seconds_bucket", (("group", "g"), ("le", bound))]

    assert [bucket(bound) for bound in ("0.005", "0.25", "0.5", "600.0", "+Inf")] == [2, 2, 3, 3, 4]
    assert found["time_to_first_byte_seconds_count", (("group", "g"),)] == 4
    assert found["time_to_first_byte_seconds_sum", (("group", "g"),)] == 0.001 + 0.005 + 0.3 + 9999.0


def test_label_values_are_escaped():
    metrics = Metrics()
    metrics.unmatched.add('a"b\\c\nd')
    assert parsed(metrics)["unmatched_requests_total", (("model", 'a"b\\c\nd'),)] == 1


def test_gauges_are_replaced():
    metrics = Metrics()
    metrics.table_info.replace({("v1", "file"): 1})
    metrics.table_info.replace({("v2", "file"): 1})
    assert [key[1] for key in parsed(metrics) if key[0] == "table_info"] == [(("source", "file"), ("version", "v2"))]


def test_every_metric_has_help_and_type():
    lines = Metrics().text().splitlines()
    helped = {line.split()[2] for line in lines if line.startswith("# HELP")}
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert helped == typed == {metric.name for metric in Metrics().all}


def test_no_metric_is_left_out_of_the_exposition():
    metrics = Metrics()
    attributes = [getattr(each, name) for each in (metrics, metrics.callers) for name in dir(each)]
    made = [each for each in attributes if isinstance(each, Counter | LatencyHistogram)]
    assert {metric.name for metric in made} == {metric.name for metric in metrics.all}


def test_the_page_has_every_metric_with_its_type_and_its_labels():
    page = (Path(__file__).parents[4] / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(promptgroup_router_\w+)` \| (\w+) \| ([^|]*)\|", page, re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    metrics = every()
    kinds = {metric.name: metric._kind if isinstance(metric, Counter) else "histogram" for metric in metrics}
    assert documented == {metric.name: (kinds[metric.name], metric._labels) for metric in metrics}


def every():
    """Return the metrics of a router with all its features."""

    async def made():
        router = Router(settings.parse(["--table=none.json"], {}))
        await router.stop()
        return router.state.metrics.all

    return asyncio.run(made())


def test_the_page_in_openmetrics_says_the_same_and_has_exemplars():
    metrics = Metrics()
    metrics.requests.add("g", "200")
    for value, trace in ((0.3, 7), (0.4, 8), (30.0, 9)):
        metrics.first_byte.observe("g", value=value)
        metrics.first_byte.series(("g",)).mark(Exemplar(trace, value, 1700000000.25))
    families = list(openmetrics.text_string_to_metric_families(metrics.text(OPENMETRICS)))
    samples = [sample for family in families for sample in family.samples]
    assert {(each.name, frozenset(each.labels.items())): each.value for each in samples} == {
        (f"promptgroup_router_{name}", frozenset(labels)): value for (name, labels), value in parsed(metrics).items()
    }
    marked = {each.labels["le"]: each.exemplar for each in samples if each.exemplar is not None}
    assert {bound: (found.labels["trace_id"], found.value) for bound, found in marked.items()} == {
        "0.5": (f"{8:032x}", 0.4),  # the last of a bucket
        "30.0": (f"{9:032x}", 30.0),
    }
    assert {float(found.timestamp) for found in marked.values()} == {1700000000.25}
    assert "trace_id" not in metrics.text()


def test_a_series_of_which_nothing_was_observed_is_not_told():
    metrics = Metrics()
    metrics.first_byte.series(("gone",)).mark(Exemplar(7, 0.3, 1.0))
    assert metrics.first_byte.values == {}


def test_series_stand_in_the_order_in_which_something_was_added():
    metrics = Metrics()
    waiting = metrics.requests.series(("a", "200"))
    histogram = metrics.first_byte.series(("a",))
    metrics.requests.add("b", "200")
    metrics.first_byte.observe("b", value=1.0)
    waiting.add()
    histogram.record(1.0)
    assert list(metrics.requests.values) == [("b", "200"), ("a", "200")]
    shown = re.findall(
        r'^promptgroup_router_(?:requests_total|\w+byte_seconds_count){group="(.)', metrics.text(), re.MULTILINE
    )
    assert shown == ["b", "a", "b", "a"]


def test_gauges_stand_as_they_were_given():
    metrics = Metrics()
    metrics.conflicts.replace({("b",): 1, ("a",): 2})
    metrics.conflicts.add("c")
    assert list(metrics.conflicts.values) == [("b",), ("a",), ("c",)]


def test_every_counter_is_named_as_openmetrics_wants_it():
    assert all(each.name.endswith("_total") == (kind(each) == "counter") for each in every())


def kind(metric):
    return metric._kind if isinstance(metric, Counter) else "histogram"


def test_no_gauge_is_told_before_somebody_measured_it():
    page = Metrics().text()
    told = {line.split(" ")[0] for line in page.splitlines() if not line.startswith("#")}
    gauges = {line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE") and line.endswith("gauge")}
    assert {each for each in told if each.partition("{")[0] in gauges} == {
        *(each for each in told if each.startswith("promptgroup_router_build_info")),
    }
