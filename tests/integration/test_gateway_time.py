"""The time that a gateway gives the picker: requests that wait for room and large bodies are decided by the picker."""

import json

import pytest

from support.envoy import needs_envoy
from support.gateway import behind
from support.wire import ask, chat, post, run

pytestmark = [pytest.mark.integration, needs_envoy]


def test_a_request_that_waits_for_room_is_not_sent_past_the_picker(tmp_path, monkeypatch):
    async def check():
        async with behind(tmp_path, count=1) as (envoy, picker, found):
            monkeypatch.setattr(type(picker.core.state.balancer), "pick", lambda *_, **__: None)
            for port in (envoy.strict, envoy.lenient, envoy.held):
                answer = await ask(port, post(chat()))
                assert (answer.status, answer.json["error"]["code"]) == (429, "overloaded")
            assert found[0].requests == []

    run(check())


def test_a_head_alone_that_waits_for_room_is_not_sent_past_the_picker(tmp_path, monkeypatch):
    async def respond(call) -> None:
        call.answer(json.dumps({"id": call.json["request_id"], "object": "response"}).encode())

    async def check():
        async with behind(tmp_path, respond, 1) as (envoy, picker, found):
            asked = {"model": "llama", "input": "hi", "background": True}
            first = await ask(envoy.strict, post(asked, path="/v1/responses"))
            cancel = f"POST /v1/responses/{first.json['id']}/cancel HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
            balancer = picker.core.state.balancer
            monkeypatch.setattr(type(balancer), "pick", lambda *_, **__: None)
            for port in (envoy.strict, envoy.lenient, envoy.held):
                answer = await ask(port, cancel.encode())
                assert answer.status == 429
            assert len(found[0].requests) == 1

    run(check())


def test_a_large_body_that_is_held_is_decided_by_the_picker(tmp_path):
    async def check():
        async with behind(tmp_path, count=1) as (envoy, _, _):
            for port in (envoy.strict, envoy.lenient, envoy.held):
                answer = await ask(port, post(chat("x" * 3_000_000)))
                assert answer.status == 200
                assert answer.served_by

    run(check())
