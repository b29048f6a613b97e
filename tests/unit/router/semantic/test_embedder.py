"""Asking endpoints for embeddings, whatever they do."""

import asyncio
import contextlib
import time

import orjson
import pytest

from promptgroup_router.semantic import embedder as module
from promptgroup_router.semantic.embedder import AT_ONCE, FAILURES, Embedder, EmbeddingSource, NoEmbedding
from support.fakeengine import Call, engines, until
from support.wire import run

VECTOR = b'{"data":[{"embedding":[3,4]}]}'


async def well(call: Call) -> None:
    call.answer(VECTOR)


@contextlib.asynccontextmanager
async def asking(behaviour=well, networks=None, clock=time.monotonic):
    async with engines(1, behaviour) as (server,):
        embedder = Embedder(clock, lambda: pytest.fail("no TLS here"), networks)
        try:
            yield embedder, f"http://{server.address}/v1/embeddings", server
        finally:
            await embedder.stop()


async def asked(embedder: Embedder, url: str, text: str = "Why?", credential: bytes = b""):
    got = asyncio.get_running_loop().create_future()
    embedder.ask(EmbeddingSource(url, "m", credential), text, got.set_result)
    return await got


def test_an_embedding_is_asked_for_with_the_credential_and_on_one_connection():
    seen = []

    async def noting(call: Call) -> None:
        seen.append((call.request.head.path, {each.name: each.value for each in call.request.head.headers}, call.json))
        call.answer(VECTOR)

    async def inside() -> None:
        async with asking(noting) as (embedder, url, server):
            for _ in range(3):
                assert list(await asked(embedder, url, credential=b"secret")) == pytest.approx([0.6, 0.8])
            assert len(server.open) == 1
            path, headers, body = seen[0]
            assert (path, body["input"], body["model"]) == (b"/v1/embeddings", "Why?", "m")
            assert headers[b"authorization"] == b"Bearer secret"
            embedder.tick(time.monotonic() + 60)
            await until(lambda: not server.open, "the idle connection to be closed")
            assert list(await asked(embedder, url)) == pytest.approx([0.6, 0.8])

    run(inside())


async def fails(call: Call) -> None:
    call.answer(b"{}", 500)


async def redirects(call: Call) -> None:
    call.answer(b"", 307, "Location: http://127.0.0.1:1/")


async def resets(call: Call) -> None:
    call.reset()


async def garbles(call: Call) -> None:
    call.send(b"what?\r\n\r\n")


async def floods(call: Call) -> None:
    call.begin_stream()
    with contextlib.suppress(ConnectionError):
        while True:
            call.chunk(b" " * 65536)
            await call.writer.drain()


async def stops(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    await call.writer.drain()
    call.reset()


@pytest.mark.parametrize("behaviour", [fails, redirects, resets, garbles, floods, stops])
def test_whatever_else_an_endpoint_does_is_a_failure(behaviour):
    async def inside() -> None:
        async with asking(behaviour) as (embedder, url, _):
            assert await asked(embedder, url) is NoEmbedding.FAILED

    run(inside())


def test_an_endpoint_that_says_nothing_has_a_deadline(monkeypatch):
    monkeypatch.setattr(module, "EMBEDDING_SECONDS", 0.05)

    async def silent(call: Call) -> None:
        await call.client_gone()

    async def inside() -> None:
        async with asking(silent) as (embedder, url, _):
            assert await asked(embedder, url) is NoEmbedding.FAILED

    run(inside())


def test_an_endpoint_that_fails_is_left_alone_for_a_while():
    now = [100.0]

    async def inside() -> None:
        async with asking(fails, clock=lambda: now[0]) as (embedder, url, server):
            results = [await asked(embedder, url) for _ in range(FAILURES + 1)]
            assert results == [NoEmbedding.FAILED] * FAILURES + [NoEmbedding.BUSY]
            server.behave = well
            now[0] += module.REST_SECONDS
            assert list(await asked(embedder, url)) == pytest.approx([0.6, 0.8])

    run(inside())


def test_an_endpoint_that_nobody_asks_is_forgotten():
    now = [100.0]

    async def inside() -> None:
        async with asking(fails, clock=lambda: now[0]) as (embedder, url, server):
            for number in range(3):
                await asked(embedder, url.replace("127.0.0.1", f"127.0.0.{number + 2}"))
            now[0] += module.FORGET_SECONDS - 1
            server.behave = well
            await asked(embedder, url)
            embedder.tick(now[0])
            assert len(embedder._servers) == 4
            now[0] += 1
            embedder.tick(now[0])
            assert [each.port for each in embedder._servers] == [int(server.address.rpartition(":")[2])]

    run(inside())


def test_an_endpoint_is_asked_so_many_questions_at_once():
    gate = asyncio.Event()

    async def slow(call: Call) -> None:
        await gate.wait()
        call.answer(VECTOR)

    async def inside() -> None:
        async with asking(slow) as (embedder, url, _):
            waiting = [asyncio.ensure_future(asked(embedder, url)) for _ in range(AT_ONCE)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert await asked(embedder, url) is NoEmbedding.BUSY
            gate.set()
            assert all(not isinstance(each, NoEmbedding) for each in await asyncio.gather(*waiting))

    run(inside())


def test_a_question_that_is_called_off_is_heard_of_no_more():
    async def inside() -> None:
        async with asking() as (embedder, url, _):
            embedder.ask(EmbeddingSource(url, "m", b""), "Why?", lambda _: pytest.fail("it was called off"))()
            assert not isinstance(await asked(embedder, url), NoEmbedding)

    run(inside())


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://[::1/", "http://host:99999/", "http://h\u00e4/\u00e4"])
def test_a_url_that_leads_nowhere_is_a_failure(url):
    async def inside() -> None:
        async with asking() as (embedder, _, _):
            assert await asked(embedder, url) is NoEmbedding.FAILED

    run(inside())


def test_a_route_does_not_lead_a_router_to_its_own_machine():
    async def inside() -> None:
        async with asking(networks=()) as (embedder, url, server):
            assert await asked(embedder, url) is NoEmbedding.FAILED
            assert not server.open

    run(inside())


def test_what_is_asked_is_json_whatever_the_question():
    texts = []

    async def noting(call: Call) -> None:
        texts.append(orjson.loads(call.request.body)["input"])
        call.answer(VECTOR)

    async def inside() -> None:
        async with asking(noting) as (embedder, url, _):
            await asked(embedder, url, 'a"\r\n\r\nGET / HTTP/1.1\u00e9')
            assert texts == ['a"\r\n\r\nGET / HTTP/1.1\u00e9']

    run(inside())
