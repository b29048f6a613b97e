"""Every form that HTTP has for the end of a request, through a real Envoy, in each way in which it shows bodies."""

import json

import pytest

from support.envoy import needs_envoy
from support.gateway import at_rest, behind
from support.wire import ask, chat, run

pytestmark = [pytest.mark.integration, needs_envoy]
CHAT = json.dumps(chat()).encode()
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def request(path: str, fields: bytes, body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: a\r\n%b\r\n%b" % (path.encode(), fields, body)


def trailing(mode: str):
    """Let trailers through, and show them of requests that are held or not."""

    def manage(name, manager):
        manager["http_protocol_options"] = {"enable_trailers": True}
        for each in manager["http_filters"] if name == "held" else ():
            if each["name"].endswith("ext_proc"):
                shown = each["typed_config"]
                shown["processing_mode"] = {**shown["processing_mode"], "request_trailer_mode": mode}

    return manage


async def respond(call) -> None:
    """Answers a background response, and what is asked of it."""
    own = call.json.get("request_id", "resp_pg") if call.request.body else "resp_pg"
    call.answer(json.dumps({"id": own, "object": "response"}).encode())


async def asked_for(port: int) -> str:
    """Return the path that cancels a new background response."""
    asked = json.dumps({"model": "llama", "input": "hi", "background": True}).encode()
    answer = await ask(port, request("/v1/responses", b"Content-Length: %d\r\n" % len(asked), asked))
    return f"/v1/responses/{answer.json['id']}/cancel"


@pytest.mark.parametrize(
    ("fields", "body"),
    [(b"Content-Length: 0\r\n", b""), (b"Content-Length: 2\r\n", b"{}"), (CHUNKED, b"0\r\n\r\n")],
    ids=["none", "a short one", "chunked, without bytes"],
)
def test_a_body_may_have_no_bytes(tmp_path, fields, body):
    async def check():
        async with behind(tmp_path, respond) as (envoy, picker, found):
            for port in (envoy.strict, envoy.lenient, envoy.held):
                for _ in range(3):  # a choice that was lost would be right half of the time
                    answer = await ask(port, request(await asked_for(port), fields, body))
                    assert answer.status == 200
                    assert answer.served_by
            assert all(len(each.requests) % 2 == 0 for each in found)  # where the response is
            await at_rest(picker)

    run(check())


@pytest.mark.parametrize("mode", ["SKIP", "SEND"])
def test_trailers_may_follow_a_body(tmp_path, mode):
    async def check():
        async with behind(tmp_path, manage=trailing(mode)) as (envoy, picker, found):
            body = b"%x\r\n%b\r\n0\r\nx-check: 1\r\n\r\n" % (len(CHAT), CHAT)
            # not the lenient port: with retries, Envoy 1.40 sends a body twice that has trailers in full duplex
            for port in (envoy.strict, envoy.held):
                answer = await ask(port, request("/v1/chat/completions", CHUNKED + b"Trailer: x-check\r\n", body))
                assert answer.status == 200
                assert answer.served_by
            assert [each.body for one in found for each in one.requests] == [CHAT] * 2
            await at_rest(picker)

    run(check())


def test_trailers_may_follow_a_body_without_bytes(tmp_path):
    """A gateway that holds bodies has none there that the choice could go with."""

    async def check():
        async with behind(tmp_path, respond, manage=trailing("SEND")) as (envoy, picker, _):
            for port, status in ((envoy.strict, 200), (envoy.lenient, 200), (envoy.held, 400)):
                fields, body = CHUNKED + b"Trailer: x-check\r\n", b"0\r\nx-check: 1\r\n\r\n"
                answer = await ask(port, request(await asked_for(port), fields, body))
                assert answer.status == status
                assert (b"x-promptgroup-served-by" in answer.headers) is (status == 200)
            await at_rest(picker)

    run(check())
