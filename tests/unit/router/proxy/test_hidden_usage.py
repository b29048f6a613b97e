"""Answers whose cached tokens are not told, on real sockets: every framing, and the router's own counters."""

import asyncio

import orjson
import pytest

from promptgroup_contract.caller_rules import CachedTokens, CallerRules
from promptgroup_router.callers import reported_usage
from support.fakeengine import Call, engines
from support.tables import group, revision, slot, table
from support.wire import ask, chat, connected, post, routing, run

USAGE = {"prompt_tokens": 3000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2900}}
ANSWER = orjson.dumps({"choices": [], "usage": USAGE})


def table_of(address: str, how: CachedTokens = CachedTokens.HIDDEN):
    rules = CallerRules(cached_tokens=how)
    return table(group("support", revision(slots=(slot(0, address=address),)), callers=rules))


async def whole(call: Call) -> None:
    call.answer(ANSWER)


async def chunked(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    call.chunk(ANSWER[:70])
    call.chunk(ANSWER[70:])
    call.send(b"0\r\n\r\n")


async def streamed(call: Call) -> None:
    call.begin_stream()
    call.chunk(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
    await asyncio.sleep(0)
    event = b"data: " + ANSWER + b"\n\n"
    call.chunk(event[:80])
    call.chunk(event[80:] + b"data: [DONE]\n\n")
    call.send(b"0\r\n\r\n")


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("behave", [whole, chunked, streamed])
@pytest.mark.parametrize(("how", "left"), [(CachedTokens.HIDDEN, {}), (CachedTokens.ROUNDED, {"cached_tokens": 2048})])
def test_clients_get_what_the_group_tells_and_counters_the_engines_number(tmp_path, behave, version, how, left):
    async def check():
        async with (
            engines(1, behave) as (engine,),
            routing(tmp_path, table_of(engine.address, how)) as router,
            connected(router.port) as client,
        ):
            asked = chat(stream=True, stream_options={"include_usage": True}) if behave is streamed else chat()
            for _ in range(2 if version == "1.1" else 1):  # the connection is kept
                answer = await client.ask(post(asked, "Accept-Encoding: gzip", version=version))
                assert answer.status == 200
                lines = [line for line in answer.body.splitlines() if b"usage" in line]
                assert orjson.loads(lines[0].removeprefix(b"data: "))["usage"] == USAGE | {
                    "prompt_tokens_details": left
                }
            assert (b"[DONE]" in answer.body) is (behave is streamed)
            if version == "1.0":
                assert await client.closed() == b""
            text = router.state.exposition(0.0, 0)
            assert f'cached_tokens_total{{group="chat/support"}} {2900 * len(engine.requests)}' in text
            assert b"accept-encoding" not in engine.requests[0].head.fields

    run(check())


def test_requests_that_no_group_declares_are_told_no_more(tmp_path):
    async def check():
        async with engines(1, whole) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, post(chat(system="")))
            assert answer.json["usage"]["prompt_tokens_details"] == {}

    run(check())


def test_errors_pass_as_they_are(tmp_path):
    async def refuse(call: Call) -> None:
        call.answer(b'{"error":"cached"}', 400)

    async def check():
        async with engines(1, refuse) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, post(chat()))
            assert (answer.status, answer.body) == (400, b'{"error":"cached"}')
            assert answer.headers[b"content-length"] == b"18"

    run(check())


@pytest.mark.interpreted
def test_an_answer_too_long_to_rewrite_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(reported_usage, "MOST_BYTES", 50)

    async def check():
        async with engines(1, whole) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            with pytest.raises((EOFError, ConnectionError)):
                await ask(router.port, post(chat()))

    run(check())


@pytest.mark.parametrize("chunks", [False, True])
def test_an_answer_that_cannot_be_read_is_cut(tmp_path, chunks):
    broken = ANSWER[:-1]

    async def behave(call: Call) -> None:
        if chunks:
            call.begin_stream()
            call.chunk(b"data: " + broken + b"\n\n")
            call.send(b"0\r\n\r\n")
        else:
            call.answer(broken)

    async def check():
        async with engines(1, behave) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            with pytest.raises((EOFError, ConnectionError)) as caught:
                await ask(router.port, post(chat(stream=chunks)))
            assert b"2900" not in str(caught.value).encode()
            assert router.state.balancer.placed.loads == {}

    run(check())
