"""How an answer is got: from the key's home, from a store, or from an engine."""

import asyncio
import collections
from dataclasses import replace

import orjson
import pytest

from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_router.flights import errand
from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey
from support.accesslog import access_lines
from support.answered import Oracle, exact, keeping, said
from support.answering_fleet import knowing_each_other
from support.fakeengine import engines, until
from support.wire import ask, connected, post, routing, run

STATUS = b"cache-status"
NOBODY = "127.0.0.1:1"
"""An address at which nobody listens."""


def results(router) -> dict:
    return {result: count for (_, result), count in router.state.metrics.responses.values.items()}


def home_of(routers, key: bytes):
    """The router that answers for a key."""
    return next(router for router in routers if router.answers.home(CacheKey(key)) is None)


@pytest.mark.heavy
def test_equal_requests_to_several_routers_are_one_inference(tmp_path):
    async def inside() -> None:
        oracle = Oracle()
        async with engines(1, oracle) as (engine,), knowing_each_other(tmp_path, keeping(engine.address)) as routers:
            oracle.gate.clear()
            asking = [asyncio.ensure_future(ask(routers[n % 3].port, post(exact(stream=True)))) for n in range(60)]
            await until(lambda: sum(sum(results(router).values()) for router in routers) >= 62, "all to be on the way")
            oracle.gate.set()
            answers = await asyncio.gather(*asking)
            assert oracle.inferences == 1
            assert {said(answer.body) for answer in answers} == {"Hi #1"}
            assert len({answer.body for answer in answers}) == 60, "each has ids of its own"
            assert all(answer.body.endswith(b"data: [DONE]\n\n") for answer in answers)
            found = collections.Counter()
            for router in routers:
                found.update(results(router))
            assert found["miss"] == 1
            assert found["forwarded"] == 2
            again = await asyncio.gather(*(ask(router.port, post(exact(stream=True))) for router in routers))
            assert all(b"hit" in answer.headers[STATUS] for answer in again), "each has kept it"

    run(inside())


@pytest.mark.heavy
def test_a_home_that_is_gone_costs_nobody_an_answer(tmp_path):
    async def inside() -> None:
        oracle = Oracle()
        async with engines(1, oracle) as (engine,), knowing_each_other(tmp_path, keeping(engine.address)) as routers:
            first = await ask(routers[0].port, post(exact()))
            home = home_of(routers, bytes.fromhex(first.headers[b"x-promptgroup-cache-key"].decode()))
            other = next(router for router in routers if router is not home)
            home._peer_port.close()
            home._peer_clients.abort()
            new = await ask(other.port, post(exact(), "Cache-Control: no-cache"))
            assert (new.status, said(new.body)) == (200, "Hi #2")
            assert new.headers[STATUS] == b"promptgroup; fwd=request"

    run(inside())


@pytest.mark.heavy
def test_a_home_without_the_group_turns_away_and_the_answer_is_computed_here(tmp_path):
    async def inside() -> None:
        oracle = Oracle()
        async with engines(1, oracle) as (engine,), knowing_each_other(tmp_path, keeping(engine.address)) as routers:
            first = await ask(routers[0].port, post(exact()))
            home = home_of(routers, bytes.fromhex(first.headers[b"x-promptgroup-cache-key"].decode()))
            home.state.install(keeping(engine.address, system="Another prompt."), "test", 0.0)
            other = next(router for router in routers if router is not home)
            new = await ask(other.port, post(exact(), "Cache-Control: no-cache"))
            assert new.status == 200
            assert results(other)["miss"] >= 1

    run(inside())


class Shelf:
    """A store that answers when a test says so."""

    def __init__(self) -> None:
        self.kept: list[KeptAnswer] = []
        self.asked: list = []
        self.called_off = 0

    def get(self, name, found):
        self.asked.append((name, found))
        return self.call_off

    def call_off(self) -> None:
        self.called_off += 1

    def put(self, answer) -> None:
        self.kept.append(answer)


def test_routers_that_take_each_other_for_the_home_do_not_wait_for_each_other(tmp_path):
    def address_of_the_other(router):
        homes = (router.answers.home(CacheKey(bytes([n]) * 32)) for n in range(256))
        return next(home for home in homes if home is not None)

    async def inside() -> None:
        oracle = Oracle()
        async with (
            engines(1, oracle) as (engine,),
            knowing_each_other(tmp_path, keeping(engine.address), count=2) as routers,
        ):
            for router in routers:  # as for a moment when their tables, and so their keys, differ
                other = address_of_the_other(router)
                router.answers.home = lambda _key, other=other: other
            for n in range(20):
                both = await asyncio.gather(*(ask(router.port, post(exact(f"Hi {n}"))) for router in routers))
                assert [answer.status for answer in both] == [200, 200]

    run(inside())


def test_an_answer_of_the_store_is_given_and_kept_here_too(tmp_path):
    async def inside() -> None:
        oracle, shelf = Oracle(), Shelf()
        async with engines(1, oracle) as (engine,), routing(tmp_path, keeping(engine.address)) as router:
            router.answers.store = shelf
            asking = asyncio.ensure_future(ask(router.port, post(exact())))
            await until(lambda: shelf.asked, "the store to be asked")
            shelf.asked[0][1](None)
            assert said((await asking).body) == "Hi #1"
            (kept,) = shelf.kept
            router.answers.keep_groups({})
            asking = asyncio.ensure_future(ask(router.port, post(exact())))
            await until(lambda: len(shelf.asked) == 2, "the store to be asked")
            shelf.asked[1][1](kept)
            again = await asking
            assert (said(again.body), oracle.inferences) == ("Hi #1", 1)
            assert b"hit" in again.headers[STATUS]
            assert len(shelf.kept) == 1
            third = await ask(router.port, post(exact()))
            assert b"hit" in third.headers[STATUS]
            assert len(shelf.asked) == 2
            assert results(router) == {"miss": 1, "hit_store": 1, "hit": 1}

    run(inside())


def test_an_answer_that_is_computed_for_an_unreached_home_goes_to_the_store(tmp_path):
    async def inside() -> None:
        oracle, shelf = Oracle(), Shelf()
        async with engines(1, oracle) as (engine,), routing(tmp_path, keeping(engine.address)) as router:
            router.answers.store, router.answers.home = shelf, lambda _key: NOBODY
            asking = asyncio.ensure_future(ask(router.port, post(exact())))
            await until(lambda: shelf.asked, "the store to be asked")
            shelf.asked[0][1](None)
            assert said((await asking).body) == "Hi #1"
            assert len(shelf.kept) == 1

    run(inside())


def test_who_has_waited_for_a_home_for_too_long_waits_for_no_engine(tmp_path, monkeypatch):
    monkeypatch.setattr(errand, "PATIENCE_SECONDS", -1.0)

    async def inside() -> None:
        oracle = Oracle()
        async with engines(1, oracle) as (engine,), routing(tmp_path, keeping(engine.address)) as router:
            router.answers.home = lambda _key: NOBODY
            answer = await ask(router.port, post(exact()))
            assert (answer.status, orjson.loads(answer.body)["error"]["code"]) == (504, "timeout")
            assert oracle.inferences == 0

    run(inside())


def test_a_shorter_lifetime_holds_for_what_the_store_has(tmp_path):
    async def inside() -> None:
        oracle, shelf = Oracle(), Shelf()
        async with engines(1, oracle) as (engine,), routing(tmp_path, keeping(engine.address, ttl=86400)) as router:
            router.answers.store = shelf
            asking = asyncio.ensure_future(ask(router.port, post(exact())))
            await until(lambda: shelf.asked, "the store to be asked")
            shelf.asked[0][1](None)
            await asking
            old = replace(shelf.kept[0], born=shelf.kept[0].born - 3600)
            router.answers.keep_groups({})
            for ttl, text in ((7200, "Hi #1"), (60, "Hi #2")):
                router.state.install(keeping(engine.address, ttl=ttl, version=f"of {ttl}"), "test", 0.0)
                shelf.asked.clear()
                asking = asyncio.ensure_future(ask(router.port, post(exact())))
                await until(lambda: shelf.asked, "the store to be asked")
                shelf.asked[0][1](old)
                assert said((await asking).body) == text
            assert results(router) == {"miss": 2, "hit_store": 1}

    run(inside())


def test_a_store_is_not_waited_for_by_those_who_have_left(tmp_path):
    async def inside() -> None:
        oracle, shelf = Oracle(), Shelf()
        async with engines(1, oracle) as (engine,), routing(tmp_path, keeping(engine.address)) as router:
            router.answers.store = shelf
            async with connected(router.port) as client:
                client.send(post(exact()))
                await until(lambda: shelf.asked, "the store to be asked")
            await until(lambda: shelf.called_off, "the question to be called off")
            assert oracle.inferences == 0

    run(inside())


def test_an_answer_is_computed_on_the_account_of_a_client_that_is_still_here(tmp_path):
    """The first client has left while the store was asked, and has its tokens back."""

    async def inside() -> None:
        oracle, shelf = Oracle(), Shelf()
        rules = CallerRules(default=CallerLimits(tokens_per_minute=10_000))
        async with (
            engines(1, oracle) as (engine,),
            routing(tmp_path, keeping(engine.address, callers=rules)) as router,
        ):
            router.answers.store = shelf
            with access_lines() as lines:
                async with connected(router.port) as first, connected(router.port) as second:
                    first.send(post(exact()))
                    await until(lambda: shelf.asked, "the store to be asked")
                    (account,) = router.state.features.limiter._accounts.values()
                    second.send(post(exact(), "x-request-id: second"))
                    await until(lambda: account.in_flight == 2, "the second client to wait, too")
                    async with connected(router.port) as third:
                        third.send(post(exact()))
                        await until(lambda: account.in_flight == 3, "the third client to wait, too")
                        first.leave()
                        await until(lambda: account.in_flight == 2, "the first client to leave")
                        assert account.minute_tokens > 0, "what is reserved for those who wait"
                        shelf.asked[0][1](None)
                        computed, shared = await second.answer(), await third.answer()
            assert (oracle.inferences, account.in_flight) == (1, 0)
            assert account.minute_tokens == 43, "what the engine has told, once"
            assert computed.headers[STATUS] == b"promptgroup; fwd=miss"
            assert shared.headers[STATUS] == b"promptgroup; fwd=miss; collapsed"
            assert computed.headers[b"x-promptgroup-cache-key"] == shared.headers[b"x-promptgroup-cache-key"]
            told = {line["http.request.id"]: (event, "promptgroup.slot" in line) for event, line in lines}
            assert told["second"] == ("served", True), "an engine has served it"
            assert results(router) == {"miss": 1, "collapsed": 2}
            assert router.state.metrics.requests.values["chat/support", "200"] == 2

    run(inside())
