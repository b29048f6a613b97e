import asyncio
import os
import sys
import threading

import pytest

from promptgroup_operator.telemetry import pass_spans
from promptgroup_operator.telemetry.pass_spans import PassSpans
from support.collector import collecting, told, wait_for_threads
from support.fakeengine import Call, until
from support.wire import run


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    wait_for_threads()


def one_pass(spans: PassSpans, *, failed: str = "") -> None:
    with spans.over("chat", "support"):
        for step in ("observe", "decide", "act"):
            with spans.step(step):
                pass
        if failed:
            spans.failed(failed)


def test_a_pass_is_a_span_with_its_steps(monkeypatch):
    async def check():
        async with collecting(monkeypatch) as collector:
            spans = PassSpans(os.environ)
            await asyncio.to_thread(one_pass, spans)
            await until(lambda: len(collector.spans) == 4, "four spans")
            await asyncio.to_thread(spans.close)
        found = {each.name: each for each in collector.spans}
        whole = found.pop("reconcile")
        assert told(whole.attributes) == {"k8s.namespace.name": "chat", "promptgroup.group": "chat/support"}
        assert {name: each.parent_span_id for name, each in found.items()} == dict.fromkeys(
            ("observe", "decide", "act"), whole.span_id
        )
        assert collector.resource["service.name"] == "promptgroup-operator"

    run(check())


def test_a_pass_that_fails_says_of_what_kind_the_fault_is(monkeypatch):
    async def check():
        async with collecting(monkeypatch) as collector:
            spans = PassSpans(os.environ)
            await asyncio.to_thread(one_pass, spans, failed="cluster")
            await asyncio.to_thread(spans.close)
        whole = next(each for each in collector.spans if each.name == "reconcile")
        assert told(whole.attributes)["error.type"] == "cluster"
        assert (whole.status.code, whole.status.message) == (whole.status.STATUS_CODE_ERROR, "")

    run(check())


def test_off_is_off():
    before = set(threading.enumerate())
    spans = PassSpans({})
    one_pass(spans, failed="fault")
    spans.close()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    ("variables", "problem"),
    [({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "expected 'http/protobuf'"), ({}, "install promptgroup")],
)
def test_what_cannot_be_is_said_and_nothing_fails(monkeypatch, caplog, variables, problem):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    one_pass(PassSpans({"OTEL_TRACES_EXPORTER": "otlp"} | variables))
    assert problem in caplog.text


@pytest.mark.heavy
def test_a_collector_that_hangs_does_not_keep_the_process(monkeypatch):
    monkeypatch.setattr(pass_spans, "CLOSE_SECONDS", 0.1)

    async def hang(call: Call) -> None:
        await call.client_gone()

    async def check():
        async with collecting(monkeypatch, hang):
            spans = PassSpans(os.environ)
            await asyncio.to_thread(one_pass, spans)
            await asyncio.to_thread(spans.close)  # within the test's own limit

    run(check())
