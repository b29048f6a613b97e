"""Answers that are given although they are too old, while an engine computes them again."""

import asyncio

import pytest

from promptgroup_router.response_cache.purge import Purge
from support.answered import Oracle, exact, keeping, said
from support.answering_fleet import knowing_each_other
from support.fakeengine import engines, until
from support.wire import ask, connected, post, routing, run

STATUS = b"cache-status"
TTL, STALE = 60, 1000


class Moody(Oracle):
    """An engine that can refuse."""

    refuses = False

    async def __call__(self, call) -> None:
        if self.refuses:
            self.inferences += 1
            call.answer(b'{"error": {"message": "busy"}}', status=429)
        else:
            await super().__call__(call)


def served(tmp_path, test) -> None:
    async def inside() -> None:
        oracle = Moody()
        async with (
            engines(1, oracle) as (engine,),
            routing(tmp_path, keeping(engine.address, ttl=TTL, stale=STALE)) as router,
        ):
            await ask(router.port, post(exact()))
            await test(router, oracle, engine)

    run(inside())


def later(router, seconds: float) -> None:
    at = router.answers.wall() + seconds
    router.answers.wall = lambda: at


def results(router) -> dict:
    return {result: count for (_, result), count in router.state.metrics.responses.values.items()}


async def settled(router) -> None:
    await until(lambda: not router.answers._errands, "the new answer")
    router.answers.tick(router.core.clock())
    assert not len(router.answers._revalidations)


def test_an_old_answer_is_given_at_once_and_the_next_one_is_new(tmp_path):
    async def test(router, oracle, _engine):
        later(router, TTL + 5)
        oracle.gate.clear()
        for _ in range(3):  # at once, while an engine is asked once
            old = await ask(router.port, post(exact()))
            assert said(old.body) == "Hi #1"
            assert old.headers[STATUS].startswith(b"promptgroup; hit; ttl=-")
            assert int(old.headers[b"age"]) >= TTL
        oracle.gate.set()
        await settled(router)
        new = await ask(router.port, post(exact()))
        assert (said(new.body), oracle.inferences) == ("Hi #2", 2)
        assert results(router) == {"miss": 1, "stale": 3, "revalidated": 1, "hit": 1}

    served(tmp_path, test)


def test_nobody_gets_one_that_is_older_still_or_who_asks_for_a_younger_one(tmp_path):
    async def test(router, oracle, _engine):
        later(router, TTL + 5)
        young = await ask(router.port, post(exact(), "Cache-Control: max-age=100"))
        assert said(young.body) == "Hi #2"
        later(router, TTL + STALE + 10)
        assert said((await ask(router.port, post(exact()))).body) == "Hi #3"
        assert oracle.inferences == 3

    served(tmp_path, test)


def test_an_engine_that_fails_leaves_the_old_answer_and_is_asked_again(tmp_path):
    async def test(router, oracle, _engine):
        later(router, TTL + 5)
        oracle.refuses = True
        for count in (2, 3):
            assert said((await ask(router.port, post(exact()))).body) == "Hi #1"
            await settled(router)
            assert oracle.inferences == count

    served(tmp_path, test)


def test_a_purged_answer_is_not_given_and_no_new_one_kept_that_began_before(tmp_path):
    async def test(router, oracle, _engine):
        later(router, TTL + 5)
        oracle.gate.clear()
        await ask(router.port, post(exact()))
        await until(lambda: oracle.inferences == 2, "the engine to be asked")
        router.answers.purge(Purge())
        oracle.gate.set()
        assert said((await ask(router.port, post(exact()))).body) == "Hi #3"

    served(tmp_path, test)


def test_a_client_can_join_and_leave_what_nobody_waits_for(tmp_path):
    async def test(router, oracle, _engine):
        later(router, TTL + 5)
        oracle.gate.clear()
        await ask(router.port, post(exact()))
        async with connected(router.port) as client:
            client.send(post(exact(cache={"ttl": 50})))
            await until(lambda: results(router).get("collapsed"), "the client to join")
            client.leave()
        await asyncio.sleep(0)
        oracle.gate.set()
        await settled(router)
        assert said((await ask(router.port, post(exact()))).body) == "Hi #2"

    served(tmp_path, test)


@pytest.mark.heavy
def test_routers_revalidate_by_the_home(tmp_path):
    async def inside() -> None:
        oracle = Oracle()
        async with engines(1, oracle) as (engine,):
            of = keeping(engine.address, ttl=TTL, stale=STALE)
            async with knowing_each_other(tmp_path, of) as routers:
                for router in routers:
                    await ask(router.port, post(exact()))
                for router in routers:
                    later(router, TTL + 5)
                old = await asyncio.gather(*(ask(router.port, post(exact())) for router in routers))
                assert {said(answer.body) for answer in old} == {"Hi #1"}
                await until(lambda: not any(router.answers._errands for router in routers), "new answers")
                assert oracle.inferences == 2

    run(inside())
