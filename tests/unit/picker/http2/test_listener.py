import asyncio

import pytest

from promptgroup_picker.http2 import budget, frames, listener
from promptgroup_picker.http2.connection import DRAINING
from promptgroup_picker.http2.frames import PREFACE, FrameType, settings
from promptgroup_picker.http2.grpc_messages import framed
from promptgroup_picker.http2.listener import (
    IDLE_SECONDS,
    LEARN_SECONDS,
    PREFACE_SECONDS,
    STALL_SECONDS,
    GrpcListener,
)
from promptgroup_picker.http2.open_streams import QUIET_TICKS
from support.grpcclient import Client, Noted
from support.http2floods import Peer

BEGINNING = PREFACE + settings({})


class Transport:
    """Remembers that it was closed."""

    def __init__(self, address="127.0.0.1"):
        self.closed = False
        self.unsent = 0
        self.address = address

    def abort(self):
        self.closed = True

    close = abort

    def is_closing(self):
        return self.closed

    def get_extra_info(self, _):
        return (self.address, 1)

    def set_write_buffer_limits(self, high):
        pass

    def pause_reading(self):
        pass

    def get_write_buffer_size(self):
        return self.unsent

    def write(self, data):
        pass

    writelines = write


class Port:
    """A listener whose time is set by hand."""

    def __init__(self, most=1000, held=10_000):
        self.now = 100.0
        self.listener = GrpcListener(
            lambda _, stream: Noted(stream),
            lambda: self.now,
            max_message=5000,
            max_connections=most,
            max_held=held,
        )

    def connect(self, data=BEGINNING, address="127.0.0.1"):
        transport, connection = Transport(address), self.listener.accept()
        connection.connection_made(transport)
        if data and not transport.closed:
            connection.data_received(data)
        return transport, connection

    def later(self, seconds):
        self.now += seconds
        self.listener.tick(self.now)


@pytest.mark.parametrize("data", [b"", PREFACE[:-1]])
def test_a_peer_that_does_not_begin_is_closed_soon(data):
    port = Port()
    silent, _ = port.connect(data)
    gateway, _ = port.connect()
    port.later(PREFACE_SECONDS)
    assert not silent.closed
    port.later(1)
    assert (silent.closed, gateway.closed) == (True, False)
    port.later(IDLE_SECONDS)
    assert gateway.closed


def test_a_peer_that_reads_nothing_is_closed_and_one_that_reads_slowly_is_not():
    port, head = Port(), Client().head(1)
    (hung, _), (slow, _) = [port.connect(BEGINNING + head) for _ in range(2)]
    hung.unsent, slow.unsent = 1000, 1000
    port.later(1)
    for _ in range(4):
        slow.unsent -= 100
        port.later(STALL_SECONDS / 2)
        assert not slow.closed
    assert hung.closed
    slow.unsent = 0
    port.later(2 * STALL_SECONDS)
    assert not slow.closed, "nothing waits to be read"


def test_the_connection_that_is_idle_for_the_longest_gives_way_to_a_new_one():
    port = Port(most=3)
    first, _ = port.connect()
    port.now += 1
    second, gateway = port.connect()
    port.now += 1
    third, _ = port.connect()
    port.now += 1
    gateway.data_received(settings({}))
    fresh, _ = port.connect()
    assert [each.closed for each in (first, second, third, fresh)] == [True, False, False, False]
    port.now += 1
    port.connect()
    assert [each.closed for each in (second, third, fresh)] == [False, True, False]


def test_a_connection_with_a_call_gives_way_to_nobody():
    port = Port(most=1)
    busy, connection = port.connect()
    connection.data_received(Client().head(1))
    refused, _ = port.connect()
    assert (busy.closed, refused.closed) == (False, True)
    assert len(port.listener.connections) == 1


def test_the_network_with_the_most_connections_gives_way_first():
    port = Port(most=4)
    gateway, _ = port.connect(address="10.0.0.1")
    port.now += 1
    others = [port.connect(address="10.0.0.2")[0] for _ in range(3)]
    for _ in range(5):
        port.now += 1
        others.append(port.connect(address="10.0.0.2")[0])
        assert not gateway.closed
    assert [each.closed for each in others] == [True] * 5 + [False] * 3


def test_whoever_holds_most_connections_with_calls_keeps_no_gateway_out():
    port = Port(most=4)
    busy = []
    for _ in range(4):
        transport, connection = port.connect(address="10.0.0.2")
        connection.data_received(Client().head(1))
        busy.append(transport)
        port.now += 1
    assert port.connect(address="10.0.0.2")[0].closed
    gateway, connection = port.connect(address="10.0.0.1")
    connection.data_received(Client().head(1))
    assert [each.closed for each in (gateway, *busy)] == [False, True, False, False, False]
    # each further one has a place until nobody has more than half of them
    port.connect(address="10.0.0.3")[1].data_received(Client().head(1))
    assert port.connect(address="10.0.0.4")[0].closed


LEARNED = frames.frame(FrameType.PING, frames.ACK, 0, DRAINING)


def test_a_connection_that_drains_is_closed_once_the_gateway_knows_and_has_no_call():
    port, client = Port(), Client()
    idle, quiet = port.connect()
    busy, calling = port.connect()
    calling.data_received(client.head(1))
    port.listener.drain()
    assert not idle.closed  # a call may be on its way
    quiet.data_received(LEARNED)
    calling.data_received(LEARNED)
    assert (idle.closed, busy.closed) == (True, False)
    calling.data_received(frames.reset(1, frames.ErrorCode.CANCEL))
    assert busy.closed


@pytest.mark.parametrize("data", [b"", BEGINNING])
def test_a_gateway_that_never_says_that_it_knows_does_not_hold_up_a_drain(data):
    port = Port()
    port.listener.drain()
    silent, _ = port.connect(data)  # accepted before the port was closed
    port.later(LEARN_SECONDS)
    assert not silent.closed
    port.later(1)
    assert silent.closed


def test_many_connections_of_one_network_that_hold_little_close_none_of_another():
    port = Port()
    gateway, honest = port.connect(address="10.0.0.1")
    honest.data_received(Client().head(1))
    honest.data_received(part(3000))
    others = []
    for _ in range(9):
        transport, connection = port.connect(address="10.0.0.2")
        connection.data_received(Client().head(1))
        connection.data_received(part(1000))
        others.append(transport)
    assert not gateway.closed
    assert sum(each.closed for each in others) == 2


def part(size):
    """The beginning of a message, in a frame that is whole."""
    return frames.frame(FrameType.DATA, 0, 1, framed(bytes(5000))[:size])


def test_the_connection_that_holds_the_most_is_closed_when_all_hold_too_much():
    port = Port()
    (small, gateway), (large, greedy), (last, late) = (port.connect() for _ in range(3))
    for each, size in ((gateway, 3000), (greedy, 4900), (late, 2000)):
        each.data_received(Client().head(1))
        each.data_received(part(size))
    assert port.listener.held == 9900
    late.data_received(part(500))
    assert [each.closed for each in (small, large, last)] == [False, True, False]
    assert port.listener.held == 5500
    for each in (gateway, greedy, late):
        each.connection_lost(None)
    assert (port.listener.held, port.listener.calls) == (0, 0)


def test_frames_that_are_not_whole_and_output_that_is_not_read_count_too():
    port = Port()
    _, gateway = port.connect()
    gateway.data_received(frames.frame(FrameType.PING, 0, 0, bytes(8))[:-1])
    assert port.listener.held == frames.HEADER_BYTES + 7
    other, slow = port.connect()
    other.unsent = 20_000
    slow.data_received(settings({}))
    assert other.closed


def test_what_was_read_meanwhile_closes_nobody():
    port = Port()
    read, reader = port.connect()
    read.unsent = 9000
    reader.data_received(settings({}))
    read.unsent = 0
    other, writer = port.connect()
    other.unsent = 9000
    writer.data_received(settings({}))
    assert (read.closed, other.closed, port.listener.held) == (False, False, 9000)


def test_calls_are_bounded_on_all_connections_together(monkeypatch):
    monkeypatch.setattr(listener, "MAX_CALLS", 3)
    port = Port()
    (_, first), (_, second) = port.connect(), port.connect()
    one, other = Client(), Client()
    first.data_received(one.head(1) + one.head(3) + one.head(5))
    second.data_received(other.head(1))
    assert (first.calls, second.calls) == (3, 0)
    first.data_received(frames.reset(3, frames.ErrorCode.CANCEL))
    second.data_received(other.head(3))
    assert (first.calls, second.calls) == (2, 1)


def test_a_check_that_asks_nothing_does_not_last():
    port = Port()
    transport, connection = port.connect()
    connection.data_received(Client().head(1))
    for _ in range(QUIET_TICKS + 1):
        port.later(1)
    assert (connection.calls, transport.closed) == (0, False)


def test_the_log_of_a_fault_has_its_place_and_no_prompt(caplog):
    class Faulty(Noted):
        def message(self, data):
            raise RuntimeError(data.decode())

    port, client = Port(), Client()
    port.listener.opener = lambda _, stream: Faulty(stream)
    port.connect(BEGINNING + client.head(1) + client.data(1, b"the prompt"))
    (line,) = caplog.records
    assert line.fields["error"] == "RuntimeError"
    assert ".message:" in line.fields["at"]
    assert "the prompt" not in caplog.text
    assert line.exc_info is None


def flooded(port, pings=2000):
    """A connection whose peer has sent more than is read at once."""
    peer = Peer(port.listener)
    peer.send(frames.frame(FrameType.PING, 0, 0, bytes(8)) * pings)
    return peer


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_peer_is_not_read_while_its_frames_wait_for_their_turn():
    async def check():
        peer = flooded(Port(held=10**6))
        assert (peer.pipe.reading, peer.connection.ready) == (False, True)
        peer.send(settings({}))  # it was on its way
        await turns(10)
        assert (peer.pipe.reading, peer.connection.ready) == (True, False)

    asyncio.run(check())


def test_a_peer_that_owes_too_much_is_read_again_once_it_is_forgiven(monkeypatch):
    monkeypatch.setattr(budget, "CREDIT", 3000.0)

    async def check():
        port = Port(held=10**6)
        peer = flooded(port, 1500)
        await turns(10)
        assert (peer.pipe.reading, peer.connection.ready, peer.connection.budget.overdrawn) == (False, False, True)
        port.later(0.01)
        await turns(10)
        assert not peer.pipe.reading, "500 units are not enough"
        port.later(1)
        await turns(10)
        assert (peer.pipe.reading, peer.pipe.closed) == (True, False)

    asyncio.run(check())


def test_a_peer_that_does_not_read_has_no_turn():
    async def check():
        peer = flooded(Port(held=10**6))
        peer.connection.pause_writing()
        await turns(10)
        assert (peer.pipe.reading, peer.connection.ready) == (False, False)
        peer.connection.resume_writing()
        await turns(10)
        assert peer.pipe.reading

    asyncio.run(check())


def test_a_peer_that_leaves_while_it_waits_leaves_nothing_behind():
    async def check():
        port = Port(held=10**6)
        peer, other = flooded(port), flooded(port)
        peer.connection.connection_lost(None)
        await turns(10)
        assert (peer.connection.ready, other.pipe.reading) == (False, True)
        assert port.listener.connections == {other.connection}

    asyncio.run(check())


def test_the_log_names_the_peer_that_was_closed(caplog):
    port = Port()
    transport, connection = port.connect()
    for _ in range(budget.CALM_TICKS + 1):
        connection.budget.charge(2 * budget.CREDIT)
        port.later(1)
    assert transport.closed
    (line,) = caplog.records
    assert line.fields == {"peer": "127.0.0.1"}
