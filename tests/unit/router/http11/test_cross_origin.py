import pytest

from promptgroup_router.http11.cross_origin import CrossOrigin
from support.fakeengine import engines
from support.wire import ask, chat, connected, get, post, routing, run, table_of

APP = "https://app.example.com"


def options(origin, path="/v1/chat/completions"):
    fields = [f"OPTIONS {path} HTTP/1.1", "Host: router", f"Origin: {origin}", "Access-Control-Request-Method: POST"]
    return "\r\n".join([*fields, "Access-Control-Request-Headers: authorization, x-chat", "", ""]).encode()


async def allows(call):
    call.answer(b"{}", 200, "Access-Control-Allow-Origin: *", "Access-Control-Allow-Credentials: true")


@pytest.mark.parametrize(
    ("allowed", "origin", "named"),
    [
        ((APP,), APP, APP.encode()),
        ((APP, "http://localhost:3000"), "HTTP://LOCALHOST:3000", b"HTTP://LOCALHOST:3000"),
        (("*",), "https://anything", b"*"),
    ],
)
def test_a_page_of_an_allowed_origin_may_ask_and_see_every_answer(tmp_path, allowed, origin, named):
    async def check():
        async with (
            engines(1, allows) as (engine,),
            routing(tmp_path, table_of(engine.address), allowed_origins=allowed) as router,
            connected(router.port) as client,
        ):
            before = await client.ask(options(origin))
            assert (before.status, before.body) == (200, b"")
            assert before.headers[b"access-control-allow-methods"] == b"GET, HEAD, POST, DELETE"
            assert before.headers[b"access-control-allow-headers"] == b"authorization, x-chat"
            asked = f"Origin: {origin}"
            answers = [
                await client.ask(post(chat(), asked)),
                await client.ask(post(b"{", asked)),
                await client.ask(get("/v1/models", asked)),
                await client.ask(get("/nothing", asked)),
            ]
            assert [answer.status for answer in answers] == [200, 400, 200, 404]
            for answer in (before, *answers):
                assert answer.headers[b"access-control-allow-origin"] == named
                assert answer.headers[b"access-control-expose-headers"] == b"*"
                assert (answer.headers.get(b"vary") == b"Origin") == (named != b"*")
                assert b"access-control-allow-credentials" not in answer.headers
            assert b"access-control-allow-origin" not in (await client.ask(get("/v1/models"))).headers

    run(check())


@pytest.mark.parametrize("allowed", [(), (APP,)])
@pytest.mark.parametrize("origin", ["https://evil.example.com", f"{APP}.evil.com", "null", f"{APP}:444"])
def test_a_page_of_another_origin_may_not(tmp_path, allowed, origin):
    async def check():
        async with (
            engines(1, allows) as (engine,),
            routing(tmp_path, table_of(engine.address), allowed_origins=allowed) as router,
        ):
            before = await ask(router.port, options(origin))
            answer = await ask(router.port, post(chat(), f"Origin: {origin}"))
            assert (before.status, answer.status) == (405, 200)
            for found in (before, answer):
                assert not [name for name in found.headers if name.startswith(b"access-control")]

    run(check())


def test_a_stream_is_shown_to_pages_too(tmp_path):
    async def streams(call):
        call.begin_stream()
        call.chunk(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
        call.send(b"0\r\n\r\n")

    async def check():
        async with (
            engines(1, streams) as (engine,),
            routing(tmp_path, table_of(engine.address), allowed_origins=("*",)) as router,
        ):
            answer = await ask(router.port, post(chat(stream=True), f"Origin: {APP}"))
            assert answer.headers[b"access-control-allow-origin"] == b"*"
            assert answer.body.startswith(b"data:")

    run(check())


def test_options_that_ask_for_no_method_are_no_preflight():
    assert CrossOrigin(("*",)).preflight(b"OPTIONS", {b"origin": b"x"}) is None
    assert CrossOrigin(("*",)).preflight(b"POST", {b"access-control-request-method": b"GET"}) is None
    without = CrossOrigin(("*",)).preflight(b"OPTIONS", {b"access-control-request-method": b"GET"})
    assert b"access-control-allow-headers" not in dict(without)
