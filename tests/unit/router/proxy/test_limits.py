"""Limits of callers on real sockets: what clients get, and how charges end."""

from dataclasses import replace

import orjson
import pytest

from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_contract.table import ModelAlias
from support.fakeengine import Call, engines, until
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import ask, chat, connected, post, routing, run


def table_of(address: str, **limits: int):
    rules = CallerRules(default=CallerLimits(**limits))
    return table(group("support", revision(slots=(slot(0, address=address),)), callers=rules))


async def counted(call: Call) -> None:
    call.answer(orjson.dumps({"usage": {"prompt_tokens": 40, "completion_tokens": 10}}))


def test_a_third_request_of_two_a_minute_is_refused_in_the_form_of_its_api(tmp_path):
    async def check():
        async with (
            engines(1, counted) as (engine,),
            routing(tmp_path, table_of(engine.address, requests_per_minute=2, tokens_per_minute=1000)) as router,
        ):
            for left in (b"1", b"0"):
                answer = await ask(router.port, post(chat()))
                assert answer.status == 200
                assert answer.headers[b"x-ratelimit-limit-requests"] == b"2"
                assert answer.headers[b"x-ratelimit-remaining-requests"] == left
            answer = await ask(router.port, post(chat()))
            assert (answer.status, answer.json["error"]["code"]) == (429, "rate_limit_exceeded")
            assert 1 <= int(answer.headers[b"retry-after"]) <= 61
            assert answer.headers[b"x-ratelimit-remaining-tokens"] == b"900"
            body = {"model": "llama", "max_tokens": 5, "system": SYSTEM, "messages": [{"role": "user", "content": "x"}]}
            answer = await ask(router.port, post(body, path="/v1/messages"))
            assert (answer.status, answer.json["error"]["type"]) == (429, "rate_limit_error")
            assert b"retry-after" in answer.headers
            assert len(engine.requests) == 2
            text = router.state.exposition(0.0, 0)
            assert 'limited_requests_total{group="chat/support",caller="",code="rate_limit_exceeded"} 2' in text

    run(check())


@pytest.mark.parametrize("end", ["answered", "refused by the engine", "reset by the engine", "left by the client"])
def test_a_request_is_in_flight_until_it_ends_in_whatever_way(tmp_path, end):
    async def behave(call: Call) -> None:
        if end == "answered":
            call.answer()
        elif end == "refused by the engine":
            call.answer(b"{}", 400)
        elif end == "reset by the engine":
            call.reset()
        else:
            await call.client_gone()

    async def check():
        async with (
            engines(1, behave) as (engine,),
            routing(tmp_path, table_of(engine.address, in_flight=1)) as router,
        ):
            limiter = router.state.features.limiter
            async with connected(router.port) as client:
                client.send(post(chat()))
                await until(lambda: engine.requests, "the request")
                if end != "left by the client":
                    await client.answer()
            (account,) = limiter._accounts.values()
            await until(lambda: account.in_flight == 0, "its end")

    run(check())


def test_requests_that_no_group_declares_have_limits_too(tmp_path):
    async def check():
        async with (
            engines(1, counted) as (engine,),
            routing(tmp_path, table_of(engine.address, requests_per_minute=1)) as router,
        ):
            assert (await ask(router.port, post(chat(system="")))).status == 200
            assert (await ask(router.port, post(chat(system="")))).status == 429
            assert (await ask(router.port, post(chat()))).status == 200

    run(check())


EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'


async def streams_unasked(call: Call) -> None:
    call.begin_stream()
    for _ in range(60):
        call.chunk(EVENT)
    call.send(b"0\r\n\r\n")


def test_a_stream_that_nobody_asked_for_is_charged_by_its_events(tmp_path):
    async def check():
        async with (
            engines(1, streams_unasked) as (engine,),
            routing(tmp_path, table_of(engine.address, tokens_per_minute=10_000)) as router,
        ):
            await ask(router.port, post(chat(max_tokens=1)))
            answer = await ask(router.port, post(chat(max_tokens=1)))
            assert int(answer.headers[b"x-ratelimit-remaining-tokens"]) < 10_000 - 60

    run(check())


def test_an_alias_is_charged_to_the_account_of_the_model(tmp_path):
    async def check():
        async with engines(1, counted) as (engine,):
            (limited,) = table_of(engine.address, requests_per_minute=2).groups
            async with routing(tmp_path, table(replace(limited, aliases=(ModelAlias("gpt"),)))) as router:
                for system in (SYSTEM, "Nobody declares this."):
                    asked = [await ask(router.port, post(chat(system=system, model=each))) for each in ("llama", "gpt")]
                    assert [each.headers[b"x-ratelimit-remaining-requests"] for each in asked] == [b"1", b"0"]
                    refused = await ask(router.port, post(chat(system=system, model="gpt")))
                    assert (refused.status, refused.json["error"]["code"]) == (429, "rate_limit_exceeded")

    run(check())


BACKGROUND = {"model": "llama", "instructions": SYSTEM, "input": "Hi"}
LIMITS = {"in_flight": 1, "tokens_per_minute": 10_000, "tokens_per_day": 10_000}


SIZES = pytest.mark.parametrize("size", [1, pytest.param(300_000, id="large", marks=pytest.mark.heavy)])


@SIZES
@pytest.mark.parametrize("limit", [*LIMITS, "requests_per_minute"])
def test_what_goes_on_unseen_is_refused_where_its_end_is_limited(tmp_path, limit, size):
    async def check():
        limits = {limit: LIMITS.get(limit, 10)}
        async with engines(1, counted) as (engine,), routing(tmp_path, table_of(engine.address, **limits)) as router:
            for value in (True, "on", 1.0):
                body = BACKGROUND | {"background": value, "input": "x" * size}
                answer = await ask(router.port, post(body, path="/v1/responses"))
                if limit not in LIMITS:
                    assert answer.status == 200
                    continue
                error = answer.json["error"]
                assert (answer.status, error["code"], error["param"]) == (400, "background_not_supported", "background")
                assert "leave background out" in error["message"]
                assert not engine.requests
                assert not router.state.features.limiter._named
            body = BACKGROUND | {"background": "off"}
            assert (await ask(router.port, post(body, path="/v1/responses"))).status == 200

    run(check())


@SIZES
def test_eight_answers_that_are_asked_for_by_a_text_are_charged_as_eight(tmp_path, size):
    async def behave(call: Call) -> None:
        await call.client_gone()

    async def check():
        async with (
            engines(1, behave) as (engine,),
            routing(tmp_path, table_of(engine.address, tokens_per_minute=1_000_000)) as router,
            connected(router.port) as client,
        ):
            client.send(post(chat("x" * size, n="8", max_tokens="500", stream=True)))
            await until(lambda: engine.requests, "the request")
            (account,) = router.state.features.limiter._named["chat/support"].values()
            assert account.open_tokens == 4000

    run(check())
