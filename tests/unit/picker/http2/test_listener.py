import pytest

from promptgroup_picker.http2 import frames
from promptgroup_picker.http2.connection import DRAINING
from promptgroup_picker.http2.frames import PREFACE, FrameType, settings
from promptgroup_picker.http2.listener import IDLE_SECONDS, LEARN_SECONDS, PREFACE_SECONDS, GrpcListener
from support.grpcclient import Client, Noted

BEGINNING = PREFACE + settings({})


class Transport:
    """Remembers that it was closed."""

    def __init__(self):
        self.closed = False

    def abort(self):
        self.closed = True

    close = abort

    def is_closing(self):
        return self.closed

    def get_extra_info(self, _):
        return ("127.0.0.1", 1)

    def set_write_buffer_limits(self, high):
        pass

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        pass

    writelines = write


class Port:
    """A listener whose time is set by hand."""

    def __init__(self, most=1000):
        self.now = 100.0
        self.listener = GrpcListener(
            lambda _, stream: Noted(stream), lambda: self.now, max_message=1000, max_connections=most
        )

    def connect(self, data=BEGINNING):
        transport, connection = Transport(), self.listener.accept()
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
