"""Clients and engines that are slow, stop, or hurry, on real sockets: no answer is lost, stalled or hoarded."""

import asyncio
import contextlib
import os
import socket

import pytest

from promptgroup_router import core
from promptgroup_router.proxy import downstream
from promptgroup_router.proxy.request_intake import PIPELINED_BYTES
from support.fakeengine import Call, engines, until
from support.wire import ask, chat, connected, get, post, routing, run, table_of

MEGABYTE = 2**20
WRITE_BUFFER = 65536
"""High-water mark of a transport."""
ONE_READ = 262144
"""Most bytes that the event loop reads at once."""


def table_for(found):
    return table_of(*(each.address for each in found))


class RawClient:
    """A client that reads when the test says so, with a small receive buffer."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read(self, most: int = 65536) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.socket, most)

    async def read_all(self) -> bytes:
        data = bytearray()
        while part := await self.read():
            data += part
        return bytes(data)

    async def read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = await self.read(min(65536, size - len(data)))
            assert part, f"the connection ended after {len(data)} bytes"
            data += part
        return bytes(data)


@contextlib.contextmanager
def raw(port: int):
    client = RawClient(port)
    try:
        yield client
    finally:
        client.socket.close()


@contextlib.asynccontextmanager
async def engine_that(behaves):
    """An engine whose every connection is served by a coroutine of reader and writer; gives its address."""
    writers, tasks = [], []

    async def serve(reader, writer):
        writers.append(writer)
        tasks.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await behaves(reader, writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def held(router) -> int:
    """Bytes that wait in the router for clients."""
    return sum(each._transport.get_write_buffer_size() for each in router._clients.connections)


async def narrow(router) -> None:
    """Let the kernel keep little for the client, so that what is sent and not read waits in the router."""
    await until(lambda: router._clients.connections, "the connection")
    for each in router._clients.connections:
        with socket.socket(fileno=os.dup(each._transport.get_extra_info("socket").fileno())) as copy:
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)


async def settled(read) -> int:
    """Wait until a number stands still."""
    before, same = -1, 0
    while same < 5:
        await asyncio.sleep(0.02)
        same = same + 1 if before == read() else 0
        before = read()
    return before


@pytest.fixture
def hurried(monkeypatch):
    """A router whose time limits for clients are short."""
    monkeypatch.setattr(core, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(downstream, "READ_SECONDS", 0.2)
    monkeypatch.setattr(downstream, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(downstream, "LINGER_SECONDS", 0.2)
    monkeypatch.setattr(downstream, "STALL_SECONDS", 0.5)


def test_the_connection_of_an_answer_that_paused_its_client_serves_the_next_client(tmp_path):
    async def by_question(call: Call) -> None:
        call.answer(b"x" * 60_000 if "big" in call.request.body.decode() else b"small")

    async def check():
        async with engines(1, by_question) as (engine,), routing(tmp_path, table_for([engine])) as router:
            with raw(router.port) as client:
                await narrow(router)
                # the end of the second answer fills the client's buffer
                await client.send(post(chat("big")) * 2)
                await until(lambda: held(router) > WRITE_BUFFER, "the client's pause")
                await until(lambda: not any(router.state.balancer.placed.loads.values()), "the answer's end")
                assert (await ask(router.port, post(chat("small")))).body == b"small"
            assert engine.connections == 1

    run(check())


@pytest.mark.parametrize("kept", [True, False])
def test_a_client_that_reads_nothing_has_no_next_request_until_it_reads(tmp_path, kept):
    """Sooner or later the end of an answer is what fills the client's buffer, and pauses the engine's connection."""

    async def large(call: Call) -> None:
        call.answer(b"x" * 40_000, 200, *([] if kept else ["Connection: close"]))

    async def check():
        async with engines(1, large) as (engine,), routing(tmp_path, table_for([engine])) as router:
            with raw(router.port) as client:
                await narrow(router)
                await client.send(post(chat()) * 60)
                await settled(lambda: held(router) + len(engine.requests))
                assert held(router) <= WRITE_BUFFER + ONE_READ
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MEGABYTE)
                found = 0
                while found < 60 * 40_000:
                    found += (await client.read()).count(b"x")
                assert len(engine.requests) == 60

    run(check())


def test_own_answers_that_nobody_reads_are_not_hoarded(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_for([engine])) as router:
            with raw(router.port) as client:
                await narrow(router)
                sending = asyncio.ensure_future(client.send(get("/nowhere") * 4_000))
                await settled(lambda: held(router))
                (connection,) = router._clients.connections
                assert held(router) <= 2 * WRITE_BUFFER
                assert connection.intake.buffered <= PIPELINED_BYTES + 2 * ONE_READ
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MEGABYTE)
                found, rest = 0, b""
                while found < 4_000:
                    rest = rest[-11:] + await client.read()
                    found += rest.count(b"HTTP/1.1 404")
                await sending

    run(check())


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_slow_reader_gets_the_end_of_its_answer(tmp_path, hurried, monkeypatch, version):
    size = MEGABYTE
    monkeypatch.setattr(downstream, "STALL_SECONDS", 20)

    async def large(call: Call) -> None:
        call.answer(b"x" * size)

    async def check():
        async with engines(1, large) as (engine,), routing(tmp_path, table_for([engine])) as router:
            with raw(router.port) as client:
                await narrow(router)
                await client.send(post(chat(), "Connection: close", version=version))
                data = await client.read()
                while any(router.state.balancer.placed.loads.values()):
                    data += await client.read()
                await asyncio.sleep(0.4)  # past each limit but that for who reads nothing
                data += await client.read_all()
            assert len(data.partition(b"\r\n\r\n")[2]) == size

    run(check())


def test_pipelined_bytes_behind_a_last_request_do_not_destroy_its_answer(tmp_path):
    size = MEGABYTE

    async def large(call: Call) -> None:
        call.answer(b"x" * size)

    async def check():
        async with engines(1, large) as (engine,), routing(tmp_path, table_for([engine])) as router:
            with raw(router.port) as client:
                await narrow(router)
                await client.send(post(chat(), "Connection: close"))
                await until(lambda: engine.requests, "the request")
                await client.send(get("/nowhere") * 1000)
                data = await client.read_all()
            assert len(data.partition(b"\r\n\r\n")[2]) == size

    run(check())


@pytest.mark.parametrize("close", [True, False])
def test_a_reader_that_stopped_is_reset_in_time(tmp_path, hurried, close):
    async def large(call: Call) -> None:
        call.answer(b"x" * MEGABYTE)
        await call.writer.drain()

    async def check():
        async with engines(1, large) as (engine,), routing(tmp_path, table_for([engine])) as router:
            with raw(router.port) as client:
                await narrow(router)
                await client.send(post(chat(), *(["Connection: close"] if close else [])))
                await until(lambda: held(router) > WRITE_BUFFER, "the client's pause")
                # as much as lets the answer end in the router's buffer, but no more
                while router.state.balancer.placed.loads and any(router.state.balancer.placed.loads.values()):
                    await client.read(65536)
                await until(lambda: not router._clients.connections, "the reset")
                with pytest.raises(ConnectionResetError):
                    await client.read_all()

    run(check())


def test_a_reader_that_stopped_does_not_hold_its_socket_after_a_cut(tmp_path, hurried):
    async def endless(call: Call) -> None:
        call.begin_stream()
        call.chunk(b"x" * MEGABYTE)
        with contextlib.suppress(ConnectionError):
            await call.writer.drain()
            await call.client_gone()

    async def check():
        short = routing(tmp_path, table_for([engine]), request_timeout=0.3)
        async with short as router:
            with raw(router.port) as client:
                await narrow(router)
                await client.send(post(chat()))
                await until(lambda: router._clients.connections, "the connection")
                await until(lambda: not router._clients.connections, "its end")

    async def outer():
        nonlocal engine
        async with engines(1, endless) as (engine,):
            await check()

    engine = None
    run(outer())


@pytest.mark.heavy
def test_an_engine_that_answers_before_it_has_read_the_request_is_not_sent_another_on_that_connection(tmp_path):
    refused = asyncio.Event()

    async def early(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if not refused.is_set():
            refused.set()
            writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
            await asyncio.Event().wait()  # reads no more
        await reader.readuntil(b"}]}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await reader.read()

    async def check():
        limits = {"max_body_bytes": 32 * MEGABYTE, "request_timeout": 30.0}
        async with engine_that(early) as address, routing(tmp_path, table_of(address), **limits) as router:
            for words, status in (("x" * 16 * MEGABYTE, 413), ("y", 200)):
                assert (await ask(router.port, post(chat(words)))).status == status

    run(check())


def test_an_answer_to_head_has_no_body_and_the_connection_stays(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_for([engine])) as router:
            for port, path in ((router.port, "/v1/models"), (router.port, "/nowhere"), (router.admin_port, "/healthz")):
                with raw(port) as client:
                    await client.send(get(path).replace(b"GET", b"HEAD") + get(path, "Connection: close"))
                    data = await client.read_all()
                first, head, body = data.split(b"\r\n\r\n")
                assert first.startswith(head[:12])
                assert b"content-length: %d" % len(body) in first
                assert b"content-length: %d" % len(body) in head

    run(check())


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_interim_answers_reach_clients_of_http_1_1(tmp_path, version):
    async def hints(call: Call) -> None:
        call.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")
        call.send(b"HTTP/1.1 103 Early Hints\r\nVary: Accept\r\nServer: x\r\nConnection: x\r\n\r\n")
        call.answer(b"ok")

    async def check():
        async with engines(1, hints) as (engine,), routing(tmp_path, table_for([engine])) as router:
            with raw(router.port) as client:
                await narrow(router)
                await client.send(post(chat(), "Connection: close", version=version))
                data = await client.read_all()
            interim = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nvary: Accept\r\n\r\n"
            assert data.startswith(interim if version == "1.1" else b"HTTP/1.1 200")
            assert data.endswith(b"\r\n\r\nok")

    run(check())


def test_a_query_reaches_the_engine_only_where_something_may_read_it(tmp_path):
    async def check():
        async with (
            engines(1) as (engine,),
            routing(tmp_path, table_for([engine]), pass_paths=("/v1/plugin",)) as router,
        ):
            for path in ("/v1/chat/completions", "/v1/messages", "/v1/plugin"):
                await ask(router.port, post(chat(max_tokens=5), path=f"{path}?api-version=1&x=a%20b"))
            queries = {each.head.path: each.head.query for each in engine.requests}
            assert queries == {
                b"/v1/chat/completions": b"",
                b"/v1/messages": b"",
                b"/v1/plugin": b"api-version=1&x=a%20b",
            }

    run(check())


@pytest.mark.heavy
def test_an_engine_that_closes_while_a_request_is_unsent_fails_at_once(tmp_path):
    async def shut(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write_eof()
        await asyncio.Event().wait()

    async def check():
        limits = {"max_body_bytes": 32 * MEGABYTE}
        async with engine_that(shut) as address, routing(tmp_path, table_of(address), **limits) as router:
            assert (await ask(router.port, post(chat("x" * 16 * MEGABYTE)))).status == 502

    run(check())


def test_an_address_that_holds_all_connections_and_sends_nothing_keeps_nobody_out(tmp_path):
    async def check():
        async with (
            engines(1) as (engine,),
            routing(tmp_path, table_for([engine]), max_connections=40) as router,
            contextlib.AsyncExitStack() as stack,
        ):
            held = []
            for _ in range(60):
                held.append(await asyncio.open_connection("127.0.0.1", router.port, local_addr=("127.0.0.2", 0)))
                stack.callback(held[-1][1].transport.abort)
            await until(lambda: len(router._clients.connections) >= 40, "the connections")
            for _ in range(3):
                assert (await ask(router.port, get("/v1/models"))).status == 200
            assert router.state.metrics.connections_given_up.values.keys() == {("silent",)}

    run(check())


def test_beyond_the_limit_of_connections_clients_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(downstream, "REFUSED_CONNECTIONS", 1)

    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_for([engine]), max_connections=2) as router:
            async with connected(router.port) as one, connected(router.port) as two:
                for client in (one, two):
                    assert (await client.ask(get("/v1/models"))).status == 200
                async with connected(router.port) as refused, connected(router.port) as reset:
                    found = await refused.answer()
                    assert (found.status, found.json["error"]["code"]) == (503, "overloaded")
                    assert found.headers[b"retry-after"] == b"1"
                    assert await reset.closed() == b""
            await until(lambda: not router._clients.connections, "their ends")
            assert (await ask(router.port, get("/v1/models"))).status == 200

    run(check())
