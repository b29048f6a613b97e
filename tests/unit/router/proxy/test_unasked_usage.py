"""Streams whose clients did not ask for usage are counted, and look as they would have."""

import contextlib

import orjson
import pytest

from promptgroup_contract.caller_rules import CachedTokens, CallerLimits, CallerRules
from support.answered import event
from support.fakeengine import Call, engines, until
from support.keys import BY_KEY, KEY_A, write_keys
from support.tables import group, revision, slot, table
from support.wire import ask, chat, post, routing, run

A = f"Authorization: Bearer {KEY_A}"
USAGE = {"prompt_tokens": 40, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 32}}
WORDS = [event({"choices": [{"delta": {"content": word}}]}) for word in "abc"]
DONE = b"data: [DONE]\n\n"
PLAIN = b"".join(WORDS) + DONE
TOLD = event({"choices": [], "usage": USAGE})


async def engine(call: Call) -> None:
    """An engine that tells its usage to those who ask."""
    call.begin_stream()
    for each in WORDS:
        call.chunk(each)
    asked = (call.json.get("stream_options") or {}).get("include_usage")
    call.chunk((TOLD if asked else b"") + DONE)
    call.send(b"0\r\n\r\n")


@contextlib.asynccontextmanager
async def served(folder, *, access=BY_KEY, rules=None, behave=engine, **settings):
    write_keys(folder / "secrets", team_a=KEY_A)
    async with engines(1, behave) as (one,):
        callers = rules or CallerRules()
        made = group("support", revision(slots=(slot(0, address=one.address),)), access=access, callers=callers)
        async with routing(folder, table(made), secrets_dir=folder / "secrets", **settings) as router:
            await until(lambda: access is None or router.state.keys_tried, "the keys")
            yield router, one


def used(router) -> tuple[int, int, int]:
    callers = router.state.metrics.callers
    callers.tell()
    names = ("prompt_tokens", "answer_tokens", "unmetered")
    return tuple(getattr(callers, name).values.get(("chat/support", "team-a"), 0) for name in names)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("options", [{}, {"stream_options": None}, {"stream_options": {"include_usage": False}}])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_stream_is_counted_and_its_client_gets_what_it_asked_for(tmp_path, version, options, by_name):
    async def check():
        async with served(tmp_path) as (router, one):
            body = chat(stream=True, **options)
            if by_name:
                body = chat(stream=True, model="support", system="", **options)
            answer = await ask(router.port, post(body, A, "Accept-Encoding: gzip", version=version))
            assert (answer.status, answer.body) == (200, PLAIN)
            assert used(router) == (40, 3, 0)
            (request,) = one.requests
            assert b"accept-encoding" not in request.head.fields
            assert orjson.loads(request.body)["stream_options"] == {"include_usage": True}

    run(check())


@pytest.mark.heavy
def test_a_body_that_is_read_elsewhere_has_the_question_too(tmp_path):
    async def check():
        async with served(tmp_path) as (router, one):
            answer = await ask(router.port, post(chat("x" * 600_000, stream=True), A))
            assert (answer.status, answer.body) == (200, PLAIN)
            assert used(router) == (40, 3, 0)
            assert orjson.loads(one.requests[0].body)["stream_options"] == {"include_usage": True}

    run(check())


def test_who_asks_gets_the_usage(tmp_path):
    async def check():
        async with served(tmp_path) as (router, one):
            body = orjson.dumps(chat(stream=True, stream_options={"include_usage": True}))
            answer = await ask(router.port, post(body, A))
            assert answer.body == b"".join(WORDS) + TOLD + DONE
            assert one.requests[0].body == body

    run(check())


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("words", ["Hi", pytest.param("x" * 600_000, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("options", [{}, {"stream_options": None}, {"stream_options": {"include_usage": False}}])
def test_hits_of_nobody_in_particular_are_counted_too(tmp_path, version, words, options):
    async def check():
        async with served(tmp_path, access=None) as (router, one):
            answer = await ask(router.port, post(chat(words, stream=True, **options), version=version))
            assert answer.body == PLAIN
            assert orjson.loads(one.requests[0].body)["stream_options"] == {"include_usage": True}
            counted = router.state.metrics
            assert [sum(made.values.values()) for made in (counted.prompt_tokens, counted.cached_tokens)] == [40, 32]

    run(check())


def test_whole_answers_of_nobody_in_particular_stay_byte_for_byte(tmp_path):
    async def check():
        async def whole(call: Call) -> None:
            call.answer()

        async with served(tmp_path, access=None, behave=whole) as (router, one):
            body = orjson.dumps(chat())
            await ask(router.port, post(body, "Accept-Encoding: gzip"))
            assert one.requests[0].body == body
            assert one.requests[0].head.fields[b"accept-encoding"] == b"gzip"

    run(check())


def test_events_that_nobody_changes_pass_in_the_chunks_of_their_engine(tmp_path):
    async def several(call: Call) -> None:
        call.begin_stream()
        call.send(b"".join(b"%x;of=engine\r\n%b\r\n" % (len(each), each) for each in WORDS))
        call.chunk(TOLD + DONE)
        call.send(b"0\r\n\r\n")

    async def check():
        async with served(tmp_path, access=None, behave=several) as (router, _):
            answer = await ask(router.port, post(chat(stream=True)))
            assert answer.body == PLAIN

    run(check())


@pytest.mark.parametrize("how", [CachedTokens.HIDDEN, CachedTokens.ROUNDED])
def test_what_is_hidden_stays_hidden(tmp_path, how):
    async def check():
        async with served(tmp_path, rules=CallerRules(cached_tokens=how)) as (router, _):
            answer = await ask(router.port, post(chat(stream=True), A, "X-PromptGroup-Usage: true"))
            assert answer.body.startswith(PLAIN)
            assert b": x-promptgroup-usage: prompt=40, " in answer.body
            assert b"32" not in answer.body
            assert used(router) == (40, 3, 0)

    run(check())


def test_a_stream_that_is_cut_is_counted_and_charged_by_its_events(tmp_path):
    async def cut(call: Call) -> None:
        call.begin_stream()
        for each in WORDS:
            call.chunk(each)
        await call.writer.drain()
        call.reset()

    async def check():
        rules = CallerRules(default=CallerLimits(tokens_per_minute=10_000))
        async with served(tmp_path, behave=cut, rules=rules) as (router, _):
            with pytest.raises((EOFError, ConnectionError)):
                await ask(router.port, post(chat(stream=True), A))
            await until(lambda: used(router)[2] == 1, "the end of the request")
            prompt, answer, _ = used(router)
            assert answer == 3
            assert 5 <= prompt <= 40
            (account,) = router.state.features.limiter._accounts.values()
            assert account.minute_tokens == prompt + answer

    run(check())
