"""What each caller has used, through a whole router: what engines compute, what is kept, and what nobody tells."""

import asyncio
import contextlib

import orjson
import pytest

from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from support.answered import Oracle, event, exact, keeping
from support.fakeengine import Call, engines, until
from support.keys import BY_KEY, KEY_A, KEY_B, write_keys
from support.tables import group, revision, slot, table
from support.wire import ask, chat, connected, post, routing, run

A, B = (f"Authorization: Bearer {key}" for key in (KEY_A, KEY_B))
USAGE = {"prompt_tokens": 40, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 32}}


@contextlib.asynccontextmanager
async def served(folder, known, **settings):
    """A router with keys of two callers before this table."""
    write_keys(folder / "secrets", team_a=KEY_A, team_b=KEY_B)
    async with routing(folder, known, secrets_dir=folder / "secrets", **settings) as router:
        await until(lambda: router.state.keys_tried, "the keys")
        yield router


def plain(engine, limits: CallerLimits | None = None):
    rules = CallerRules(default=limits) if limits is not None else CallerRules()
    return table(group("support", revision(slots=(slot(0, address=engine.address),)), access=BY_KEY, callers=rules))


def used(router, name: str, caller: str = "team-a") -> int:
    metrics = router.state.metrics.callers
    metrics.tell()
    return getattr(metrics, name).values.get(("chat/support", caller), 0)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_is_kept_is_counted_apart_and_its_first_asker_has_the_engines_work(tmp_path, streamed):
    async def test():
        oracle = Oracle()
        async with (
            engines(1, oracle) as (engine,),
            served(tmp_path, keeping(engine.address, access=BY_KEY)) as router,
        ):
            for header in (A, B, B):
                assert (await ask(router.port, post(exact(stream=streamed), header))).status == 200
            assert oracle.inferences == 1
            counted = [
                [
                    used(router, name, caller)
                    for name in ("prompt_tokens", "answer_tokens", "reused_tokens", "unmetered")
                ]
                for caller in ("team-a", "team-b")
            ]
            assert counted == [[40, 3, 0, 0], [0, 0, 6, 0]]
            requests = router.state.metrics.callers.requests.values
            assert [requests["chat/support", caller, "200"] for caller in ("team-a", "team-b")] == [1, 2]

    run(test())


def test_whoever_joins_an_answer_on_its_way_has_its_tokens_as_kept_ones(tmp_path):
    async def test():
        oracle = Oracle()
        oracle.gate.clear()
        async with (
            engines(1, oracle) as (engine,),
            served(tmp_path, keeping(engine.address, access=BY_KEY)) as router,
        ):
            first = asyncio.ensure_future(ask(router.port, post(exact(stream=True), A)))
            await until(lambda: oracle.inferences == 1, "the first request")
            second = asyncio.ensure_future(ask(router.port, post(exact(stream=True), B)))
            results = router.state.metrics.responses
            await until(lambda: results.values.get(("chat/support", "collapsed")), "the second request")
            oracle.gate.set()
            assert {(await each).status for each in (first, second)} == {200}
            assert (used(router, "answer_tokens"), used(router, "reused_tokens")) == (3, 0)
            assert (used(router, "answer_tokens", "team-b"), used(router, "reused_tokens", "team-b")) == (0, 3)

    run(test())


LARGE = 5 << 20
"""Bytes: more than is kept of any answer."""


async def large(call: Call) -> None:
    if call.json.get("stream"):
        call.begin_stream()
        piece = event({"choices": [{"delta": {"content": "x" * 60000}}]})
        for _ in range(LARGE // len(piece) + 1):
            call.chunk(piece)
            await call.writer.drain()
        call.chunk(event({"choices": [], "usage": USAGE}))
        call.chunk(b"data: [DONE]\n\n")
        call.send(b"0\r\n\r\n")
    else:
        call.answer(orjson.dumps({"choices": [{"message": {"content": "x" * LARGE}}], "usage": USAGE}))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_long_answers_are_counted_too(tmp_path, streamed, keeps):
    async def test():
        async with engines(1, large) as (engine,):
            known = keeping(engine.address, access=BY_KEY) if keeps else plain(engine)
            async with served(tmp_path, known) as router:
                for _ in range(2):
                    answer = await ask(router.port, post(exact(stream=streamed), A, "X-PromptGroup-Usage: true"))
                    assert len(answer.body) > LARGE
                assert (used(router, "prompt_tokens"), used(router, "answer_tokens")) == (80, 6)
                assert used(router, "cached_tokens") == 64
                assert used(router, "unmetered") == 0

    run(test())


async def words(call: Call) -> None:
    """Twenty words, one in each event, and no usage."""
    call.begin_stream()
    for _ in range(20):
        call.chunk(event({"choices": [{"delta": {"content": "x"}}]}))
    call.chunk(b"data: [DONE]\n\n")
    call.send(b"0\r\n\r\n")


def test_a_stream_without_usage_is_told_and_charged_by_its_events(tmp_path):
    """A client could have any number of answers for the price of their prompts."""

    async def test():
        limits = CallerLimits(tokens_per_minute=200)
        async with engines(1, words) as (engine,), served(tmp_path, plain(engine, limits)) as router:
            statuses = [(await ask(router.port, post(chat(stream=True), A))).status for _ in range(30)]
            admitted = statuses.count(200)
            assert statuses[-1] == 429
            assert admitted * 20 <= 200
            assert used(router, "unmetered") == admitted
            assert used(router, "answer_tokens") == 20 * admitted  # an estimate

    run(test())


def test_a_client_that_leaves_before_the_end_pays_for_what_it_has_read(tmp_path):
    async def endless(call: Call) -> None:
        call.begin_stream()
        for _ in range(50):
            call.chunk(event({"choices": [{"delta": {"content": "x"}}]}))
        await call.writer.drain()
        await call.client_gone()

    async def test():
        limits = CallerLimits(tokens_per_minute=10_000)
        async with engines(1, endless) as (engine,), served(tmp_path, plain(engine, limits)) as router:
            async with connected(router.port) as client:
                client.send(post(chat(stream=True), A))
                seen = b""
                while seen.count(b"data: {") < 50:
                    seen += await client.reader.read(65536)
            await until(lambda: used(router, "unmetered") == 1, "the end of the request")
            (account,) = router.state.features.limiter._accounts.values()
            assert account.in_flight == 0
            assert account.minute_tokens >= 50

    run(test())


ECHO = {"usage": dict.fromkeys(("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"), 0)}
COUNTED = {"prompt_tokens": 40, "input_tokens": 40, "completion_tokens": 3, "output_tokens": 3}


async def echoing(call: Call) -> None:
    """Answer as engines that repeat what a client has written behind what they have counted."""
    asked = call.json
    answer = {"id": "1", "choices": [], "usage": COUNTED, "metadata": asked["metadata"], "user": asked["user"]}
    if not asked.get("stream"):
        call.answer(orjson.dumps(answer))
        return
    if call.request.head.path == b"/v1/responses":
        events = [{"type": "response.completed", "response": answer}]
    elif call.request.head.path == b"/v1/messages":
        events = [
            {"type": "message_start", "message": answer},
            {"type": "message_delta", "usage": {"output_tokens": 3}},
        ]
    else:
        events = [answer]
    call.begin_stream()
    framed = b"".join(map(event, events)) + b"data: [DONE]\n\n"
    for at in range(0, len(framed), 50):  # chunks of proxies end anywhere
        call.chunk(framed[at : at + 50])
    call.send(b"0\r\n\r\n")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
def test_nobody_writes_their_own_bill(tmp_path, path, streamed):
    async def test():
        limits = CallerLimits(tokens_per_minute=150)
        async with engines(1, echoing) as (engine,), served(tmp_path, plain(engine, limits)) as router:
            said = {"prompt": "Hi"} if path == "/v1/completions" else {"input": "Hi"}
            said |= {"messages": [{"role": "user", "content": "Hi"}]} if "chat" in path or "messages" in path else {}
            body = {
                "model": "support",
                "stream": streamed,
                "metadata": ECHO,
                "user": orjson.dumps(ECHO).decode(),
                **said,
            }
            found = [(await ask(router.port, post(body, A, path=path))).status for _ in range(5)]
            assert found == [200, 200, 200, 200, 429]
            assert [used(router, name) for name in ("prompt_tokens", "answer_tokens", "unmetered")] == [160, 12, 0]

    run(test())
