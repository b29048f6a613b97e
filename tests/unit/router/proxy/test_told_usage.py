"""Requests that ask what they used, on real sockets: every framing, both versions, and answers that are not whole."""

import asyncio
from dataclasses import replace

import orjson
import pytest

from promptgroup_contract.caller_rules import CachedTokens, CallerRules
from promptgroup_contract.table import ResponseCaching
from promptgroup_router.routing.points import MOST_HELD
from support.fakeengine import Call, engines
from support.tables import group, revision, slot, table
from support.wire import ask, chat, connected, post, routing, run, table_of

USAGE = {"prompt_tokens": 3000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2900}}
ANSWER = orjson.dumps({"choices": [{"message": {"content": "yes"}}], "usage": USAGE})
ASKS = "X-PromptGroup-Usage: true"
HEADER = b"x-promptgroup-usage"
TOLD = b"prompt=3000, cached=2900, answer=5"
COMMENT = b": x-promptgroup-usage: " + TOLD


async def whole(call: Call) -> None:
    call.answer(ANSWER, 200, "X-PromptGroup-Usage: prompt=1")  # an engine's own is not relayed


async def chunked(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    for at in range(0, len(ANSWER), 7):
        call.chunk(ANSWER[at : at + 7])
    call.send(b"0\r\n\r\n")


async def until_close(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + ANSWER)
    await call.writer.drain()
    call.writer.close()


EVENTS = (
    b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n',
    b"data: " + orjson.dumps({"choices": [], "usage": USAGE}) + b"\n\n",
    b"data: [DONE]\n\n",
)


async def streamed(call: Call) -> None:
    call.begin_stream()
    for event in EVENTS:
        call.chunk(event)
        await asyncio.sleep(0)
    call.send(b"0\r\n\r\n")


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("behave", [whole, chunked, until_close])
def test_a_whole_answer_has_its_usage_in_its_head(tmp_path, behave, version):
    async def test():
        async with engines(1, behave) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, post(chat(), ASKS, version=version))
            assert (answer.status, answer.headers[HEADER], answer.body) == (200, TOLD, ANSWER)
            assert HEADER not in engine.requests[0].head.fields
            assert HEADER not in (await ask(router.port, post(chat(), version=version))).headers

    run(test())


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_stream_ends_with_its_usage_in_a_comment(tmp_path, version):
    async def test():
        async with (
            engines(1, streamed) as (engine,),
            routing(tmp_path, table_of(engine.address)) as router,
            connected(router.port) as client,
        ):
            for _ in range(2 if version == "1.1" else 1):  # the connection is kept
                body = chat(stream=True, stream_options={"include_usage": True})
                answer = await client.ask(post(body, ASKS, version=version))
                assert answer.body == b"".join(EVENTS) + b"\n" + COMMENT + b"\n\n"
                assert HEADER not in answer.headers

    run(test())


@pytest.mark.parametrize("behave", [whole, streamed])
def test_what_the_group_hides_is_not_told_here_either(tmp_path, behave):
    async def test():
        rules = CallerRules(cached_tokens=CachedTokens.HIDDEN)
        async with engines(1, behave) as (engine,):
            found = group("support", revision(slots=(slot(0, address=engine.address),)), callers=rules)
            async with routing(tmp_path, table(found)) as router:
                answer = await ask(router.port, post(chat(stream=behave is streamed), ASKS))
                told = answer.headers.get(HEADER) or answer.body.rpartition(b"usage: ")[2].strip()
                assert told == b"prompt=3000, answer=5"
                assert b"cached" not in answer.body

    run(test())


def test_a_group_that_keeps_answers_tells_nothing_in_their_heads(tmp_path):
    async def test():
        async with engines(1, whole) as (engine,):
            found = group("support", revision(slots=(slot(0, address=engine.address),)))
            kept = replace(found, responses=ResponseCaching(ttl=60, max_bytes=2**20))
            async with routing(tmp_path, table(kept)) as router:
                for _ in range(2):
                    assert HEADER not in (await ask(router.port, post(chat(temperature=0), ASKS))).headers

    run(test())


def test_an_answer_that_is_too_long_to_be_held_is_relayed_without(tmp_path):
    long = orjson.dumps({"text": "x" * MOST_HELD, "usage": USAGE})

    async def behave(call: Call) -> None:
        call.answer(long)

    async def test():
        async with engines(1, behave) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, post(chat(), ASKS))
            assert (answer.status, answer.body == long) == (200, True)
            assert HEADER not in answer.headers

    run(test())


def test_an_engine_that_dies_while_its_answer_is_held_is_replaced_by_another(tmp_path):
    async def dies(call: Call) -> None:
        call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\nhalf")
        await call.writer.drain()
        await asyncio.sleep(0.05)
        call.reset()

    async def test():
        async with (
            engines(2, dies, dies) as (first, second),
            routing(tmp_path, table_of(first.address, second.address)) as router,
        ):
            calls = []

            async def once(call: Call) -> None:
                calls.append(1)
                await (dies(call) if len(calls) == 1 else whole(call))

            first.behave = second.behave = once
            answer = await ask(router.port, post(chat(), ASKS))
            assert (answer.status, answer.headers[HEADER], answer.body) == (200, TOLD, ANSWER)
            assert len(calls) == 2

    run(test())


def test_an_error_and_an_empty_answer_stay_what_they_are(tmp_path):
    async def refuses(call: Call) -> None:
        call.answer(b'{"error":{}}', 400)

    async def empty(call: Call) -> None:
        call.answer(b"")

    async def test():
        async with engines(1, refuses) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, post(chat(), ASKS))
            assert (answer.status, answer.body, HEADER in answer.headers) == (400, b'{"error":{}}', False)
            engine.behave = empty
            answer = await ask(router.port, post(chat(), ASKS))
            assert (answer.status, answer.body, HEADER in answer.headers) == (200, b"", False)

    run(test())
