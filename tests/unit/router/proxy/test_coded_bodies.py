"""Requests whose bodies are compressed, through a router on real sockets."""

import gzip
import json
import zlib

import pytest

from promptgroup_router.apis.structure import LARGE_BYTES
from promptgroup_router.http11.content_coding import zstd
from support.fakeengine import engines
from support.wire import ask, chat, post, routing, run, table_of

CODERS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}
SIZES = {"small": 10, "large": LARGE_BYTES + 1000}


@pytest.mark.parametrize("coding", CODERS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("named", [False, True])
def test_an_engine_gets_the_body_as_if_it_had_been_sent_as_it_is(tmp_path, coding, size, named):
    body = chat("x" * SIZES[size]) if not named else chat("x" * SIZES[size], system="", model="support")

    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            assert (await ask(router.port, post(body))).status == 200
            coded = CODERS[coding](json.dumps(body).encode())
            assert (await ask(router.port, post(coded, f"Content-Encoding: {coding}"))).status == 200
            plain, sent = engine.requests
            assert json.loads(sent.body) == json.loads(plain.body)
            assert b"content-encoding" not in sent.head.fields
            assert int(sent.head.fields[b"content-length"]) == len(sent.body)
            assert router.state.balancer.placed.loads == {}

    run(check())


@pytest.mark.parametrize("coding", CODERS)
def test_a_bomb_is_refused_and_takes_no_memory(tmp_path, coding):
    bomb = CODERS[coding](bytes(100 << 20))

    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, post(bomb, f"Content-Encoding: {coding}"))
            assert (answer.status, engine.requests) == (413, [])
            assert (await ask(router.port, post(chat()))).status == 200

    run(check())


def test_decoded_bodies_count_towards_the_memory_for_bodies(tmp_path):
    coded = gzip.compress(json.dumps(chat("x" * 200_000)).encode())

    async def check():
        async with (
            engines(1) as (engine,),
            routing(tmp_path, table_of(engine.address), body_memory_bytes=100_000) as router,
        ):
            for _ in range(3):
                answer = await ask(router.port, post(coded, "Content-Encoding: gzip"))
                assert (answer.status, answer.json["error"]["code"]) == (503, "overloaded")
            for _ in range(20):  # what was taken for them is given back
                assert (await ask(router.port, post(chat("y" * 9000)))).status == 200
            assert len(engine.requests) == 20

    run(check())


@pytest.mark.parametrize(
    ("coding", "data", "status"), [("gzip", b"{}", 400), ("br", b"x", 415), ("gzip, gzip", b"", 415)]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_what_cannot_be_decoded_is_refused_in_the_form_of_the_api(tmp_path, coding, data, status, path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, post(data, f"Content-Encoding: {coding}", path=path))
            assert (answer.status, "type" in answer.json) == (status, path == "/v1/messages")
            if status == 415:
                assert answer.headers[b"accept-encoding"] == b"gzip, deflate, zstd"

    run(check())
