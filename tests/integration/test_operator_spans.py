"""An operator's passes as spans, at a collector in a process of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.collector import resource, spans, told
from support.collectorprocess import CollectorProcess, collector_process
from support.groups import PROMPTS, group
from support.operators import operator_process

pytestmark = pytest.mark.integration

STEPS = {"observe", "decide", "act"}


def passes(collector: CollectorProcess, name: str) -> list[tuple[Span, dict[str, Span]]]:
    """The passes over a group of which all steps were sent, with these steps."""
    every = spans(collector.exports)
    whole = [each for each in every if each.name == "reconcile" and told(each.attributes)["promptgroup.group"] == name]
    found = [(each, {step.name: step for step in every if step.parent_span_id == each.span_id}) for each in whole]
    return [(each, steps) for each, steps in found if steps.keys() >= STEPS]


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CollectorProcess]:
    """A collector that operators of the test are told of."""
    with collector_process(tmp_path / "collector") as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{found.port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        yield found


@pytest.mark.usefixtures("crds", "no_operator")
def test_passes_over_a_group_reach_the_collector_and_go_on_without_it(
    cluster: LocalCluster, kube: Kubectl, collector: CollectorProcess
) -> None:
    name = f"{kube.namespace}/traced"
    with operator_process(cluster, kube.namespace) as (process, _):
        kube.apply(group("traced", replicas=1))
        kube.wait_warm("traced", "1/1")
        found = wait_for(lambda: passes(collector, name) or None, "a pass with its steps")
        collector.stop()
        kube.scale("promptgroup", "traced", 2)
        kube.wait_warm("traced", "2/2")  # nobody takes the spans of these passes
        process.terminate()
        assert process.wait(timeout=30) == 0
    assert resource(collector.exports)["service.name"] == "promptgroup-operator"
    for whole, steps in found:
        check(whole, steps)
    assert PROMPTS["a"][:40].encode() not in b"".join(collector.bodies)


def check(whole: Span, steps: dict[str, Span]) -> None:
    """The steps of a pass come one after the other, within it and its trace."""
    order: list[Any] = [steps[each] for each in ("observe", "decide", "act")]
    assert {each.trace_id for each in order} == {whole.trace_id}
    times = [whole.start_time_unix_nano]
    for each in order:
        times += [each.start_time_unix_nano, each.end_time_unix_nano]
    times.append(whole.end_time_unix_nano)
    assert times == sorted(times)
