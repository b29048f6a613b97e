"""The port for requests over TLS: the same promises as without, and certificates that are replaced under load."""

import asyncio
import contextlib
import socket
import ssl

import pytest
import uvloop

from promptgroup_router.feed import certificate_feed, table_file
from support.fakeengine import engines, until
from support.routerprocess import started
from support.slowreader import LongAnswer
from support.tlsfiles import TlsFiles
from support.wire import ask, chat, connected, post, routing, run, table_of


@contextlib.asynccontextmanager
async def served(folder, *behaviours, client_ca=None):
    files = TlsFiles(folder / "server")
    async with (
        engines(1, *behaviours) as (engine,),
        routing(
            folder, table_of(engine.address), tls_cert=files.cert, tls_key=files.key, tls_client_ca=client_ca
        ) as router,
    ):
        yield router, engine, files


def test_requests_are_served_over_tls_on_kept_connections(tmp_path):
    async def test():
        async with served(tmp_path) as (router, _, files), connected(router.port, files.client()) as client:
            for _ in range(3):
                answer = await client.ask(post(chat()))
                assert (answer.status, answer.body) == (200, b'{"ok":true}')
            client.send(post(chat()) * 3)  # ahead
            assert [(await client.answer()).status for _ in range(3)] == [200] * 3
            assert len(router._clients.connections) == 1
            assert (await ask(router.port, b"nonsense\r\n\r\n", files.client())).status == 400

    run(test())


def test_a_connection_that_is_not_kept_ends_whole(tmp_path):
    async def test():
        async with served(tmp_path) as (router, _, files):
            for fields, version in ((["Connection: close"], "1.1"), ([], "1.0")):
                async with connected(router.port, files.client()) as client:
                    answer = await client.ask(post(chat(), *fields, version=version))
                    assert answer.status == 200
                    assert await client.reader.read() == b""
            await until(lambda: not router._clients.connections, "the connections to end")

    run(test())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_versions_that_are_served(tmp_path, version):
    async def test():
        async with served(tmp_path) as (router, _, files):
            context = files.client()
            context.minimum_version = context.maximum_version = version
            context.set_alpn_protocols(["h2", "http/1.1"])
            async with connected(router.port, context) as client:
                assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
                assert (await client.ask(post(chat()))).status == 200

    run(test())


def test_older_versions_and_plain_http_are_refused(tmp_path):
    async def test():
        async with served(tmp_path) as (router, engine, files):
            context = files.client()
            with pytest.warns(DeprecationWarning, match="TLSv1_1"):
                context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
            context.set_ciphers("ALL:@SECLEVEL=0")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await ask(router.port, post(chat()), context)
            with pytest.raises((EOFError, ConnectionError)):
                await ask(router.port, post(chat()))
            assert not engine.requests

    run(test())


def test_handshakes_in_progress_count_as_connections_and_those_that_fail_do_not(tmp_path):
    async def test():
        files = TlsFiles(tmp_path / "server")
        async with (
            engines(1) as (engine,),
            routing(
                tmp_path, table_of(engine.address), tls_cert=files.cert, tls_key=files.key, max_connections=4
            ) as router,
        ):
            clients = router._clients
            silent = [await silent_from(f"127.0.0.{each}", router.port) for each in range(2, 6)]
            await until(lambda: clients.opening == 4, "the handshakes to begin")
            answer = await ask(router.port, post(chat()), files.client())
            assert (answer.status, answer.json["error"]["code"]) == (503, "overloaded")
            for _, writer in silent[1:]:
                writer.close()  # one fails, the others are given up
            silent[0][1].write(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: clients.opening == 0, "the handshakes to end")
            assert (await ask(router.port, post(chat()), files.client())).status == 200
            assert clients.opening == 0
            assert len(router._handshakes) == 0
            silent[0][1].close()

    run(test())


async def silent_from(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection from an address of this machine that begins no handshake."""
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


def test_one_address_cannot_hold_the_places_of_others(tmp_path):
    """Five hundred half handshakes of one address, which are begun and not ended, while another is served."""

    async def test():
        files = TlsFiles(tmp_path / "server")
        hello = client_hello(files)
        async with (
            engines(1) as (engine,),
            routing(
                tmp_path, table_of(engine.address), tls_cert=files.cert, tls_key=files.key, max_connections=40
            ) as router,
        ):
            refused, hostile = router.state.metrics.handshakes_refused, []
            for number in range(500):
                with contextlib.suppress(ConnectionError):
                    hostile.append(await silent_from("127.0.0.2", router.port))
                    hostile[-1][1].write(hello[: number % len(hello)])
                if not number % 50:
                    assert (await ask(router.port, post(chat()), files.client())).status == 200
            await until(lambda: refused.values[()] == 490, "the refusals")
            assert len(router._handshakes) == router._clients.opening == 10
            async with connected(router.port, files.client()) as client:
                assert [(await client.ask(post(chat()))).status for _ in range(20)] == [200] * 20
            for _, writer in hostile:
                writer.close()
            await until(lambda: not len(router._handshakes), "the end of the handshakes")
            assert router._clients.opening == 0

    run(test())


def client_hello(files: TlsFiles) -> bytes:
    """The first bytes of a handshake."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        files.client().wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


def test_clients_show_a_certificate_where_an_authority_is_given(tmp_path):
    async def test():
        own, other = TlsFiles(tmp_path / "client"), TlsFiles(tmp_path / "other")
        async with served(tmp_path, client_ca=own.cert) as (router, _, files):
            assert (await ask(router.port, post(chat()), files.client(own))).status == 200
            for context in (files.client(), files.client(other)):
                with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
                    await ask(router.port, post(chat()), context)

    run(test())


def test_a_slow_reader_gets_the_whole_answer_and_slows_its_engine_down(tmp_path):
    async def test():
        answer = LongAnswer()
        async with (
            served(tmp_path, answer.behave) as (router, _, files),
            connected(router.port, files.client()) as client,
        ):
            await answer.read_slowly(client)

    run(test())


def test_a_client_that_leaves_ends_its_engines_work(tmp_path):
    gone = asyncio.Event()

    async def behave(call):
        call.begin_stream()
        call.chunk(b"data: {}\n\n")
        await call.client_gone()
        gone.set()

    async def test():
        async with served(tmp_path, behave) as (router, _, files):
            for leave in ("abort", "close"):
                gone.clear()
                async with connected(router.port, files.client()) as client:
                    client.send(post(chat()))
                    assert await client.reader.read(100)
                    getattr(client.writer.transport, leave)()
                    await gone.wait()
            await until(lambda: not router._clients.connections, "the connections to end")

    run(test())


@pytest.mark.parametrize("framed", [True, False])
def test_an_answer_that_an_engine_cuts_does_not_look_whole(tmp_path, framed):
    async def behave(call):
        if framed:
            call.begin_stream()
            call.chunk(b"data: {}\n\n")
        else:
            call.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await call.writer.drain()
        await asyncio.sleep(0.05)
        call.reset()

    async def test():
        async with (
            served(tmp_path, behave) as (router, _, files),
            connected(router.port, files.client()) as client,
        ):
            client.send(post(chat()))
            with pytest.raises((EOFError, ConnectionError, ssl.SSLError)):
                await client.answer()

    run(test())


PAUSE = 0.02
"""Seconds between two requests of a client: files are looked at every two seconds, and a load without a pause would
take the whole processor until then."""


def trusting_anyone():
    """A client's context for a server whose certificates change: it reads no authorities, which takes 20 ms of CPU."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def peer_certificate(port):
    """The certificate that a new connection gets."""
    context = trusting_anyone()
    with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain) as wrapped:
        return ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(binary_form=True))


async def load(port, stop, done, failed):
    """Requests, each second one on a connection of its own, until told to stop."""
    context = trusting_anyone()
    async with connected(port, context) as kept:
        while not stop.is_set():
            for answer in (await kept.ask(post(chat())), await ask(port, post(chat()), context)):
                done[0] += 1
                if answer.status != 200:
                    failed.append(answer.status)
            await asyncio.sleep(PAUSE)


@pytest.mark.heavy
def test_certificates_are_replaced_under_load_without_a_failed_request(tmp_path):
    async def test():
        files = TlsFiles(tmp_path / "server")
        async with engines(1) as (engine,):
            table_file.write(tmp_path / "table.json", table_of(engine.address))
            flags = (
                "--table",
                str(tmp_path / "table.json"),
                "--tls-cert",
                str(files.cert),
                "--tls-key",
                str(files.key),
            )
            async with started(*flags) as router:
                await until(lambda: router.port, "the port")
                while await router.ready() != 200:  # noqa: ASYNC110 - another process, which announces nothing
                    await asyncio.sleep(0.05)
                stop, done, failed = asyncio.Event(), [0], []
                clients = [asyncio.ensure_future(load(router.port, stop, done, failed)) for _ in range(3)]
                for _ in range(2):
                    before = done[0]
                    files.replace()
                    wanted = files.cert.read_text()
                    seen = 0
                    async with asyncio.timeout(90):
                        while seen < 6:
                            found = await asyncio.to_thread(peer_certificate, router.port)
                            seen = seen + 1 if found == wanted else 0
                            await asyncio.sleep(0.02)
                    await until(lambda before=before: done[0] > before + 20, "requests with the new certificate")
                stop.set()
                await asyncio.gather(*clients)
                assert failed == []

    asyncio.run(asyncio.wait_for(test(), 200))


@pytest.mark.heavy
def test_the_authority_of_clients_is_replaced_under_load_without_a_failed_request(tmp_path):
    """Clients change their certificates while both authorities hold, and the old one is withdrawn after that."""

    async def test():
        old, new, authority = TlsFiles(tmp_path / "old"), TlsFiles(tmp_path / "new"), tmp_path / "ca.crt"

        def replace(text: str) -> None:
            beside = authority.with_suffix(".new")
            beside.write_text(text)
            beside.replace(authority)

        replace(old.cert.read_text())
        async with served(tmp_path, client_ca=authority) as (router, _, files):
            current, failed, done, stop = [files.client(old)], [], [0], asyncio.Event()

            async def client():
                while not stop.is_set():
                    answer = await ask(router.port, post(chat()), current[0])
                    done[0] += 1
                    if answer.status != 200:
                        failed.append(answer.status)
                    await asyncio.sleep(PAUSE)

            async def lets_in(context) -> bool:
                try:
                    return (await ask(router.port, post(chat()), context)).status == 200
                except (ssl.SSLError, ConnectionError, EOFError):
                    return False

            clients = [asyncio.ensure_future(client()) for _ in range(2)]
            replace(old.cert.read_text() + new.cert.read_text())
            while not await lets_in(files.client(new)):  # noqa: ASYNC110 - the feed looks at files by itself
                await asyncio.sleep(0.02)
            current[0] = files.client(new)
            before = done[0]
            await until(lambda: done[0] > before + 4, "requests with the new certificate")
            replace(new.cert.read_text())
            while await lets_in(files.client(old)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            before = done[0]
            await until(lambda: done[0] > before + 4, "requests without the old authority")
            stop.set()
            await asyncio.gather(*clients)
            assert failed == []

    uvloop.run(asyncio.wait_for(test(), 60))


def test_a_router_whose_certificate_cannot_be_used_does_not_start(tmp_path):
    async def test():
        files = TlsFiles(tmp_path / "server")
        files.key.write_text("garbage")
        async with engines(1) as (engine,):
            with pytest.raises(OSError, match="is not good"):
                async with routing(tmp_path, table_of(engine.address), tls_cert=files.cert, tls_key=files.key):
                    pass

    run(test())


def test_poll_is_short_against_the_time_that_certificates_overlap():
    assert certificate_feed.POLL_SECONDS <= 5
