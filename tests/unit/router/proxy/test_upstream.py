"""Connections to engines with a transport that records."""

import asyncio
import contextlib
import gc
import socket
import weakref

import pytest

from promptgroup_router.base.errors import Failure
from promptgroup_router.proxy.request_intake import TURN_BYTES
from promptgroup_router.proxy.upstream import (
    IDLE_SECONDS,
    MAX_IDLE,
    PIECE_BYTES,
    STALE_SECONDS,
    UNREAD_BYTES,
    EngineConnection,
    EngineConnections,
)
from support.memorynet import MemoryTransport
from support.script import FakeTransport
from support.steploop import StepLoop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Listener:
    def __init__(self) -> None:
        self.heard = []
        self.on_head = lambda: None

    def answer_began(self, head):
        self.heard.append(f"head {head.status}")
        self.on_head()

    def answer_data(self, data):
        self.heard.append(data)

    def answer_ended(self):
        self.heard.append("end")

    def failed(self, failure):
        self.heard.append(failure)


class Case:
    def __init__(self) -> None:
        self.now = 0.0
        self.connections = EngineConnections(lambda: self.now, connect_timeout=1.0)

    def opened(self) -> tuple[EngineConnection, FakeTransport, Listener]:
        """A connection that has a request."""
        connection, transport, listener = EngineConnection(self.connections, "e:1"), FakeTransport(), Listener()
        connection.send(b"request", b"", listener)
        connection.connection_made(transport)
        return connection, transport, listener

    def kept(self) -> tuple[EngineConnection, FakeTransport, Listener]:
        """A connection that has carried an answer."""
        connection, transport, listener = self.opened()
        connection.data_received(ANSWER)
        listener.heard.clear()
        return connection, transport, listener


def in_loop(test):
    def wrapped():
        async def check():
            test(Case())

        asyncio.run(check())

    return wrapped


@in_loop
def test_the_request_goes_out_when_the_connection_is_open(case):
    connection, transport, listener = EngineConnection(case.connections, "e:1"), FakeTransport(), Listener()
    connection.send(b"request", b"", listener)
    connection.connection_made(transport)
    assert transport.taken() == b"request"
    connection.data_received(ANSWER)
    assert listener.heard == ["head 200", b"ok", "end"]


@in_loop
def test_a_connection_is_kept_and_the_one_used_last_is_lent_first(case):
    first, _, _ = case.opened()
    second, second_transport, _ = case.opened()
    first.data_received(ANSWER)
    second.data_received(ANSWER)
    assert case.connections.acquire("e:1", fresh=False) is second
    listener = Listener()
    second.send(b"again", b"", listener)
    assert second_transport.taken() == b"requestagain"
    second.data_received(ANSWER)
    assert listener.heard == ["head 200", b"ok", "end"]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        ANSWER + b"more",
    ],
)
def test_a_connection_that_cannot_be_used_again_is_closed(data):
    @in_loop
    def check(case):
        connection, transport, listener = case.opened()
        connection.data_received(data)
        assert listener.heard == ["head 200", b"ok", "end"]
        assert transport.did == ["abort"]
        assert case.connections._idle == {}

    check()


@in_loop
def test_a_loss_before_any_byte(case):
    fresh, _, listener = case.opened()
    fresh.connection_lost(None)
    assert listener.heard == [Failure.RESET]
    kept, _, _ = case.kept()
    later = Listener()
    case.connections.acquire("e:1", fresh=False).send(b"again", b"", later)
    kept.connection_lost(ConnectionResetError())
    assert later.heard == [Failure.STALE]


@in_loop
def test_a_pooled_connection_that_is_lost_while_the_engine_works_is_the_engines_failure(case):
    connection, _, _ = case.kept()
    listener = Listener()
    case.connections.acquire("e:1", fresh=False).send(b"again", b"", listener)
    case.now += STALE_SECONDS
    connection.connection_lost(None)
    assert listener.heard == [Failure.RESET]


@pytest.mark.parametrize("status", [200, 400])
def test_a_connection_whose_request_may_be_unread_is_not_pooled(status):
    @in_loop
    def check(case):
        for unsent, sent, kept in ((1, 10, False), (0, 10, True), (0, UNREAD_BYTES + 1, status == 200)):
            connection, transport, listener = EngineConnection(case.connections, "e:1"), FakeTransport(), Listener()
            connection.send(b"request", b"x" * (sent - 7), listener)
            connection.connection_made(transport)
            transport.unsent = unsent
            connection.data_received(ANSWER.replace(b"200", b"%d" % status))
            assert listener.heard[-1] == "end"
            assert transport.did == ([] if kept else ["abort"])

    check()


@in_loop
def test_a_connection_that_was_paused_is_pooled_reading(case):
    connection, transport, listener = case.opened()
    listener.on_head = connection.pause
    connection.data_received(ANSWER)
    assert transport.did == ["pause", "resume"]
    assert case.connections.acquire("e:1", fresh=False) is connection


@in_loop
def test_a_loss_within_an_answer(case):
    kept, _, _ = case.kept()
    listener = Listener()
    case.connections.acquire("e:1", fresh=False).send(b"again", b"", listener)
    kept.data_received(b"HTTP/1.1 200")
    kept.connection_lost(None)
    assert listener.heard == [Failure.RESET]


@in_loop
def test_an_answer_may_end_with_its_connection_but_not_with_a_reset(case):
    connection, _, listener = case.opened()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nall")
    connection.connection_lost(None)
    assert listener.heard == ["head 200", b"all", "end"]
    connection, _, listener = case.opened()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nall")
    connection.connection_lost(ConnectionResetError())
    assert listener.heard == ["head 200", b"all", Failure.RESET]


@in_loop
def test_what_is_no_answer(case):
    connection, transport, listener = case.opened()
    connection.data_received(b"nonsense\r\n\r\n")
    connection.connection_lost(None)
    assert listener.heard == [Failure.MALFORMED]
    assert transport.did == ["abort"]


@in_loop
def test_bytes_that_nobody_asked_for_close_a_kept_connection(case):
    kept, transport, listener = case.kept()
    kept.data_received(b"HTTP/1.1 408 Timeout\r\n\r\n")
    assert transport.did == ["close"]
    kept.connection_lost(None)
    assert listener.heard == []
    assert case.connections._idle == {}


@in_loop
def test_an_aborted_request_is_heard_of_no_more(case):
    connection, transport, listener = case.opened()
    listener.on_head = connection.abort
    connection.data_received(ANSWER)
    connection.connection_lost(None)
    assert listener.heard == ["head 200"]
    assert transport.did == ["abort"]


@in_loop
def test_the_engine_waits_for_a_slow_client(case):
    connection, transport, _ = case.opened()
    connection.pause()
    connection.resume()
    connection.abort()
    connection.pause()
    assert transport.did == ["pause", "resume", "abort"]


@in_loop
def test_idle_connections_are_closed_in_time(case):
    _, transport, _ = case.kept()
    case.connections.tick(IDLE_SECONDS)
    assert transport.did == []
    case.connections.tick(IDLE_SECONDS + 0.1)
    assert transport.did == ["close"]
    assert case.connections._idle == {}


@in_loop
def test_only_so_many_are_kept(case):
    opened = [case.opened() for _ in range(MAX_IDLE + 1)]
    for connection, _, _ in opened:
        connection.data_received(ANSWER)
    assert [transport.did for _, transport, _ in opened].count(["close"]) == 1


def test_what_cannot_be_connected_to_is_told():
    async def check():
        connections = EngineConnections(lambda: 0.0, connect_timeout=5)
        for address, failure in (
            ("127.0.0.1:1", Failure.REFUSED),
            ("x" * 70 + ":80", Failure.REFUSED),
            ("[::1]:1", Failure.REFUSED),
        ):
            listener = Listener()
            connections.acquire(address, fresh=False).send(b"request", b"", listener)
            async with asyncio.timeout(5):
                await asyncio.gather(*connections._connecting.values())
            assert listener.heard == [failure]
        assert connections._connecting == {}

    asyncio.run(check())


def test_an_engine_that_does_not_accept_is_given_up_in_time():
    async def check():
        with socket.socket() as full, contextlib.ExitStack() as waiting:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for _ in range(8):  # more than its queue takes: further connections get no answer
                client = waiting.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(full.getsockname())
            connections, listener = EngineConnections(lambda: 0.0, connect_timeout=0.05), Listener()
            connections.acquire(f"127.0.0.1:{full.getsockname()[1]}", fresh=False).send(b"request", b"", listener)
            async with asyncio.timeout(5):
                await asyncio.gather(*connections._connecting.values())
            assert listener.heard == [Failure.CONNECT_TIMEOUT]

    asyncio.run(check())


def test_a_client_that_leaves_while_connecting_ends_the_attempt():
    async def check():
        connections, listener = EngineConnections(lambda: 0.0, connect_timeout=5), Listener()
        connection = connections.acquire("127.0.0.1:1", fresh=False)
        connection.send(b"request", b"", listener)
        (task,) = connections._connecting.values()
        connection.abort()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert listener.heard == []

    asyncio.run(check())


def test_the_limit_of_opening_ends_when_the_connection_is_open():
    loop = StepLoop()
    asyncio._set_running_loop(loop)
    try:
        pool = EngineConnections(loop.time, 2.0)
        connection = pool.acquire("engine:1", fresh=False)
        loop.turn()
        (opening,) = loop.openings
        transport = MemoryTransport(connection, loop.call_soon)
        listener = Listener()
        connection.send(b"GET / HTTP/1.1\r\n\r\n", b"", listener)
        opening.succeed(transport)
        connection.data_received(b"HTTP/1.1 204 No\r\n\r\n")
        loop.now = 3.0  # the loop was busy: the task that opened the connection goes on only now
        while loop.turn():
            pass
        assert pool.acquire("engine:1", fresh=False) is connection
        assert connection.is_open
    finally:
        asyncio._set_running_loop(None)


@in_loop
def test_a_pooled_connection_that_is_closing_is_not_used(case):
    kept, transport, _ = case.kept()
    transport.abort()
    assert case.connections.acquire("e:1", fresh=False) is not kept


LARGE = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (2 * TURN_BYTES)


def test_an_engine_that_sends_much_at_once_waits_for_others_after_each_read():
    async def check():
        connection, transport, listener = Case().opened()
        connection.data_received(LARGE + b"x" * TURN_BYTES)
        assert transport.did == ["pause"]
        connection.pause()
        await asyncio.sleep(0)
        assert transport.did == ["pause"]  # its client does not read
        connection.resume()
        assert transport.did == ["pause", "resume"]
        connection.data_received(b"x" * TURN_BYTES)
        assert listener.heard[-1] == "end"
        await asyncio.sleep(0)
        assert transport.did == ["pause", "resume", "pause", "resume"]

    asyncio.run(check())


def test_a_connection_whose_answer_ended_in_a_large_read_carries_the_next():
    async def check():
        case = Case()
        connection, transport, _ = case.opened()
        connection.data_received(LARGE + b"x" * 2 * TURN_BYTES)
        assert case.connections.acquire("e:1", fresh=False) is connection
        listener = Listener()
        connection.send(b"again", b"", listener)
        await asyncio.sleep(0)
        assert transport.did == ["pause", "resume"]
        connection.data_received(ANSWER)
        assert listener.heard == ["head 200", b"ok", "end"]

    asyncio.run(check())


class Content(bytearray):
    """A body to which weak references are possible."""


def test_a_large_body_goes_out_in_pieces_and_a_pooled_connection_does_not_keep_it():
    async def check():
        connections = EngineConnections(lambda: 0.0, connect_timeout=1.0)
        connection, transport, listener = EngineConnection(connections, "e:1"), FakeTransport(), Listener()
        content = Content(3 * PIECE_BYTES)
        kept = weakref.ref(content)
        connection.send(b"head", content, listener)
        connection.connection_made(transport)
        assert len(transport.written) == len(b"head") + PIECE_BYTES
        for _ in range(4):
            await asyncio.sleep(0)
        assert len(transport.written) == len(b"head") + 3 * PIECE_BYTES
        connection.data_received(ANSWER)
        assert listener.heard[-1] == "end"
        assert connections.acquire("e:1", fresh=False) is connection
        del content
        gc.collect()
        assert kept() is None

    asyncio.run(check())
