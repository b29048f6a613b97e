"""The client against the stand-in engine and against servers that misbehave, on loopback."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
import uvloop
from aiohttp import web

from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.server import serving
from promptgroup_local.load import client
from promptgroup_local.load.client import Outcome, Target, drive
from promptgroup_local.load.counters import measure, scrape
from promptgroup_local.load.summary import summarise
from promptgroup_local.load.workload import Conversation, conversations, sessions, tasks

DEADLINE = 90.0


def engine(**knobs: float) -> contextlib.AbstractAsyncContextManager[str]:
    return serving(parse(["m", "--host=127.0.0.1", "--port=0"]), Knobs(time_scale=0.0, **knobs))


@contextlib.asynccontextmanager
async def server(handler: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield "http://{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


def drawn(count: int, turns: int | None = None) -> list[Conversation]:
    return conversations(sessions(tasks(), count, 1, turns=turns))


@pytest.mark.heavy
def test_one_engine_finds_exactly_what_an_infinite_cache_finds() -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE), engine() as url:
            before = await scrape([url])
            outcomes = await drive(drawn(9), Target([url], "m"), concurrency=1)
            row = summarise("run", outcomes, measure(before, await scrape([url])))
        assert row.failures == 0
        assert row.of_possible == pytest.approx(1, abs=1e-12)
        assert row.measured.cold == 3
        assert row.measured.requests == {url: len(outcomes)}

    uvloop.run(main())


@pytest.mark.heavy
def test_two_engines_in_turn_share_the_requests_evenly_and_find_less() -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE), engine() as one, engine() as two:
            before = await scrape([one, two])
            outcomes = await drive(drawn(12, turns=4), Target([one, two], "m"), concurrency=3)
            row = summarise("run", outcomes, measure(before, await scrape([one, two])))
        assert row.measured.imbalance == 1
        assert row.of_possible is not None
        assert row.of_possible < 0.95
        assert row.measured.cold == 6

    uvloop.run(main())


def test_a_conversation_is_continued_in_a_later_run() -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE), engine() as url:
            three = drawn(3, turns=3)
            seen: list[Outcome] = []
            first = await drive(three, Target([url], "m"), concurrency=2, turns=2, record=seen.append)
            assert seen == first
            assert [len(conversation.rest) for conversation in three] == [1, 1, 1]
            second = await drive(three, Target([url], "m"), concurrency=2)
            assert sorted((outcome.session, outcome.turn) for outcome in second) == [
                (f"1-{number}", 2) for number in range(3)
            ]
            assert {len(outcome.exchange.messages) for outcome in second} == {6}
            assert await drive(three, Target([url], "m"), concurrency=2) == []

    uvloop.run(main())


def test_an_answer_in_one_piece_is_read_and_a_broken_one_is_a_failure() -> None:
    bodies = iter(['{"choices":[{"message":{"content":"hi"}}]}', "{}", "{"])

    async def handler(request: web.Request) -> web.Response:
        assert (await request.json())["stream"] is False
        return web.Response(text=next(bodies), content_type="application/json")

    async def main() -> list[Outcome]:
        plain = [replace(session, streamed=False) for session in sessions(tasks(), 3, 1, turns=1)]
        async with asyncio.timeout(DEADLINE), server(handler) as url:
            return await drive(conversations(plain), Target([url], "m"), concurrency=1)

    good, empty, broken = uvloop.run(main())
    assert (good.failed, good.exchange.answer, good.streamed) == (False, "hi", False)
    assert (empty.error, broken.error) == ("no whole answer", "JSONDecodeError")


def test_conversations_are_drawn_when_there_is_room_for_another() -> None:
    seen: list[Outcome] = []

    def endless() -> Iterator[Conversation]:
        while len(seen) < 5:
            yield from drawn(1, turns=2)

    async def main() -> None:
        async with asyncio.timeout(DEADLINE), engine() as url:
            await drive(endless(), Target([url], "m"), concurrency=1, record=seen.append)

    uvloop.run(main())
    assert len(seen) == 6


def test_by_name_brings_no_system_prompt_and_content_no_session_header() -> None:
    bodies, headers = [], []

    async def handler(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        headers.append(request.headers)
        text = 'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n'
        served_by = {"x-promptgroup-served-by": "ns/code/1234/0"}
        return web.Response(text=text, content_type="text/event-stream", headers=served_by)

    async def main() -> None:
        async with asyncio.timeout(DEADLINE), server(handler) as url:
            (outcome,) = await drive(drawn(1, 1), Target([url], "m", {"summarise": "group"}), concurrency=1)
            assert (outcome.served_by, outcome.exchange.answer) == ("ns/code/1234/0", "hi")
            assert outcome.exchange.messages[0]["role"] == "system"
            await drive(drawn(1, 1), Target([url], "m", session_header="x-session-id"), concurrency=1)

    uvloop.run(main())
    by_name, by_content = bodies
    assert by_name["model"] == "group"
    assert [message["role"] for message in by_name["messages"]] == ["user"]
    assert "x-session-id" not in headers[0]
    assert by_content["model"] == "m"
    assert by_content["messages"][0]["content"] == tasks()[0].system
    assert headers[1]["x-session-id"] == "1-0"


def test_what_stands_on_top_of_the_prompt_is_made_anew_for_each_request() -> None:
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((await request.json())["messages"][0]["content"])
        return web.Response(text='{"choices":[{"message":{"content":"hi"}}]}', content_type="application/json")

    async def main() -> None:
        numbers = itertools.count()
        plain = [replace(session, streamed=False) for session in sessions(tasks(), 1, 1, turns=2)]
        async with asyncio.timeout(DEADLINE), server(handler) as url:
            target = Target([url], "m", on_top=lambda: f"{next(numbers)} ")
            await drive(conversations(plain), target, concurrency=1)

    uvloop.run(main())
    assert seen == [f"{number} {tasks()[0].system}" for number in range(2)]


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (503, "", "status 503"),
        (503, '{"error":{"code":"overloaded","message":"no"}}', "status 503, overloaded"),
        (503, '{"error":{"code":"Words of a prompt"}}', "status 503"),
        (500, '{"error":{"code":500}}', "status 500"),
        (200, 'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n', "the stream ended before [DONE]"),
        (200, 'data: {"error":{"message":"no"}}\n\n', "an error event in the stream"),
        (200, "data: {\n\n", "JSONDecodeError"),
        (200, "data: {}\n\n", "an event that is no chunk of an answer"),
        (200, "data: 7\n\ndata: [DONE]\n\n", "an event that is no chunk of an answer"),
    ],
)
def test_an_incomplete_answer_is_a_failure_and_ends_the_conversation(status: int, text: str, error: str) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text, content_type="text/event-stream")

    async def main() -> None:
        async with asyncio.timeout(DEADLINE), server(handler) as url:
            conversation = drawn(1, turns=3)
            (outcome,) = await drive(conversation, Target([url], "m"), concurrency=1)
        assert (outcome.status, outcome.error, outcome.failed) == (status, error, True)
        assert len(conversation[0].rest) == 3

    uvloop.run(main())


def test_nobody_there_and_no_end_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.2)

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async def main() -> None:
        async with asyncio.timeout(DEADLINE):
            (refused,) = await drive(drawn(1, 1), Target(["http://127.0.0.1:1"], "m"), concurrency=1)
            async with server(handler) as url:
                (hung,) = await drive(drawn(1, 1), Target([url], "m"), concurrency=1)
        assert (refused.status, refused.error) == (0, "ClientConnectorError")
        assert (hung.status, hung.error) == (200, "TimeoutError")

    uvloop.run(main())
