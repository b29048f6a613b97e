"""A client's connection with a transport that records: bytes in, bytes and calls out."""

import asyncio

import pytest

from promptgroup_router.http11.http_date import HttpDate
from promptgroup_router.proxy import downstream
from promptgroup_router.proxy.downstream import (
    ANSWERS_AT_ONCE,
    IDLE_SECONDS,
    LINGER_SECONDS,
    READ_SECONDS,
    REFUSED_AT_ONCE,
    REFUSED_CONNECTIONS,
    ClientListener,
)
from promptgroup_router.proxy.making_room import GRACE_SECONDS, PAUSE_SECONDS
from promptgroup_router.proxy.request_intake import PIPELINED_BYTES, TURN_BYTES
from support.followed import Origin
from support.script import FakeTransport
from support.wire import get, post

DATE = b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"


class Addressed(FakeTransport):
    """The transport of a client with an address."""

    def __init__(self, address) -> None:
        super().__init__()
        self._address = address

    def get_extra_info(self, name):
        return (self._address, 1) if name == "peername" else None


class Work(Origin):
    """A request that runs until the test ends it."""

    def __init__(self, client) -> None:
        super().__init__()
        self.client = client


class Case:
    def __init__(self, max_body: int = 1000) -> None:
        self.now = 0.0
        self.running = []
        self.seen = []
        self.clients = ClientListener(self.handle, lambda: self.now, max_body)
        self.clients.date = HttpDate(lambda: 0.0)
        self.transport = FakeTransport()
        self.connection = self.clients.accept()
        self.connection.connection_made(self.transport)

    def handle(self, client, request):
        self.seen.append(request.head.path)
        if request.head.path == b"/now":
            client.answer(200, [], b"done")
            return None
        self.running.append(Work(client))
        return self.running[-1]

    def receive(self, data: bytes) -> None:
        self.connection.data_received(data)

    def lose(self) -> None:
        self.connection.connection_lost(None)


@pytest.fixture
def case():
    # Clients keeps an asyncio.Event, which needs no loop until it is waited for
    return Case()


def test_a_whole_answer_has_its_length(case):
    case.receive(get("/now"))
    assert case.transport.taken() == b"HTTP/1.1 200 OK\r\n" + DATE + b"content-length: 4\r\n\r\ndone"
    assert case.transport.did == []


@pytest.mark.parametrize(
    ("request_", "header", "closes"),
    [
        (get("/now"), b"", False),
        (get("/now", "Connection: close"), b"connection: close\r\n", True),
        (b"GET /now HTTP/1.0\r\n\r\n", b"connection: close\r\n", True),
        (b"GET /now HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"connection: keep-alive\r\n", False),
    ],
)
def test_whether_the_connection_stays_is_said_and_done(case, request_, header, closes):
    case.receive(request_)
    assert case.transport.taken() == b"HTTP/1.1 200 OK\r\n" + DATE + b"content-length: 4\r\n" + header + b"\r\ndone"
    assert ("write_eof" in case.transport.did) == closes


def test_requests_wait_for_the_one_before(case):
    case.receive(get("/later") + get("/now") + get("/later"))
    assert case.seen == [b"/later"]
    assert case.transport.taken() == b""
    case.connection.answer(200, [], b"first")
    assert case.seen == [b"/later", b"/now", b"/later"]
    assert case.transport.taken().count(b"HTTP/1.1 200 OK") == 2


def test_a_thousand_pipelined_requests_need_no_stack(case):
    async def check():
        case.receive(get("/now") * 1500)
        # others have their turn after some of them
        assert case.transport.taken().count(b"done") == ANSWERS_AT_ONCE
        found = 0
        while found < 1500 - ANSWERS_AT_ONCE:
            await asyncio.sleep(0)
            found += case.transport.taken().count(b"done")
        assert found == 1500 - ANSWERS_AT_ONCE

    asyncio.run(check())


def test_a_client_that_pipelines_a_lot_has_to_wait(case):
    case.receive(get("/later"))
    behind = post(b"a" * 990, path="/now")
    for _ in range(PIPELINED_BYTES // len(behind)):
        case.receive(behind)
    assert case.transport.did == []
    case.receive(behind)
    assert case.transport.did == ["pause"]

    async def check():
        case.connection.answer(200, [], b"first")
        found = 0
        while found < PIPELINED_BYTES // len(behind) + 1:
            await asyncio.sleep(0)
            found += case.transport.taken().count(b"done")
        assert case.transport.did == ["pause", "resume"]

    asyncio.run(check())


def test_the_client_is_told_to_go_on_once(case):
    case.receive(post(b"{}", "Expect: 100-continue", path="/now")[:-2])
    assert case.transport.taken() == b"HTTP/1.1 100 Continue\r\n\r\n"
    case.receive(b"{")
    assert case.transport.taken() == b""
    case.receive(b"}")
    assert case.transport.taken().endswith(b"done")


def test_a_body_that_comes_with_its_head_is_not_asked_for(case):
    case.receive(post(b"{}", "Expect: 100-continue", path="/now"))
    assert b"100 Continue" not in case.transport.taken()


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(case):
    case.receive(post(b"x" * 1001, "Expect: 100-continue", path="/now")[:-1001])
    written = case.transport.taken()
    assert written.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in written
    assert case.transport.did == ["write_eof"]
    case.receive(b"x" * 1001)  # what was under way is read and dropped, so that the client sees the answer
    assert case.seen == []
    case.now = LINGER_SECONDS
    case.connection.tick(case.now)
    assert case.transport.did == ["write_eof", "abort"]


def test_malformed_requests_are_refused_and_nothing_behind_them_is_read(case):
    case.receive(get("/now") + b"nonsense\r\n\r\n" + get("/now"))
    written = case.transport.taken()
    assert written.count(b"done") == 1
    assert b"HTTP/1.1 400 Bad Request" in written
    assert case.seen == [b"/now"]


def test_a_client_that_trickles_is_refused(case):
    case.receive(b"GET /now HT")
    case.now = READ_SECONDS - 1
    case.receive(b"TP/1.1\r\nHost: r\r\n")
    case.connection.tick(case.now)
    assert case.transport.taken() == b""
    case.now = READ_SECONDS
    case.connection.tick(case.now)
    assert case.transport.taken().startswith(b"HTTP/1.1 408 ")


def test_an_idle_client_is_let_go_silently(case):
    case.receive(get("/now"))
    case.transport.taken()
    case.now = IDLE_SECONDS - 1
    case.connection.tick(case.now)
    assert "abort" not in case.transport.did
    case.now = IDLE_SECONDS
    case.connection.tick(case.now)
    assert case.transport.did[-1] == "abort"
    assert case.transport.taken() == b""


def test_blank_lines_do_not_keep_an_idle_connection_open(case):
    for case.now in (30.0, 60.0):
        case.receive(b"\r\n")
    case.connection.tick(IDLE_SECONDS)
    assert case.transport.did[-1] == "abort"


def test_what_runs_is_told_of_the_client(case):
    case.receive(get("/later"))
    case.connection.pause_writing()
    case.connection.resume_writing()
    case.connection.tick(1.0)
    case.connection.eof_received()
    case.lose()
    assert case.running[0].told == ["pause", "resume", "tick 1", "left"]
    assert case.transport.did == ["abort"]
    assert case.clients.connections == set()


def test_a_client_that_ends_after_its_answers_is_no_loss(case):
    case.receive(get("/later"))
    case.connection.answer(200, [], b"")
    case.connection.eof_received()
    case.lose()
    assert case.running[0].told == []


def test_draining_closes_idle_connections_and_the_others_after_their_answer(case):
    idle, begun = Case.__new__(Case), Case.__new__(Case)
    for other in (idle, begun):
        other.__dict__ = dict(case.__dict__)
        other.transport = FakeTransport()
        other.connection = case.clients.accept()
        other.connection.connection_made(other.transport)
    case.receive(get("/later"))
    begun.receive(b"GET /now HTTP/1.1\r\n")
    case.clients.drain()
    assert (case.transport.did, idle.transport.did, begun.transport.did) == ([], ["write_eof"], [])
    case.connection.answer(200, [], b"")
    begun.receive(b"Host: r\r\n\r\n")
    assert b"connection: close" in case.transport.taken()
    assert b"connection: close" in begun.transport.taken()
    assert case.transport.did == begun.transport.did == ["write_eof"]


def began_before_the_drain(case):
    case.receive(get("/later"))
    case.connection.write(b"a head that says nothing about the connection")
    case.clients.drain()
    case.connection.finish(keep=True)
    case.transport.taken()


def test_a_client_whose_answer_began_before_the_drain_gets_one_more(case):
    began_before_the_drain(case)
    assert case.transport.did == []
    case.receive(get("/now"))  # it was under way already, as a client's that sends back to back
    assert b"connection: close" in case.transport.taken()
    assert case.transport.did == ["write_eof"]


def test_a_client_that_sends_nothing_more_in_a_drain_is_left_soon(case):
    began_before_the_drain(case)
    case.connection.tick(case.now + downstream.LAST_REQUEST_SECONDS - 0.1)
    assert case.transport.did == []
    case.connection.tick(case.now + downstream.LAST_REQUEST_SECONDS)
    assert case.transport.did == ["write_eof"]


def test_a_connection_that_was_promised_to_stay_does_so_until_its_client_was_told(case):
    case.receive(get("/later"))
    case.clients.draining = True
    case.connection.finish(keep=True)
    assert case.transport.did == []
    case.receive(get("/now"))
    assert b"connection: close" in case.transport.taken()
    assert case.transport.did == ["write_eof"]


@pytest.mark.interpreted
@pytest.mark.parametrize("unsent", [0, 1])
def test_a_drain_waits_for_no_client_that_is_gone_and_has_its_answers(case, monkeypatch, unsent):
    monkeypatch.setattr(downstream, "_unacknowledged", lambda _: unsent)
    case.clients.drain()
    monkeypatch.setattr(downstream, "_unacknowledged", lambda _: unsent + 1)  # the end that nobody acknowledges
    case.connection.tick(case.clients.clock() + downstream.LINGER_SECONDS)
    assert case.transport.did == ["write_eof", *(["abort"] if not unsent else [])]


def test_waiting_until_the_last_client_is_gone(case):
    async def check():
        waiting = asyncio.ensure_future(case.clients.wait_closed())
        await asyncio.sleep(0)
        assert not waiting.done()
        case.lose()
        async with asyncio.timeout(1):
            await waiting

    asyncio.run(check())


def test_one_who_sends_much_at_once_waits_for_others_after_each_read():
    async def check():
        case = Case(max_body=10 * TURN_BYTES)
        case.receive(post(b"x" * (2 * TURN_BYTES))[:-TURN_BYTES])
        assert case.transport.did == ["pause"]
        await asyncio.sleep(0)
        assert case.transport.did == ["pause", "resume"]
        case.receive(b"x" * TURN_BYTES)  # the end of the request
        assert len(case.seen) == 1
        await asyncio.sleep(0)
        assert case.transport.did == ["pause", "resume", "pause", "resume"]

    asyncio.run(check())


def test_one_who_sent_too_much_ahead_is_not_read_when_its_turn_comes():
    async def check():
        case = Case(max_body=10 * TURN_BYTES)
        case.receive(get("/later") + b"x" * TURN_BYTES)
        await asyncio.sleep(0)
        assert case.transport.did == ["pause"]

    asyncio.run(check())


def test_what_is_sent_after_the_last_answer_is_read_in_turns_and_discarded():
    async def check():
        case = Case()
        case.receive(b"no request\r\n\r\n")
        case.transport.did.clear()
        case.receive(b"x" * TURN_BYTES)
        assert case.transport.did == ["pause"]
        await asyncio.sleep(0)
        assert case.transport.did == ["pause", "resume"]

    asyncio.run(check())


def opened(case, address, data=b""):
    transport, connection = Addressed(address), case.clients.accept()
    connection.connection_made(transport)
    if data:
        connection.data_received(data)
    return transport, connection


HELD = {
    "silent": b"",
    "blank lines": b"\r\n",
    "a part of a head": b"GET /now HT",
    "an answered request": get("/now"),
    "a part of a body": post(b"x" * 100)[:-1],
}
USES = dict(zip(HELD.values(), ["silent", "silent", "begun", "kept", "uploading"], strict=True))
"""What was brought → the name under which a connection that gives way is counted."""


@pytest.mark.parametrize("data", HELD.values(), ids=HELD)
@pytest.mark.parametrize(("address", "after"), [("10.0.0.2", 0.0), ("10.0.0.1", GRACE_SECONDS)])
@pytest.mark.parametrize("count", [40, 4000])
def test_a_client_is_served_while_another_holds_all_connections(data, address, after, count):
    case = Case()
    case.lose()
    case.clients.max_connections = 40
    uses = []
    case.clients.gave_way = uses.append
    first = [opened(case, "10.0.0.1", data) for _ in range(count)]
    case.now += after
    transport, honest = opened(case, address, get("/now"))
    assert transport.taken().startswith(b"HTTP/1.1 200")
    assert honest in case.clients.connections
    assert len(case.clients.connections) <= 40 + REFUSED_CONNECTIONS
    left = [connection for transport, connection in first if transport.is_closing()]
    assert left
    assert uses
    assert set(uses) == {USES[data]}
    for connection in left:
        connection.connection_lost(None)


def test_who_is_being_answered_or_does_not_read_gives_way_to_nobody():
    case = Case()
    case.clients.max_connections = 3
    running, _ = opened(case, "10.0.0.1", get("/later"))
    unread, _ = opened(case, "10.0.0.1", get("/now"))
    unread.unsent = 5
    case.connection.data_received(get("/later"))
    case.now += 50
    refused, _ = opened(case, "10.0.0.2", get("/now"))
    assert refused.taken().startswith(b"HTTP/1.1 503")
    assert [running.is_closing(), unread.is_closing()] == [False, False]


@pytest.mark.interpreted
def test_nothing_is_looked_for_again_at_once_where_nobody_gives_way(monkeypatch):
    looks = []
    monkeypatch.setattr(downstream, "who_gives_way", lambda *_: looks.append(1) or [])
    case = Case()
    case.clients.max_connections = 1
    case.now = 100.0
    for _ in range(50):
        opened(case, "10.0.0.1")
    assert len(looks) == 1
    case.now += 2 * PAUSE_SECONDS
    opened(case, "10.0.0.1")
    assert len(looks) == 2


class Turns(Case):
    """Connections of a port that refuses `/no`, on a loop whose turns a test gives."""

    def __init__(self) -> None:
        super().__init__()
        self.others = []
        for _ in range(3 * REFUSED_AT_ONCE):
            self.others.append(self.clients.accept())
            self.others[-1].connection_made(FakeTransport())

    def handle(self, client, request):
        if request.head.path == b"/no":
            self.seen.append(request.head.path)
            client.answer(429, [], b"")
            return None
        return super().handle(client, request)

    async def turn(self) -> int:
        """Give everything that waits its turn. Return the number of requests that were handled."""
        before = len(self.seen)
        await asyncio.sleep(0)
        return len(self.seen) - before


def test_a_burst_of_those_who_are_refused_does_not_keep_others_waiting():
    async def check():
        case = Turns()
        for connection in case.others:
            connection.data_received(get("/no"))  # nobody knows of them yet
        assert len(case.seen) == len(case.others)
        for connection in case.others:
            connection.data_received(get("/no"))
        case.receive(get("/now"))
        assert case.seen[-1] == b"/now"
        assert [await case.turn() for _ in range(4)] == [REFUSED_AT_ONCE] * 3 + [0]

    asyncio.run(check())


def test_requests_sent_ahead_by_one_who_is_refused_wait_too_and_come_in_order():
    async def check():
        case = Turns()
        case.receive(get("/no") * 3 + get("/now") * 2)
        assert case.seen == [b"/no"]
        # once it is served it waits no more
        assert [await case.turn() for _ in range(5)] == [1, 1, 2, 0, 0]
        assert case.seen == [b"/no"] * 3 + [b"/now"] * 2

    asyncio.run(check())


def test_whoever_waits_behind_others_and_leaves_is_passed_over():
    async def check():
        case = Turns()
        first, second = case.others[:2]
        for _ in range(2):
            for connection in (first, second):
                connection.data_received(get("/no"))
        first.connection_lost(None)
        assert await case.turn() == 1

    asyncio.run(check())
