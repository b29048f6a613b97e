"""Answers that an engine breaks off under a status of 200, through a router on real sockets."""

import asyncio
import json
import time

import pytest

from promptgroup_contract.table import TimeLimits
from support.fakeengine import engines
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import ask, chat, connected, post, routing, run, table_of

DONE = b"data: [DONE]\n\n"


def event(document, name=""):
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(document).encode() + b"\n\n"


def choice(text="a", reason=None):
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]})


def delta(reason):
    return event({"type": "message_delta", "delta": {"stop_reason": reason}}, "message_delta")


TEXT = event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, "content_block_delta")
WORD = event({"type": "response.output_text.delta", "delta": "a", "sequence_number": 7}, "response.output_text.delta")
MESSAGE = {"model": "llama", "max_tokens": 9, "system": SYSTEM, "messages": [{"role": "user", "content": "Hi"}]}
RESPONSE = {"model": "llama", "instructions": SYSTEM, "input": "Hi"}


APIS = {
    "chat": (post(chat(stream=True)), choice(), choice("", "abort") + DONE, lambda told: told["error"]["code"]),
    "messages": (
        post(MESSAGE | {"stream": True}, path="/v1/messages"),
        TEXT,
        delta(None) + event({"type": "message_stop"}, "message_stop"),
        lambda told: (told["type"], told["error"]["type"]),
    ),
    "responses": (
        post(RESPONSE | {"stream": True}, path="/v1/responses"),
        WORD,
        event({"type": "response.completed", "response": {"status": "cancelled"}}, "response.completed"),
        lambda told: (told["type"], told["code"], told["sequence_number"]),
    ),
}
TOLD = {"chat": "answer_cut", "messages": ("error", "api_error"), "responses": ("error", "answer_cut", 8)}


async def broken(router, data):
    """What a client gets of a stream until its connection ends, chunks decoded."""
    async with connected(router.port) as client:
        client.send(data)
        return await client.closed()


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("parts", ["together", "apart", "within events"])
def test_a_stream_that_breaks_off_ends_with_an_error_of_its_api_and_never_as_if_it_were_whole(tmp_path, api, parts):
    data, begun, end, told_by = APIS[api]

    async def behave(call):
        call.begin_stream()
        call.chunk(begun)
        await call.writer.drain()
        await asyncio.sleep(0.05)  # the client has the beginning
        pieces = {"together": [end], "apart": end.splitlines(keepends=True), "within events": [end[:20], end[20:]]}
        for piece in pieces[parts]:
            call.chunk(piece)
            await call.writer.drain()
            await asyncio.sleep(0)
        call.send(b"0\r\n\r\n")

    async def check():
        async with engines(1, behave) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            raw = await broken(router, data)
            assert begun in raw
            assert b"[DONE]" not in raw
            assert b"message_stop" not in raw
            assert not raw.endswith(b"0\r\n\r\n")
            (last,) = [line for line in raw.splitlines() if line.startswith(b"data:")][-1:]
            assert told_by(json.loads(last[5:])) == TOLD[api]
            told = router.state.exposition(0.0, 0)
            assert 'answers_cut_total{group="chat/support",by="engine"} 1' in told
            assert 'outcome="failed"} 1' in told
            assert "ejections_total 1" in told

    run(check())


def test_a_stream_that_breaks_off_before_its_first_token_is_asked_for_elsewhere(tmp_path):
    async def breaks_off(call):
        call.begin_stream()
        call.chunk(event({"choices": [{"delta": {"role": "assistant"}, "finish_reason": None}]}))
        call.chunk(choice("", "abort") + DONE)
        call.send(b"0\r\n\r\n")

    async def well(call):
        call.begin_stream()
        call.chunk(choice("b") + choice("", "stop") + DONE)
        call.send(b"0\r\n\r\n")

    async def check():
        async with (
            engines(2, breaks_off, well) as both,
            routing(tmp_path, table_of(*(each.address for each in both))) as router,
        ):
            bodies = [(await ask(router.port, post(chat(f"user {n}", stream=True)))).body for n in range(8)]
            assert set(bodies) == {choice("b") + choice("", "stop") + DONE}
            assert 'retries_total{reason="aborted by the engine"}' in router.state.exposition(0.0, 0)

    run(check())


ERRORS = {
    "chat": event({"error": {"message": "out of memory", "code": 500}}) + DONE,
    "messages": event({"type": "error", "error": {"type": "api_error", "message": "x"}}, "error")
    + event({"type": "message_stop"}, "message_stop"),
    "responses": event({"type": "response.failed", "response": {"status": "failed"}}, "response.failed") + DONE,
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("size", [11, 10_000])
def test_an_error_that_an_engine_tells_in_its_stream_reaches_the_client_and_is_counted(tmp_path, api, begins, size):
    data, begun, _, _ = APIS[api]
    end = ERRORS[api]

    async def behave(call):
        call.begin_stream()
        if begins:
            call.chunk(begun)
            await call.writer.drain()
            await asyncio.sleep(0.05)  # the client has the beginning
        for at in range(0, len(end), size):
            call.chunk(end[at : at + size])
            await call.writer.drain()
            await asyncio.sleep(0)
        call.send(b"0\r\n\r\n")

    async def check():
        async with engines(1, behave) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            raw = await broken(router, data)
            told, _, after = end.partition(b"\n\n")
            assert told in raw
            assert after not in raw
            assert raw.count(b"data:") == 1 + begins, "the router adds no error of its own"
            assert not raw.endswith(b"0\r\n\r\n")
            counted = router.state.exposition(0.0, 0)
            assert 'answers_cut_total{group="chat/support",by="engine"} 1' in counted
            assert 'outcome="failed"} 1' in counted
            assert "ejections_total 1" not in counted, "whoever asks may be the cause"

    run(check())


WHOLE = {
    "chat": (post(chat()), {"choices": [{"message": {}, "finish_reason": "abort"}]}),
    "messages": (post(MESSAGE, path="/v1/messages"), {"type": "message", "stop_reason": None}),
    "responses": (post(RESPONSE, path="/v1/responses"), {"object": "response", "status": "cancelled"}),
}


@pytest.mark.parametrize("api", WHOLE)
@pytest.mark.parametrize("parts", [1, 2])
def test_a_whole_answer_that_was_broken_off_is_an_error(tmp_path, api, parts):
    data, document = WHOLE[api]
    body = json.dumps(document).encode()

    async def behave(call):
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        call.send(head.encode() + (body if parts == 1 else body[:9]))
        if parts == 2:
            await call.writer.drain()
            await asyncio.sleep(0.05)
            call.send(body[9:])

    async def check():
        async with engines(1, behave) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, data)
            assert (answer.status, b"aborted by the engine" in answer.body) == (502, True)
            assert (b'"type":"error"' in answer.body) == (api == "messages")

    run(check())


def test_a_long_whole_answer_in_parts_is_whole(tmp_path):
    body = json.dumps({"choices": [{"message": {"content": "x" * 300_000}, "finish_reason": "stop"}]}).encode()

    async def behave(call):
        call.answer(body)

    async def check():
        async with engines(1, behave) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            assert (await ask(router.port, post(chat()))).body == body

    run(check())


def test_a_stream_whose_chunks_end_within_events_arrives_whole_on_a_connection_that_is_kept(tmp_path):
    content = b"".join(choice(f"word {n}") for n in range(50)) + choice("", "stop") + DONE

    async def behave(call):
        call.begin_stream()
        for at in range(0, len(content), 37):
            call.chunk(content[at : at + 37])
            await call.writer.drain()
        call.send(b"0\r\n\r\n")

    async def check():
        async with (
            engines(1, behave) as (engine,),
            routing(tmp_path, table_of(engine.address)) as router,
            connected(router.port) as client,
        ):
            for _ in range(3):
                assert (await client.ask(post(chat(stream=True)))).body == content

    run(check())


# --- Time limits ---------------------------------------------------------------------------------------------


def limited(engine, **limits):
    return table(group("support", revision(slots=(slot(0, address=engine.address),)), time_limits=TimeLimits(**limits)))


@pytest.mark.slow
def test_the_request_timeout_cuts_no_stream_whose_tokens_flow(tmp_path):
    async def flows(call):
        call.begin_stream()
        for number in range(16):
            call.chunk(choice(f"{number}"))
            await call.writer.drain()
            await asyncio.sleep(0.25)
        call.chunk(choice("", "stop") + DONE)
        call.send(b"0\r\n\r\n")

    async def check():
        async with (
            engines(1, flows) as (engine,),
            routing(tmp_path, table_of(engine.address), request_timeout=2.5) as router,
        ):
            answer = await ask(router.port, post(chat(stream=True)))
            assert answer.body.count(b"data:") == 18

    run(check())


KEEPERS = {
    "nothing": b"",
    "comments": b": keep-alive\n\n",
    "pings": b'event: ping\ndata: {"type": "ping"}\n\n',
}


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("keeper", KEEPERS)
@pytest.mark.parametrize("limit", ["idleTimeout", "request-timeout"])
def test_a_stream_that_pauses_ends_with_an_error_of_its_api_whatever_keeps_it_alive(tmp_path, api, keeper, limit):
    data, begun, _, _ = APIS[api]

    async def pauses(call):
        call.begin_stream()
        call.chunk(begun)
        await call.writer.drain()
        while True:
            await asyncio.sleep(0.2)
            if KEEPERS[keeper]:
                call.chunk(KEEPERS[keeper])
            await call.writer.drain()

    async def check():
        async with engines(1, pauses) as (engine,):
            served = limited(engine, idle=2) if limit == "idleTimeout" else table_of(engine.address)
            timeout = 60.0 if limit == "idleTimeout" else 2.0
            async with routing(tmp_path, served, request_timeout=timeout) as router:
                began = time.monotonic()
                raw = await broken(router, data)
                assert time.monotonic() - began < 30
                assert begun in raw
                (last,) = [line for line in raw.splitlines() if line.startswith(b"data:")][-1:]
                assert b"for too long" in last
                assert not raw.endswith(b"0\r\n\r\n")

    run(check())
