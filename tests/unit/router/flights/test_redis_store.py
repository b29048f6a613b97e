"""The store that routers share, on a server that does what a test tells it, and on a real one where there is one."""

import asyncio
import contextlib

import pytest
from redis.asyncio import Redis

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.flights.answer_store import AnswerName
from promptgroup_router.flights.redis_store import LATE_IN_A_ROW, PREFIX, RedisStore, pattern, stored_name
from promptgroup_router.response_cache.purge import Purge
from promptgroup_router.response_cache.sealing import Seal
from support.answered import Oracle, exact, keeping, said
from support.answering_fleet import knowing_each_other
from support.asks import answer
from support.fakeengine import engines, until
from support.redisserver import line_to, real, redis_server, store_at
from support.wire import ask, post

KEPT = answer(1, born=1.0)
NAME = AnswerName(KEPT.group, KEPT.revision, KEPT.key)


def plainly(test) -> None:
    """Run a coroutine on asyncio's own loop, which says what is left open."""

    async def limited() -> None:
        async with asyncio.timeout(120):
            await test

    asyncio.run(limited())


@contextlib.asynccontextmanager
async def storing(port: int, secret: bytes = b"k" * 32, **fields):
    store = RedisStore(store_at(port, **fields), metrics := Metrics())
    store.rekey(secret)
    try:
        yield store, metrics.responses_store
    finally:
        await store.close()
        assert not store._tasks


async def asked(store, name: AnswerName = NAME):
    """What a store answers; `left alone` if it is not asked."""
    found = asyncio.get_running_loop().create_future()
    if store.get(name, found.set_result) is None:
        return "left alone"
    return await found


async def silent(reader, _writer):
    await reader.read()


async def closing(_reader, _writer):
    pass


async def garbage(reader, writer):
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


@contextlib.asynccontextmanager
async def serving(behaviour):
    """The port of a server that does this with each connection."""
    running = 0

    async def serve(reader, writer):
        nonlocal running
        running += 1
        with contextlib.suppress(ConnectionError):
            await behaviour(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        running -= 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await until(lambda: not running, "connections to end")


def test_names_say_what_purges_need_and_nothing_of_requests():
    seal = Seal(b"secret", bytes)
    name = stored_name(seal, NAME)
    assert name == f"promptgroup:response:{seal.installation}:chat/support:aaaaaaaa:{seal.hidden(KEPT.key)}"
    assert pattern(seal, Purge()) == f"promptgroup:response:{seal.installation}:*:*:*"
    of = Purge(group="chat/support", revision="aaaaaaaa")
    assert pattern(seal, of) == f"promptgroup:response:{seal.installation}:chat/support:aaaaaaaa:*"
    assert pattern(seal, Purge(key=KEPT.key)).endswith(f":*:{seal.hidden(KEPT.key)}")


@pytest.mark.parametrize("behaviour", [closing, garbage])
def test_a_store_that_fails_is_left_alone(behaviour):
    async def inside() -> None:
        async with serving(behaviour) as port, storing(port, timeout=10.0) as (store, counted):
            assert await asked(store) is None
            for _ in range(5):
                assert await asked(store) == "left alone"
                store.put(KEPT)
            assert (
                counted.values["get", "failed"],
                counted.values["get", "skipped"],
                counted.values["put", "skipped"],
            ) == (1, 5, 5)
            assert store._metrics.responses_store_up.values == {(): 0}

    plainly(inside())


@pytest.mark.heavy
def test_nobody_waits_for_a_store_that_hangs_beyond_the_limit_and_soon_nobody_asks_it():
    async def inside() -> None:
        async with serving(silent) as port, storing(port) as (store, counted):
            for _ in range(LATE_IN_A_ROW):
                assert await asked(store) is None
            assert await asked(store) == "left alone"
            assert counted.values["get", "late"] == LATE_IN_A_ROW

    plainly(inside())


def test_without_a_secret_nothing_is_asked_or_kept():
    async def inside() -> None:
        store = RedisStore(store_at(1), Metrics())
        assert await asked(store) == "left alone"
        store.put(KEPT)
        assert await store.purge(Purge()) == 0
        assert not store._tasks
        await store.close()

    plainly(inside())


def test_a_purge_of_a_store_that_is_away_says_so():
    async def inside() -> None:
        async with storing(1) as (store, counted):
            with pytest.raises(OSError, match="does not purge"):
                await store.purge(Purge())
            assert counted.values["purge", "failed"] == 1

    plainly(inside())


@pytest.mark.heavy
def test_a_question_that_is_called_off_is_not_answered():
    async def inside() -> None:
        async with serving(silent) as port, storing(port) as (store, _):
            found = []
            store.get(NAME, found.append)()
            await until(lambda: not store._reading, "the question to end")
            assert found == []

    plainly(inside())


@real
def test_routers_share_answers_by_a_real_server_and_purge_them(tmp_path):
    async def inside() -> None:
        async with (
            redis_server(tmp_path) as server,
            storing(server.port, timeout=10.0) as (one, _),
            storing(server.port, timeout=10.0) as (two, counted),
            storing(server.port, b"another secret", timeout=10.0) as (foreign, _),
        ):
            one.put(KEPT)
            await until(lambda: not one._tasks, "the answer to be written")
            assert await asked(two) == KEPT
            assert await asked(foreign) is None
            assert counted.values["get", "ok"] == 1
            assert await two.purge(Purge(group="chat/other")) == 0
            one.put(KEPT)  # a purge does not overtake what waits to be written
            assert await one.purge(Purge(group=KEPT.group)) == 1
            assert await asked(one) is None

    plainly(inside())


@pytest.mark.heavy
@real
def test_whoever_writes_to_the_store_cannot_speak_for_the_engine(tmp_path):
    async def inside() -> None:
        async with redis_server(tmp_path) as server, storing(server.port, timeout=10.0) as (store, _):
            store.put(KEPT)
            other = answer(2)
            store.put(other)
            await until(lambda: not store._tasks, "the answers to be written")
            async with Redis(port=server.port) as enemy:
                mine, yours = (stored_name(store._seal, AnswerName(a.group, a.revision, a.key)) for a in (KEPT, other))
                assert mine.startswith(PREFIX)
                value = await enemy.get(yours)
                assert 0 < await enemy.pttl(yours) <= 60_000
                for forged in (value, b"", b"x" * 50 * 2**20, value[:-1], b"\x02" + value[1:]):
                    await enemy.set(mine, forged)
                    assert await asked(store) is None
                await enemy.delete(mine)
                await enemy.lpush(mine, "of another type")
                assert await asked(store) is None
                assert await asked(store, AnswerName(other.group, other.revision, other.key)) == other
            assert not store.away

    plainly(inside())


@pytest.mark.heavy
@real
@pytest.mark.parametrize("purge", [Purge(), Purge(group=KEPT.group), Purge(key=KEPT.key)])
def test_a_purge_leaves_the_answers_of_other_clusters_alone(tmp_path, purge):
    async def inside() -> None:
        async with (
            redis_server(tmp_path) as server,
            storing(server.port, b"a" * 32, timeout=10.0) as (one, _),
            storing(server.port, b"b" * 32, timeout=10.0) as (another, _),
        ):
            for store in (one, another):
                store.put(KEPT)
                await until(lambda store=store: not store._tasks, "the answer to be written")
            assert await one.purge(purge) == 1
            assert await asked(one) is None
            assert await asked(another) == KEPT

    plainly(inside())


# --- A real server that fails, before three routers ------------------------------------------------------------------

CLIENTS = 12


async def load(routers, first: int, count: int) -> None:
    """So many requests to all routers, each question twice; none may fail or get another's answer."""
    numbers = iter(range(first, first + count))

    async def client(number: int) -> None:
        for each in numbers:
            question = f"question-{each // 2}"
            answered = await ask(routers[(number + each) % len(routers)].port, post(exact(question)))
            assert answered.status == 200
            assert said(answered.body).startswith(f"{question} #")

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))


def counts(routers, operation: str, result: str) -> int:
    return sum(int(router.state.metrics.responses_store.values.get((operation, result), 0)) for router in routers)


async def kill(server, _line) -> None:
    await server.kill()


async def slow(_server, line) -> None:
    line.delay = 1.0


async def cut(_server, line) -> None:
    line.cut = True


async def full(server, _line) -> None:
    async with Redis(port=server.port) as admin:
        await admin.config_set("maxmemory", "1mb")


async def flushed(server, _line) -> None:
    async with Redis(port=server.port) as admin:
        await admin.flushall()


async def another_password(server, _line) -> None:
    async with Redis(port=server.port) as admin:
        await admin.config_set("requirepass", "another")
    async with Redis(port=server.port, password="another") as admin:
        await admin.client_kill_filter(_type="normal", skipme=True)


async def survives(fault, server, line, routers) -> None:
    await load(routers, 0, 120)
    assert counts(routers, "put", "ok") > 0
    before = counts(routers, "get", "late")
    await fault(server, line)
    await load(routers, 1000, 300)
    waited = counts(routers, "get", "late") - before
    assert waited <= len(routers) * (LATE_IN_A_ROW + CLIENTS), "a store that is late is left alone"
    if fault is full:
        assert counts(routers, "put", "refused") > 0
    elif fault is not flushed:
        assert any(router.answers.store.away for router in routers)
    if fault is kill:
        await server.start()
    line.delay, line.cut = 0.0, False
    if fault is not another_password:
        await until(lambda: not any(each.answers.store.away for each in routers), "the store to be used", 60)
    asked_before = counts(routers, "get", "absent") + counts(routers, "get", "ok")
    await load(routers, 2000, 60)
    assert (counts(routers, "get", "absent") + counts(routers, "get", "ok") > asked_before) == (
        fault is not another_password
    )


@real
@pytest.mark.slow
@pytest.mark.parametrize("fault", [kill, slow, cut, full, flushed, another_password])
def test_no_request_fails_by_a_store_that_does_and_few_wait_for_it(tmp_path, fault):
    async def inside() -> None:
        oracle = Oracle()
        async with (
            redis_server(tmp_path) as server,
            line_to(server.port) as line,
            engines(1, oracle) as (engine,),
        ):
            # a limit that a busy machine does not exceed by itself
            of = {"responses_store": store_at(line.port, timeout=0.4)}
            async with knowing_each_other(tmp_path, keeping(engine.address), **of) as routers:
                await survives(fault, server, line, routers)

    plainly(inside())


@real
def test_a_router_that_starts_finds_what_others_have_kept(tmp_path):
    async def inside() -> None:
        oracle = Oracle()
        async with redis_server(tmp_path) as server, engines(1, oracle) as (engine,):
            of = {"responses_store": store_at(server.port, timeout=10.0), "responses_memory_bytes": 0}
            for results in ([b"fwd=miss", b"hit"], [b"hit", b"hit"]):
                async with knowing_each_other(tmp_path, keeping(engine.address), count=2, **of) as routers:
                    for router, result in zip(routers, results, strict=True):
                        answered = await ask(router.port, post(exact(stream=True)))
                        assert said(answered.body) == "Hi #1"
                        assert result in answered.headers[b"cache-status"]
                        await until(lambda: not any(each.answers.store._tasks for each in routers), "a write")
            assert oracle.inferences == 1, "memory of none, and all by the store"

    plainly(inside())
