"""Answers on their way: which may be joined, and which of them is kept."""

import asyncio

import orjson
import pytest

from promptgroup_router.response_cache.memory import Memory
from support.answered import Oracle, exact, keeping, said
from support.fakeengine import engines, until
from support.wire import ask, post, routing, run

STATUS = b"cache-status"
NO_CACHE = "Cache-Control: no-cache"


class Gated:
    """An engine whose answers come when a test says so, and have numbers in the order in which it was asked."""

    def __init__(self, count: int) -> None:
        self.gates = [asyncio.Event() for _ in range(count)]
        self.asked = 0

    async def __call__(self, call) -> None:
        number = self.asked
        self.asked += 1
        await self.gates[number].wait()
        choice = {"index": 0, "message": {"role": "assistant", "content": f"#{number}"}, "finish_reason": "stop"}
        call.answer(orjson.dumps({"id": f"chatcmpl-{number}", "choices": [choice]}))


class Shelf:
    """A store that has nothing, and notes what is written."""

    def __init__(self) -> None:
        self.kept = []

    def get(self, _name, _found):
        return None

    def put(self, answer) -> None:
        self.kept.append(said(b"".join(answer.pieces)))


def gated(tmp_path, test, count=3):
    """Run a test against a router with a store, and one engine."""

    async def inside() -> None:
        engine, shelf = Gated(count), Shelf()
        async with engines(1, engine) as (at,), routing(tmp_path, keeping(at.address)) as router:
            router.answers.store = shelf
            await test(router, engine, shelf)

    run(inside())


async def begun(router, engine, *fields):
    """A request that the engine has, and whose answer is awaited."""
    before = engine.asked
    asking = asyncio.ensure_future(ask(router.port, post(exact(), *fields)))
    await until(lambda: engine.asked > before, "the engine to be asked")
    return asking


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_the_answer_that_was_asked_for_last_is_kept_whichever_lands_last(tmp_path, order):
    async def test(router, engine, shelf):
        asking = [await begun(router, engine), *[await begun(router, engine, NO_CACHE) for _ in range(2)]]
        for number in order:
            engine.gates[number].set()
            assert said((await asking[number]).body) == f"#{number}", "everybody gets what was computed for it"
        kept = await ask(router.port, post(exact()))
        assert b"hit" in kept.headers[STATUS]
        assert said(kept.body) == "#2"
        newest = [max(order[: at + 1]) for at in range(3)]
        assert shelf.kept == [f"#{number}" for number, best in zip(order, newest, strict=True) if number == best]
        assert len(router.answers._errands) == 0

    gated(tmp_path, test)


def test_nobody_joins_an_answer_that_is_older_than_one_which_has_landed(tmp_path):
    async def test(router, engine, _shelf):
        router.answers._memory = Memory(0)
        older = await begun(router, engine)
        newer = await begun(router, engine, NO_CACHE)
        engine.gates[1].set()
        assert said((await newer).body) == "#1"
        third = await begun(router, engine)
        fourth = asyncio.ensure_future(ask(router.port, post(exact())))
        counts = router.state.metrics.responses
        await until(lambda: ("chat/support", "collapsed") in counts.values, "another to wait for the same answer")
        for gate in engine.gates:
            gate.set()
        assert [said((await each).body) for each in (older, third, fourth)] == ["#0", "#2", "#2"]

    gated(tmp_path, test)


def test_an_old_answer_of_the_store_takes_no_newer_one_s_place(tmp_path):
    class Slow(Shelf):
        def get(self, _name, found):
            self.found = found
            return lambda: None

        def put(self, answer):
            self.kept.append(answer)

    async def inside() -> None:
        shelf = Slow()
        async with engines(1, Oracle()) as (engine,), routing(tmp_path, keeping(engine.address)) as router:
            router.answers.store = shelf
            await ask(router.port, post(exact(), NO_CACHE))
            router.answers.keep_groups({})
            slow = asyncio.ensure_future(ask(router.port, post(exact())))
            await until(lambda: hasattr(shelf, "found"), "the store to be asked")
            assert said((await ask(router.port, post(exact(), NO_CACHE))).body) == "Hi #2"
            shelf.found(shelf.kept[0])
            assert said((await slow).body) == "Hi #1"
            kept = await ask(router.port, post(exact()))
            assert b"hit" in kept.headers[STATUS]
            assert said(kept.body) == "Hi #2"

    run(inside())
