"""Engines that serve TLS, behind a whole router: the same promises as without, and nothing for those nobody trusts."""

import asyncio
import contextlib

import pytest

from promptgroup_router.proxy import upstream
from support.enginecerts import BY_ADDRESS, BY_NAME, EngineCerts, secure_table, write_bundle
from support.fakeengine import engines, until
from support.slowreader import LongAnswer
from support.wire import ask, chat, connected, post, routing, run


@contextlib.asynccontextmanager
async def served(folder, *behaviours, certs=None, bundle=None, tls=BY_NAME, context=...):
    certs = certs or EngineCerts(folder / "certs")
    secrets = write_bundle(folder / "secrets", certs.ca if bundle is None else bundle)
    served_with = certs.server() if context is ... else context
    async with (
        engines(1, *behaviours, tls=served_with) as (engine,),
        routing(folder, secure_table(engine.address, tls=tls), secrets_dir=secrets) as router,
    ):
        await until(lambda: router.state.keys_tried, "the bundle to be read")
        yield router, engine


def test_requests_go_over_tls_on_kept_connections(tmp_path):
    async def test():
        async with served(tmp_path) as (router, engine), connected(router.port) as client:
            for _ in range(3):
                assert (await client.ask(post(chat()))).status == 200
            assert (len(engine.requests), engine.connections) == (3, 1)

    run(test())


def test_without_a_declared_name_the_certificate_must_have_the_engines_address(tmp_path):
    async def test():
        certs = EngineCerts(tmp_path / "certs", hosts=(), addresses=("127.0.0.1",))
        async with served(tmp_path, certs=certs, tls=BY_ADDRESS) as (router, engine):
            assert (await ask(router.port, post(chat()))).status == 200
            assert engine.requests

    run(test())


@pytest.mark.parametrize(
    ("hosts", "addresses", "tls"),
    [
        (("other.chat.svc",), (), BY_NAME),
        ((), ("127.0.0.1",), BY_NAME),
        ((BY_NAME.server_name,), (), BY_ADDRESS),
    ],
    ids=["another name", "the address where a name is declared", "a name where none is declared"],
)
def test_an_engine_of_another_name_gets_nothing(tmp_path, hosts, addresses, tls):
    async def test():
        certs = EngineCerts(tmp_path / "certs", hosts=hosts, addresses=addresses)
        async with served(tmp_path, certs=certs, tls=tls) as (router, engine):
            answer = await ask(router.port, post(chat()))
            assert answer.status == 502
            assert engine.requests == []

    run(test())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_an_engine_of_another_authority_gets_nothing_and_the_client_an_error_of_its_api(tmp_path, path):
    async def test():
        other = EngineCerts(tmp_path / "other").ca
        async with served(tmp_path, bundle=other) as (router, engine):
            answer = await ask(router.port, post(chat() | {"max_tokens": 1}, path=path))
            assert answer.status == 502
            assert "certificate not trusted" in answer.json["error"]["message"]
            assert ("code" in answer.json["error"]) == (path == "/v1/chat/completions")
            assert engine.requests == []

    run(test())


def test_a_bundle_that_was_never_read_trusts_nobody(tmp_path):
    async def test():
        async with served(tmp_path, bundle="garbage") as (router, engine):
            answer = await ask(router.port, post(chat()))
            assert (answer.status, engine.connections) == (502, 0)
            assert router.state.metrics.key_errors.values["secret",] >= 1

    run(test())


async def silent(reader, writer):
    """A port that says nothing."""
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


async def plain(reader, writer):
    """A port of plain HTTP, as uvicorn answers what is none."""
    with contextlib.suppress(ConnectionError):
        assert not (await reader.read(65536)).startswith(b"POST")
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await reader.read()
    writer.close()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("behave", "status", "said"), [(silent, 504, "connect timeout"), (plain, 502, "no TLS")], ids=["silent", "plain"]
)
def test_a_port_that_speaks_no_tls_gets_nothing_and_is_given_up(tmp_path, monkeypatch, behave, status, said):
    if behave is silent:
        monkeypatch.setattr(upstream, "HANDSHAKE_SECONDS", 0.3)

    async def test():
        server = await asyncio.start_server(behave, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        secrets = write_bundle(tmp_path / "secrets", EngineCerts(tmp_path / "certs").ca)
        async with server, routing(tmp_path, secure_table(address), secrets_dir=secrets) as router:
            await until(lambda: router.state.keys_tried, "the bundle to be read")
            answer = await ask(router.port, post(chat()))
            assert answer.status == status
            assert said in answer.json["error"]["message"]

    run(test())


@pytest.mark.heavy
def test_authorities_and_certificates_are_replaced_under_load_without_a_failed_request(tmp_path):
    async def test():
        old, new = EngineCerts(tmp_path / "certs"), EngineCerts(tmp_path / "new")
        context = old.server()
        async with served(tmp_path, certs=old, context=context) as (router, engine):
            stop, failed, done = asyncio.Event(), [], [0]

            async def load():
                while not stop.is_set():
                    answer = await ask(router.port, post(chat()))
                    done[0] += 1
                    if answer.status != 200:
                        failed.append(answer.body)

            async def more(what):
                before = done[0]
                await until(lambda: done[0] > before + 20, what)

            def contexts():
                return set(router.state.authorities.bundles().values())

            clients = [asyncio.ensure_future(load()) for _ in range(3)]
            await more("requests")
            write_bundle(tmp_path / "secrets", old.ca, new.ca)
            await until(lambda: (old.ca + new.ca).encode() in contexts(), "both authorities")
            new.load(context)
            before = engine.connections
            await more("requests after the engine's renewal")
            write_bundle(tmp_path / "secrets", new.ca)
            await until(lambda: new.ca.encode() in contexts(), "the new authority")
            await more("requests under the new authority")
            assert engine.connections > before  # connections of the old authorities are not used again
            stop.set()
            await asyncio.gather(*clients)
            assert failed == []

    run(test())


@pytest.mark.heavy
def test_a_connection_is_not_used_again_once_its_authority_is_withdrawn(tmp_path):
    async def test():
        async with served(tmp_path) as (router, engine), connected(router.port) as client:
            assert (await client.ask(post(chat()))).status == 200
            other = EngineCerts(tmp_path / "other").ca
            write_bundle(tmp_path / "secrets", other)
            await until(lambda: other.encode() in router.state.authorities.bundles().values(), "the new authority")
            assert (await client.ask(post(chat()))).status == 502
            assert len(engine.requests) == 1

    run(test())


def test_a_slow_client_slows_its_engine_down_and_gets_everything(tmp_path):
    async def test():
        answer = LongAnswer()
        async with served(tmp_path, answer.behave) as (router, _), connected(router.port) as client:
            await answer.read_slowly(client)

    run(test())


@pytest.mark.heavy
def test_a_large_request_arrives_whole(tmp_path):
    async def test():
        async with served(tmp_path) as (router, engine):
            body = chat("x" * 900_000)
            assert (await ask(router.port, post(body))).status == 200
            (request,) = engine.requests
            assert b"x" * 900_000 in bytes(request.body)

    run(test())


@pytest.mark.parametrize("told", [True, False])
def test_an_answer_that_ends_with_its_connection_is_whole_only_if_the_engine_says_so(tmp_path, told):
    async def behave(call):
        call.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it")
        await call.writer.drain()
        await asyncio.sleep(0.05)
        if told:
            call.writer.close()  # close_notify
        else:
            call.reset()

    async def test():
        async with served(tmp_path, behave) as (router, _), connected(router.port) as client:
            if told:
                assert (await client.ask(post(chat()))).body == b"all of it"
            else:
                with pytest.raises((EOFError, ConnectionError)):
                    await client.ask(post(chat()))

    run(test())


def test_a_client_that_leaves_ends_its_engines_work(tmp_path):
    gone = asyncio.Event()

    async def behave(call):
        call.begin_stream()
        call.chunk(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
        await call.client_gone()
        gone.set()

    async def test():
        async with served(tmp_path, behave) as (router, _), connected(router.port) as client:
            client.send(post(chat(stream=True)))
            assert await client.reader.read(100)
            client.leave()
            await gone.wait()

    run(test())


def test_an_engine_that_closes_a_kept_connection_is_asked_on_another(tmp_path):
    async def test():
        async with served(tmp_path) as (router, engine), connected(router.port) as client:
            assert (await client.ask(post(chat()))).status == 200
            for writer in list(engine.open):
                writer.close()
            await until(lambda: not engine.open, "the end of the kept connection")
            assert (await client.ask(post(chat()))).status == 200
            assert engine.connections == 2

    run(test())
