"""Keep-alives of the router's own, while a stream waits for room, for its first token, or for the next one."""

import asyncio
import json
import os
import signal
import time

import pytest

from promptgroup_contract.table import CacheScope, Engine, ResponseCaching, Sleep, TimeLimits
from support.fakeengine import engines
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import ask, chat, connected, post, routing, run

pytestmark = pytest.mark.slow

COMMENT = b": keep-alive\n\n"
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
DONE = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
TEXT = b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n'
CHAT = post(chat(stream=True))
MESSAGE = {"model": "llama", "max_tokens": 9, "system": SYSTEM, "messages": [{"role": "user", "content": "Hi"}]}
RESPONSE = {"model": "llama", "instructions": SYSTEM, "input": "Hi", "stream": True}
APIS = {
    "chat": (CHAT, COMMENT, DONE),
    "messages": (post(MESSAGE | {"stream": True}, path="/v1/messages"), PING, TEXT),
    "responses": (post(RESPONSE, path="/v1/responses"), COMMENT, DONE),
}


def served(engine, interval=1, **fields):
    slots = (slot(0, address=engine.address),)
    return table(group("support", revision(slots=slots), time_limits=TimeLimits(keep_alive=interval, **fields)))


class Watched:
    """What a client got of an answer so far."""

    def __init__(self):
        self.seen, self._more = bytearray(), asyncio.Event()

    def watch(self, client):
        feed = client.reader.feed_data

        def fed(data):
            feed(data)
            self.seen += data
            self._more.set()

        client.reader.feed_data = fed

    async def until(self, wanted, after=b""):
        while wanted not in self.seen.partition(after)[2] if after else wanted not in self.seen:
            self._more.clear()
            await self._more.wait()


def slow(content, keeper, client, framing="chunked"):
    """Answers once the client got a keep-alive, and stops in the middle until it got another."""

    async def behave(call):
        client.seen.clear()
        await client.until(keeper)
        if framing == "chunked":
            call.begin_stream()
            call.chunk(content)
            await call.writer.drain()
            await client.until(keeper, after=content)
            call.chunk(content)
            call.send(b"0\r\n\r\n")
        else:
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {2 * len(content)}\r\n\r\n"
            call.send(head.encode() + content)
            await call.writer.drain()
            await client.until(keeper, after=content)
            call.send(content)

    return behave


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_stream_that_waits_is_kept_alive_in_the_form_of_its_api(tmp_path, api, framing):
    data, keeper, content = APIS[api]

    async def check():
        watched = Watched()
        async with (
            engines(1, slow(content, keeper, watched, framing)) as (engine,),
            routing(tmp_path, served(engine)) as router,
            connected(router.port) as client,
        ):
            watched.watch(client)
            for _ in range(2):  # the connection is kept
                answer = await client.ask(data)
                assert answer.status == 200
                assert answer.headers[b"content-type"].startswith(b"text/event-stream")
                before, between, after = answer.body.split(content)
                assert before
                assert between
                assert set((before + between).split(keeper)) == {b""}
                assert after == b""

    run(check())


def test_a_stream_that_begins_at_once_is_kept_alive_in_its_pauses(tmp_path):
    async def check():
        watched = Watched()

        async def behave(call):
            call.begin_stream()
            call.chunk(DONE)
            await call.writer.drain()
            await watched.until(COMMENT)
            call.chunk(DONE)
            call.send(b"0\r\n\r\n")

        async with (
            engines(1, behave) as (engine,),
            routing(tmp_path, served(engine)) as router,
            connected(router.port) as client,
        ):
            watched.watch(client)
            answer = await client.ask(CHAT)
            assert answer.served_by.endswith("/0")
            before, between, after = answer.body.split(DONE)
            assert (before, set(between.split(COMMENT)), after) == (b"", {b""}, b"")
            assert between

    run(check())


@pytest.mark.parametrize(
    ("interval", "data"),
    [(0, CHAT), (1, post(chat())), (1, post(chat(stream=True), version="1.0"))],
    ids=["off", "whole", "HTTP/1.0"],
)
def test_nothing_else_is_kept_alive(tmp_path, interval, data):
    async def behave(call):
        await asyncio.sleep(2.5)
        call.answer(b'{"error":{}}', 400)

    async def check():
        async with engines(1, behave) as (engine,), routing(tmp_path, served(engine, interval)) as router:
            answer = await ask(router.port, data)
            assert (answer.status, answer.body) == (400, b'{"error":{}}')

    run(check())


LATE = {
    "refuses": (lambda call: call.answer(b"{}", 400), 400),
    "is busy": (lambda call: call.answer(b"{}", 503), 503),
    "dies": (lambda call: call.reset(), 502),
    "answers whole": (lambda call: call.answer(b"{}"), 502),
}


@pytest.mark.parametrize("case", LATE)
@pytest.mark.parametrize("api", APIS)
def test_an_error_after_a_keep_alive_is_told_in_an_event_of_the_api(tmp_path, case, api):
    data, keeper, _ = APIS[api]

    async def behave(call):
        await asyncio.sleep(1.5 if len(engine_calls) else 2.5)
        engine_calls.append(call)
        LATE[case][0](call)

    engine_calls = []

    async def check():
        async with (
            engines(1, behave) as (engine,),
            routing(tmp_path, served(engine)) as router,
            connected(router.port) as client,
        ):
            client.send(data)
            raw = await client.closed()
            assert raw.startswith(b"HTTP/1.1 200 ")
            assert keeper in raw
            assert not raw.endswith(b"0\r\n\r\n")
            told = json.loads([line for line in raw.splitlines() if line.startswith(b"data:")][-1][5:])
            assert "error" in told or told["type"] == "error"

    run(check())


def test_a_stream_is_kept_alive_while_all_who_share_its_answer_wait(tmp_path):
    body = post(chat(stream=True, temperature=0))

    async def check():
        watched = Watched()

        async def behave(call):
            await watched.until(COMMENT)
            call.begin_stream()
            call.chunk(DONE)
            call.send(b"0\r\n\r\n")

        async with engines(1, behave) as (engine,):
            caching = ResponseCaching(ttl=3600, max_bytes=2**22, scope=CacheScope.GROUP)
            of = revision(slots=(slot(0, address=engine.address),), engine=Engine("e1"))
            routed = table(group("support", of, responses=caching, time_limits=TimeLimits(keep_alive=1)))
            async with (
                routing(tmp_path, routed) as router,
                connected(router.port) as first,
                connected(router.port) as second,
            ):
                watched.watch(first)
                answers = await asyncio.gather(first.ask(body), second.ask(body))
                for answer in (*answers, await ask(router.port, body)):
                    assert answer.status == 200
                    assert answer.body.replace(COMMENT, b"") == DONE
                assert len(engine.requests) == 1

    run(check())


def test_the_time_until_a_large_body_is_read_counts(tmp_path):
    interval = 4
    body = chat(stream=True)
    body["messages"][-1]["content"] = "word " * 200_000

    async def check():
        kept, asked = asyncio.Event(), []

        async def behave(call):
            asked.append(time.monotonic())
            await kept.wait()
            call.begin_stream()
            call.chunk(DONE)
            call.send(b"0\r\n\r\n")

        async with (
            engines(1, behave) as (engine,),
            routing(tmp_path, served(engine, interval)) as router,
            connected(router.port) as client,
        ):
            assert (await ask(router.port, post(b"{" * 300_000))).status == 400  # the process runs that reads bodies
            reader = router._reader.pid
            os.kill(reader, signal.SIGSTOP)
            client.send(post(body))
            await asyncio.sleep(interval)
            assert not asked
            os.kill(reader, signal.SIGCONT)
            await client.reader.readuntil(COMMENT)
            assert time.monotonic() - asked[0] < interval
            kept.set()

    run(check())


def test_a_stream_that_waits_for_its_first_token_is_asked_for_elsewhere_though_it_was_kept_alive(tmp_path):
    async def dies(call):
        await asyncio.sleep(2.5)
        call.reset()

    async def well(call):
        call.begin_stream()
        call.chunk(DONE)
        call.send(b"0\r\n\r\n")

    async def check():
        async with engines(2, dies, well) as both:
            slots = tuple(slot(number, address=engine.address) for number, engine in enumerate(both))
            limits = TimeLimits(keep_alive=1)
            routed = table(group("support", revision(slots=slots), time_limits=limits))
            async with routing(tmp_path, routed) as router:
                asked = (ask(router.port, post(chat(f"user {n}", stream=True))) for n in range(8))
                answers = await asyncio.gather(*asked)
                assert all(answer.body.replace(COMMENT, b"") == DONE for answer in answers)
                assert any(answer.body.startswith(COMMENT) for answer in answers)

    run(check())


@pytest.mark.parametrize("api", APIS)
def test_a_stream_of_a_sleeping_group_is_kept_alive_until_it_has_a_replica(tmp_path, api):
    data, keeper, content = APIS[api]

    def sleeping(*slots):
        limits = TimeLimits(keep_alive=1)
        return table(group("support", revision(slots=slots), time_limits=limits, sleep=Sleep(wake_timeout=300)))

    async def behave(call):
        call.begin_stream()
        call.chunk(content)
        call.send(b"0\r\n\r\n")

    async def check():
        watched = Watched()
        async with (
            engines(1, behave) as (engine,),
            routing(tmp_path, sleeping()) as router,
            connected(router.port) as client,
        ):
            watched.watch(client)
            asked = asyncio.ensure_future(client.ask(data))
            await watched.until(keeper)
            router.state.install(sleeping(slot(0, address=engine.address)), "test", router.core.clock())
            answer = await asked
            assert answer.status == 200
            before, after = answer.body.split(content)
            assert set(before.split(keeper)) == {b""}
            assert after == b""

    run(check())
