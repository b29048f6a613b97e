"""The client of a store: what settings make of it, and replies that no server would send."""

import asyncio

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from promptgroup_router.flights.redis_client import FAILURES, MOST_REPLY_BYTES, connect, disconnect
from support.redisserver import real, redis_server, store_at
from support.tlsfiles import TlsFiles
from support.wire import run

PATIENT = {"timeout": 5.0}
"""For tests of what a server answers, and not of when."""


async def answered(reply: bytes, **fields):
    """What a command comes to on a server that says this to everything."""

    async def serve(reader, writer):
        while await reader.read(4096):
            writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = connect(store_at(server.sockets[0].getsockname()[1], **fields))
    try:
        return await client.getrange("name", 0, 100)
    finally:
        await disconnect(client)
        server.close()


@pytest.mark.heavy
@pytest.mark.parametrize(
    "reply",
    [
        b"$%d\r\n" % 10**12,
        b"$-2\r\n",
        b"$x\r\n",
        b"*%d\r\n" % 10**9 + b":1\r\n" * 300_000,
        b"*1\r\n" * 20_000,
        b"+" + b"x" * 100_000,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\xff\r\n",
        b"-ERR no\r\n",
        b"",
    ],
)
@pytest.mark.parametrize("kind", ["", "cluster"])
def test_a_reply_that_no_server_sends_is_an_error_soon(reply, kind):
    async def inside() -> None:
        with pytest.raises(FAILURES):
            await answered(reply, kind=kind)

    run(inside())


def test_a_value_is_read_up_to_the_limit_of_a_reply():
    async def inside() -> None:
        assert await answered(b"$5\r\nhello\r\n", **PATIENT) == b"hello"
        large = MOST_REPLY_BYTES - 10_000
        assert len(await answered(b"$%d\r\n%b\r\n" % (large, bytes(large)), **PATIENT)) == large

    run(inside())


def test_settings_name_a_client():
    async def inside() -> None:
        plain = connect(store_at(7000, user="ann", database=2))
        arguments = plain.connection_pool.connection_kwargs
        assert (arguments["host"], arguments["port"], arguments["db"]) == ("127.0.0.1", 7000, 2)
        assert await arguments["credential_provider"].get_credentials_async() == ("ann", "")
        assert isinstance(connect(store_at(1, kind="cluster")), RedisCluster)
        sentinel = connect(store_at(1, kind="sentinel", service="answers"))
        assert sentinel.connection_pool.service_name == "answers"

    run(inside())


async def keeps_a_value(client) -> None:
    assert await client.getrange("promptgroup:response:x", 0, 9) in (b"", "")
    await client.set("promptgroup:response:x", b"0123456789abc", px=60_000)
    assert await client.getrange("promptgroup:response:x", 0, 9) == b"0123456789"
    assert [name async for name in client.scan_iter(match="promptgroup:response:*", count=10)] == [
        b"promptgroup:response:x"
    ]
    async with client.pipeline(transaction=False) as pipe:
        pipe.execute_command("UNLINK", b"promptgroup:response:x")
        assert await pipe.execute() == [1]
    assert await client.ping()
    await disconnect(client)


@real
def test_a_user_with_the_documented_rights_by_tls_with_a_certificate_of_its_own(tmp_path):
    async def inside() -> None:
        tls = TlsFiles(tmp_path / "secret")
        (tmp_path / "secret" / "ca.crt").write_bytes(tls.cert.read_bytes())
        (tmp_path / "secret" / "password").write_text("right\n")
        rights = ("on", ">right", "~promptgroup:response:*", "+getrange", "+set", "+unlink", "+scan", "+ping")
        async with redis_server(tmp_path, "--user", "ann", *rights, tls=tls) as server:
            of = {"tls": True, "user": "ann", "secrets": tmp_path / "secret"} | PATIENT
            await keeps_a_value(connect(store_at(server.port, **of)))
            (tmp_path / "secret" / "password").write_text("wrong\n")
            client = connect(store_at(server.port, **of))
            with pytest.raises(AuthenticationError):
                await client.ping()
            await disconnect(client)
            (tmp_path / "secret" / "ca.crt").unlink()
            client = connect(store_at(server.port, **of))
            with pytest.raises(RedisConnectionError, match="certificate"):
                await client.ping()
            await disconnect(client)

    run(inside())


@pytest.mark.heavy
@real
def test_a_cluster(tmp_path):
    async def inside() -> None:
        async with redis_server(tmp_path, "--cluster-enabled", "yes") as server:
            admin = Redis(port=server.port)
            await admin.execute_command("CLUSTER ADDSLOTSRANGE 0 16383")
            while "ok" not in (await admin.execute_command("CLUSTER INFO"))["cluster_state"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await admin.aclose()
            await keeps_a_value(connect(store_at(server.port, kind="cluster", **PATIENT)))

    run(inside())


@real
def test_the_server_that_sentinels_name(tmp_path):
    async def inside() -> None:
        file = tmp_path / "sentinel.conf"
        async with redis_server(tmp_path) as server:
            file.write_text(f"sentinel monitor answers 127.0.0.1 {server.port} 1\n")
            async with redis_server(tmp_path, str(file), "--sentinel") as sentinel:
                await keeps_a_value(connect(store_at(sentinel.port, kind="sentinel", service="answers", **PATIENT)))

    run(inside())
