"""Routers ask each other on a port that nobody else can speak on, or listen to."""

import asyncio
import ssl

import pytest

from promptgroup_router.base.authorities import client_context
from promptgroup_router.feed.certificate_feed import show
from promptgroup_router.flights.peer_port import NAME, PEER, PeerPort, identity
from support.answered import Oracle, exact, keeping, said
from support.answering_fleet import knowing_each_other
from support.fakeengine import engines, until
from support.redisserver import line_to
from support.wire import ask, post, run

KEY = b"k" * 32


def towards(secret: bytes, own: bytes | None) -> ssl.SSLContext:
    """What one who has a secret trusts, and shows of another."""
    context = client_context(identity(secret)[0])
    if own is not None:
        show(context, *identity(own))
    return context


def test_all_who_have_the_secret_are_one_and_nobody_else_is():
    assert identity(KEY) == identity(KEY)
    assert identity(KEY)[0] != identity(b"j" * 32)[0]


def test_without_a_secret_nobody_is_asked():
    assert PeerPort("127.0.0.1").context(PEER.bundle) is None


async def said_to(port: int, context: ssl.SSLContext | None, data: bytes) -> bytes:
    """What a stranger hears."""
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=NAME if context is not None else None
        )
    except OSError:
        return b""
    try:
        writer.write(data)
        return await reader.read()
    except OSError:
        return b""
    finally:
        writer.transport.abort()


REQUEST = post(exact())


@pytest.mark.heavy
@pytest.mark.parametrize(
    "context",
    [None, towards(KEY, None), towards(KEY, b"j" * 32), towards(b"j" * 32, b"j" * 32)],
    ids=["plain", "no certificate", "another certificate", "another secret"],
)
def test_whoever_has_not_the_secret_is_neither_heard_nor_answered(tmp_path, context):
    async def inside() -> None:
        oracle = Oracle()
        async with engines(1, oracle) as (engine,), knowing_each_other(tmp_path, keeping(engine.address)) as routers:
            port = routers[0].core.peering.port
            assert b"HTTP" not in await said_to(port, context, REQUEST)
            assert oracle.inferences == 0
            trusted = towards(KEY, KEY)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname=NAME)
            writer.write(REQUEST)
            assert b"200" in await reader.readline()
            assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
            writer.transport.abort()

    run(inside())


def test_who_stands_between_routers_reads_nothing_and_can_play_nothing_again(tmp_path):
    async def inside() -> None:
        oracle, heard = Oracle(), bytearray()
        async with (
            engines(1, oracle) as (engine,),
            knowing_each_other(tmp_path, keeping(engine.address), count=2) as (one, two),
            line_to(two.core.peering.port) as line,
        ):
            pump = line._pump

            async def tapped(source, sink, *, late):
                read = source.read

                async def tap(size):
                    data = await read(size)
                    if not late:
                        heard.extend(data)
                    return data

                source.read = tap
                await pump(source, sink, late=late)

            line._pump = tapped
            address = f"127.0.0.1:{line.port}"
            one.answers.home, one.answers.lives = (lambda _: address), (lambda _: True)
            answered = await ask(one.port, post(exact("a private question")))
            assert said(answered.body) == "a private question #1"
            assert two.state.metrics.responses.values[("chat/support", "miss")] == 1, "the other one was asked"
            assert heard
            assert b"private" not in heard
            two.answers.keep_groups({})
            assert b"HTTP" not in await said_to(two.core.peering.port, None, bytes(heard))
            assert oracle.inferences == 1
            one._peer_connections.close()

    run(inside())


@pytest.mark.heavy
def test_routers_know_each_other_by_a_new_secret_once_they_have_it(tmp_path):
    async def inside() -> None:
        oracle = Oracle()
        async with (
            engines(1, oracle) as (engine,),
            knowing_each_other(tmp_path, keeping(engine.address), count=2) as routers,
        ):
            before = [router._peer_port.context(PEER.bundle) for router in routers]
            await asyncio.gather(*(ask(router.port, post(exact())) for router in routers))
            (tmp_path / "key").write_bytes(b"n" * 32)
            await until(
                lambda: all(
                    router._peer_port.context(PEER.bundle) is not old
                    for router, old in zip(routers, before, strict=True)
                ),
                "the new secret",
            )
            await until(lambda: all(router._peer_port.is_open for router in routers), "their ports")
            port = routers[0].core.peering.port
            assert b"HTTP" not in await said_to(port, towards(KEY, KEY), REQUEST), "the old one is worth nothing"
            for n in range(8):
                both = await asyncio.gather(*(ask(router.port, post(exact(f"new {n}"))) for router in routers))
                assert len({said(answer.body) for answer in both}) == 1, "each question is computed once"

    run(inside())
