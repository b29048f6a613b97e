"""Requests that a real Envoy answers by itself, before the picker is shown them or while they wait."""

import asyncio

import pytest

from support.envoy import needs_envoy
from support.fakeengine import until
from support.gateway import at_rest, behind, http_filter
from support.wire import ask, chat, connected, post, run

pytestmark = [pytest.mark.integration, needs_envoy]
DENIED = [{"header": {"name": "x-deny", "present_match": True}}]


def filters(name, manager):
    """Put filters in front that answer by themselves: an access rule, a browser's question, a limit of the rate."""
    rule = {"permissions": DENIED, "principals": [{"any": True}]}
    rules = {"rules": {"action": "DENY", "policies": {"denied": rule}}}
    limit = {
        "stat_prefix": "limit",
        "token_bucket": {"max_tokens": 1, "fill_interval": "3600s"},
        "filter_enabled": {"default_value": {"numerator": 100}},
        "filter_enforced": {"default_value": {"numerator": 100}},
    }
    if name == "unseen":  # one request is let through
        manager["http_filters"].insert(0, http_filter("local_ratelimit", limit, "local_ratelimit.v3.LocalRateLimit"))
    manager["http_filters"].insert(0, http_filter("rbac", rules, "rbac.v3.RBAC"))
    manager["http_filters"].insert(0, http_filter("cors", {}, "cors.v3.Cors"))
    policy = "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy"
    (host,) = manager["route_config"]["virtual_hosts"]
    host["typed_per_filter_config"] = {
        "envoy.filters.http.cors": {"@type": policy, "allow_origin_string_match": [{"prefix": "http"}]}
    }


def shown(name, manager):
    """Show answers at each port: with `unseen`, no stream would begin for what a filter answers."""
    filters(name, manager)
    if name == "unseen":
        (mode,) = [each["typed_config"] for each in manager["http_filters"] if each["name"].endswith("ext_proc")]
        mode["processing_mode"] = {**mode["processing_mode"], "response_header_mode": "SEND"}
        mode["processing_mode"]["response_body_mode"] = "BUFFERED"


def test_an_answer_of_a_filter_in_front_reaches_the_client(tmp_path):
    preflight = b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: a\r\nOrigin: http://x\r\n"
    preflight += b"Access-Control-Request-Method: POST\r\nContent-Length: 0\r\n\r\n"

    async def check():
        async with behind(tmp_path, manage=shown) as (envoy, picker, _):
            for port in (envoy.strict, envoy.lenient, envoy.held, envoy.unseen):
                assert (await ask(port, post(chat()))).status == 200
                answer = await ask(port, post(chat(), "X-Deny: 1"))
                assert (answer.status, answer.body) == (403, b"RBAC: access denied")
                assert (await ask(port, preflight)).status == 200
                async with connected(port) as client:
                    client.send(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
                    assert b" 404 " in await asyncio.wait_for(client.reader.readline(), 5)
            answer = await ask(envoy.unseen, post(chat()))
            assert (answer.status, answer.body) == (429, b"local_rate_limited")
            await at_rest(picker)

    run(check())


def test_a_request_that_the_gateway_gives_up_leaves_the_queue_and_harms_no_other(tmp_path, monkeypatch):
    """Its stream ends by the gateway's limit while the picker waits for room."""
    go_on = asyncio.Event()

    async def slow(call):
        call.begin_stream()
        call.chunk(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
        await go_on.wait()
        call.chunk(b"data: [DONE]\n\n")
        call.send(b"0\r\n\r\n")

    def hurried(name, manager):
        if name in ("strict", "held"):
            manager["common_http_protocol_options"] = {"max_stream_duration": "0.5s"}

    async def check():
        async with (
            behind(tmp_path, slow, 1, manage=hurried) as (envoy, picker, found),
            asyncio.TaskGroup() as tasks,
        ):
            other = tasks.create_task(ask(envoy.lenient, post(chat(stream=True))))
            await until(lambda: found[0].requests, "the other request")
            before, state = set(picker._gateways.connections), picker.core.state
            with monkeypatch.context() as full:
                full.setattr(type(state.balancer), "pick", lambda *_, **__: None)
                for port in (envoy.strict, envoy.held):
                    assert (await ask(port, post(chat("waits")))).status == 504
                await until(lambda: not state.admission_queue, "the queue to be left")
            state.admit_waiting(picker.core.clock())
            go_on.set()
            assert b"[DONE]" in (await other).body
            assert set(picker._gateways.connections) == before
            assert len(found[0].requests) == 1
            await at_rest(picker)

    run(check())
