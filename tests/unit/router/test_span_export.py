"""Spans of a router on real sockets, at a collector that takes them, and at those that do not."""

import asyncio
import subprocess
import sys
import threading

import pytest

from promptgroup_contract import otel
from promptgroup_router import span_export
from support.answered import exact, keeping
from support.collector import collecting, told, wait_for_threads
from support.fakeengine import Call, engines, until
from support.tables import SYSTEM
from support.wire import ask, chat, connected, post, routing, run, table_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CLIENT = f"traceparent: 00-{TRACE}-{SPAN}-01"
KEY, SECRET = "sk-of-a-caller", "tell nobody"
WHOLE = (
    b'{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"Hello"}}],'
    b'"usage":{"prompt_tokens":40,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":32}}}'
)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in (*otel.ENDPOINTS, *otel.PROTOCOLS, "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    yield
    wait_for_threads()


async def answer(call: Call) -> None:
    call.answer(WHOLE)


async def hang(call: Call) -> None:
    await call.client_gone()


async def refuse(call: Call) -> None:
    call.answer(b"{}", 400)


async def fail(call: Call) -> None:
    call.answer(b"{}", 503)


async def reset(call: Call) -> None:
    call.reset()


@pytest.mark.parametrize(
    ("variables", "problem"),
    [({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "no spans are exported"), ({}, "install promptgroup")],
)
def test_what_cannot_be_is_said_and_nothing_fails(monkeypatch, caplog, variables, problem):
    def missing(_service):
        raise ImportError("no module named opentelemetry")

    monkeypatch.setattr(span_export, "_sdk", missing)
    assert span_export.span_export({"OTEL_TRACES_EXPORTER": "otlp"} | variables, "router") is None
    assert problem in caplog.text


def test_a_sampler_that_is_none_is_named_and_a_hundredth_is_sampled(monkeypatch, caplog):
    monkeypatch.setattr(span_export, "_sdk", lambda _service: (None, None))
    found = span_export.span_export({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "some"}, "router")
    assert 0 < sum(found.tracer.begin(b"", 0.0)[1] is not None for _ in range(3000)) < 100
    assert "one of a hundred requests is sampled" in caplog.text


def test_a_request_is_a_child_of_the_clients_span_and_the_engines_is_its_child(tmp_path, monkeypatch):
    async def check():
        async with collecting(monkeypatch) as collector, engines(2, reset, answer) as found:
            for engine in found:
                engine.behave = reset
            async with routing(tmp_path, table_of(*(each.address for each in found))) as router:
                found[1].behave = answer
                await ask(router.port, post(chat(SECRET), CLIENT, f"Authorization: Bearer {KEY}"))
                [engine_got] = found[1].requests
                await until(lambda: collector.spans, "the span")
            [span] = collector.spans
            assert (span.trace_id.hex(), span.parent_span_id.hex(), span.kind) == (TRACE, SPAN, span.SPAN_KIND_SERVER)
            assert engine_got.head.fields[b"traceparent"].decode() == f"00-{TRACE}-{span.span_id.hex()}-01"
            said = told(span.attributes)
            assert span.name == "chat llama"
            assert (said["promptgroup.group"], said["http.response.status_code"]) == ("chat/support", 200)
            assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.cache_read.input_tokens"]) == (40, 32)
            assert said["promptgroup.slot"].endswith("/1")
            assert span.end_time_unix_nano > span.start_time_unix_nano > 1.7e18
            events = [each.name for each in span.events]
            assert events[-2:] == ["sent", "first byte"]
            assert ("failed" in events) == bool(found[0].requests)
            assert collector.resource["service.name"] == "promptgroup-router"
            sent = str(collector.exports)
            assert not any(text in sent for text in (KEY, SECRET, SYSTEM))

    run(check())


def test_a_request_without_a_route_has_a_span_too(tmp_path, monkeypatch):
    async def check():
        async with collecting(monkeypatch) as collector, routing(tmp_path, table_of()) as router:
            assert (await ask(router.port, post(b"no JSON", CLIENT))).status == 400
            await until(lambda: collector.spans, "the span")
            [span] = collector.spans
            assert span.parent_span_id.hex() == SPAN
            assert told(span.attributes)["http.response.status_code"] == 400

    run(check())


def test_off_is_off(tmp_path, monkeypatch):
    before = set(threading.enumerate())

    async def check():
        async with engines(1, answer) as [engine], routing(tmp_path, table_of(engine.address)) as router:
            await ask(router.port, post(chat(), CLIENT))
            assert router.state.features.tracer is None
            assert engine.requests[0].head.fields[b"traceparent"].decode() == CLIENT.partition(": ")[2]
            assert not {each.name for each in set(threading.enumerate()) - before if "Otel" in each.name}

    run(check())


@pytest.mark.heavy
def test_nobody_who_wants_no_spans_loads_the_sdk():
    programs = "promptgroup_router.server, promptgroup_picker.server, promptgroup_operator.telemetry.pass_spans"
    found = f"import sys, {programs}; print([each for each in sys.modules if 'opentelemetry' in each])"
    assert subprocess.run([sys.executable, "-c", found], check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.heavy
@pytest.mark.parametrize("behave", [hang, refuse, fail, reset])
def test_a_collector_that_takes_nothing_fails_no_request_and_takes_no_memory(tmp_path, monkeypatch, behave):
    small = {"OTEL_BSP_MAX_QUEUE_SIZE": "16", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8"}
    monkeypatch.setattr(span_export, "CLOSE_SECONDS", 0.2)

    async def check():
        async with (
            collecting(monkeypatch, behave, **small) as collector,
            engines(1, answer) as [engine],
            routing(tmp_path, table_of(engine.address)) as router,
        ):
            async with connected(router.port) as client:
                for _ in range(100):
                    assert (await client.ask(post(chat()))).status == 200
            await until(lambda: collector.server.requests, "a try")
            async with connected(router.port) as client:
                for _ in range(100):
                    assert (await client.ask(post(chat()))).status == 200
            processor = router.core._spans._shut_down.__self__
            assert len(processor._batch_processor._queue) <= 16

    run(check())


def test_a_collector_that_is_away_fails_no_request_and_the_process_ends_in_time(tmp_path, monkeypatch):
    async def check():
        async with collecting(monkeypatch):
            pass  # nobody listens there any more
        async with engines(1, answer) as [engine], routing(tmp_path, table_of(engine.address)) as router:
            assert (await ask(router.port, post(chat()))).status == 200
            # `routing` has stopped the router within the test's time

    monkeypatch.setattr(span_export, "CLOSE_SECONDS", 0.2)
    run(check())


def test_the_last_spans_are_sent_when_the_process_ends(tmp_path, monkeypatch):
    async def check():
        async with (
            collecting(monkeypatch, OTEL_BSP_SCHEDULE_DELAY="60000") as collector,
            engines(1, answer) as [engine],
        ):
            async with routing(tmp_path, table_of(engine.address)) as router:
                await asyncio.gather(*(ask(router.port, post(chat())) for _ in range(3)))
                assert collector.spans == []
            assert len(collector.spans) == 3

    run(check())


def test_an_answer_that_is_kept_has_a_span_of_its_own(tmp_path, monkeypatch):
    async def check():
        async with collecting(monkeypatch) as collector, engines(1, answer) as [engine]:
            async with routing(tmp_path, keeping(engine.address)) as router:
                for _ in range(2):
                    assert (await ask(router.port, post(exact()))).status == 200
                await until(lambda: len(collector.spans) == 2, "two spans")
            [computed, hit] = (told(each.attributes) for each in collector.spans)
            assert len(engine.requests) == 1
            assert "promptgroup.response_cache" not in computed
            assert (hit["promptgroup.response_cache"], hit["promptgroup.group"]) == ("hit", "chat/support")

    run(check())
