import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from promptgroup_router.base.metrics import LATENCY_BUCKETS, Counter, LatencyHistogram, Metrics


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

    assert [bucket(bound) for bound in ("0.005", "0.25", "0.5", "600", "+Inf")] == [2, 2, 3, 3, 4]
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
    kinds = {metric.name: metric._kind if isinstance(metric, Counter) else "histogram" for metric in every()}
    assert documented == {metric.name: (kinds[metric.name], metric._labels) for metric in every()}


def every():
    return Metrics().all
