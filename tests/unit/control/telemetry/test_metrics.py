from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from promptgroup_operator.telemetry.metrics import OperatorMetrics


def test_the_process_and_its_failures_are_there_before_anything_happens():
    instruments = OperatorMetrics()
    instruments.leader.set_function(lambda: True)
    found = {
        (each.name, *each.labels.values()): each.value
        for family in text_string_to_metric_families(generate_latest(instruments.registry).decode())
        for each in family.samples
    }
    assert found["process_resident_memory_bytes",] > 0
    assert found["promptgroup_operator_leader",] == 1
    assert found["promptgroup_operator_pass_failures_total", "cluster"] == 0
    assert found["promptgroup_operator_pass_duration_seconds_count",] == 0
    assert not [name for name, *_ in found if name.endswith("_created")]


def test_two_operators_in_one_process_do_not_share_counters():
    one, other = OperatorMetrics(), OperatorMetrics()
    one.warmups.labels("PrefixCached").inc()
    assert "PrefixCached" not in generate_latest(other.registry).decode()
