import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptgroup_picker.http2 import budget, connection, frames
from promptgroup_picker.http2.field_blocks import MAX_FIELD_BYTES
from promptgroup_picker.http2.frames import PREFACE, ErrorCode, FrameType
from promptgroup_picker.http2.grpc_messages import framed
from support.grpcclient import Client, Noted, kinds


def test_a_call_from_its_head_to_its_end():
    client = Client()
    client.send(client.head(1), client.data(1, b"ask"))
    (call,) = client.calls
    assert call.messages == [b"ask"]
    call.stream.send(b"answer")
    assert client.wakes == 1
    assert kinds(client.hear()) == ["HEADERS", "DATA"]
    client.send(frames.frame(FrameType.DATA, frames.END_STREAM, 1))
    call.stream.finish()
    found = client.hear()
    assert kinds(found) == ["HEADERS"]
    assert client.fields(found[0])["grpc-status"] == "0"
    assert client.messages(1) == [b"answer"]
    assert call.events == ["half closed"]
    assert not client.server.streams.open


def test_trailers_end_what_a_client_sends():
    client = Client()
    client.send(client.head(1), client.data(1, b"ask"), client.head(1))
    (call,) = client.calls
    assert (call.messages, call.events) == ([b"ask"], ["half closed"])
    client.send(frames.reset(1, ErrorCode.CANCEL), client.head(1))
    assert client.calls == [call], "trailers of a stream that has ended are no new call"
    assert not client.server.closed


def learned():
    """The answer of a peer that has read that the connection drains."""
    return frames.frame(FrameType.PING, frames.ACK, 0, connection.DRAINING)


def test_a_draining_connection_takes_what_was_on_its_way_and_nothing_else():
    client = Client()
    client.send(client.head(1))
    client.server.drain()
    first, ping = client.hear()
    assert (first.type, int.from_bytes(first.payload[:4], "big")) == (FrameType.GOAWAY, connection.ANY_STREAM)
    assert (ping.type, ping.flags) == (FrameType.PING, 0)
    assert kinds(client.send(client.head(3))) == []  # it was sent before the peer had read that
    (last,) = client.send(learned())
    assert (last.type, int.from_bytes(last.payload[:4], "big")) == (FrameType.GOAWAY, 3)
    assert kinds(client.send(client.head(5))) == ["RST_STREAM"]
    client.send(client.data(1, b"goes on"), client.data(3, b"too"))
    assert [each.messages for each in client.calls] == [[b"goes on"], [b"too"]]
    assert not client.server.drained
    client.send(*(frames.reset(number, ErrorCode.CANCEL) for number in (1, 3)))
    assert client.server.drained


def test_a_connection_that_does_not_drain_takes_no_answer_for_one():
    client = Client()
    assert client.send(learned()) == []
    assert kinds(client.send(client.head(1), client.data(1, b"ask"))) == []
    assert not client.server.drained


def test_a_connection_drains_once():
    client = Client()
    client.server.drain()
    client.server.drain()
    client.server.refuse()
    client.server.refuse()
    assert kinds(client.send(learned())) == ["GOAWAY", "PING", "GOAWAY"]


def test_pings_are_answered():
    client = Client()
    found = client.send(frames.frame(FrameType.PING, 0, 0, b"12345678"))
    assert [(each.flags, each.payload) for each in found] == [(frames.ACK, b"12345678")]
    assert client.send(frames.frame(FrameType.PING, frames.ACK, 0, b"12345678")) == []


def many(client, make, count):
    for number in range(count):
        client.send(*make(number))


VIOLATIONS = {
    "an even stream": lambda c: [c.head(2)],
    "an even stream below one that was opened": lambda c: [c.head(5), c.head(2)],
    "a stream again": lambda c: [c.head(5), frames.reset(5, ErrorCode.CANCEL), c.data(7, b"")],
    "data of no stream": lambda c: [c.data(0, b"")],
    "data behind the end": lambda c: [c.head(1), c.data(1, b"", frames.END_STREAM), c.data(1, b"")],
    "trailers behind the end": lambda c: [c.head(1), c.data(1, b"", frames.END_STREAM), c.head(1)],
    "fields that do not begin": lambda _: [frames.frame(FrameType.CONTINUATION, 4, 1)],
    "fields that are interrupted": lambda c: [frames.frame(FrameType.HEADERS, 0, 1, b"\x82"), c.data(1, b"")],
    "fields without an end": lambda _: [
        frames.frame(FrameType.HEADERS, 0, 1, b"\x82"),
        *[frames.frame(FrameType.CONTINUATION, 0, 1, b"\x82" * 16000)] * 5,
    ],
    "fields byte by byte": lambda _: [
        frames.frame(FrameType.HEADERS, 0, 1, b"\x82"),
        *[frames.frame(FrameType.CONTINUATION, 0, 1, b"\x82")] * MAX_FIELD_BYTES,
    ],
    "fields of nothing": lambda _: [
        frames.frame(FrameType.HEADERS, 0, 1, b"\x82"),
        frames.frame(FrameType.CONTINUATION, 0, 1),
    ],
    "a short ping": lambda _: [frames.frame(FrameType.PING, 0, 0, b"1")],
    "a window of nothing": lambda _: [frames.window_update(0, 0)],
    "a window that is too large": lambda _: [frames.window_update(0, 2**31 - 1)] * 2,
    "a window of a stream that is too large": lambda c: [c.head(1), *[frames.window_update(1, 2**31 - 1)] * 2],
    "a push": lambda _: [frames.frame(FrameType.PUSH_PROMISE, 4, 1)],
}


@pytest.mark.parametrize("send", VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_closes_the_connection(send):
    client = Client()
    found = client.send(*send(client))
    assert client.server.closed
    assert found[-1].type == FrameType.GOAWAY
    assert all(each.events[-1:] == ["lost"] for each in client.calls)
    assert client.send(client.head(9)) == []


def test_more_streams_than_are_allowed_are_refused(monkeypatch):
    monkeypatch.setattr(connection, "MAX_STREAMS", 2)
    client = Client()
    found = client.send(*(client.head(number) for number in (1, 3, 5)))
    assert [(each.type, each.stream) for each in found] == [(FrameType.RST_STREAM, 5)]


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_no_bytes_raise(parts):
    server = connection.ServerConnection(lambda _, stream: Noted(stream), 1000, lambda: None)
    server.receive(PREFACE)
    for each in parts:
        server.receive(each)
        server.take()


@example([(FrameType.HEADERS, 0, 1, b"\0")])
@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 255), st.integers(0, 7), st.binary(max_size=40)), max_size=30)
)
def test_no_frames_raise(written):
    client = Client(lambda path, stream: Noted(stream) if path else None)
    for each in written:
        client.server.receive(frames.frame(*each))
    client.server.take()
    client.server.lost()
    assert not client.server.streams.open
    assert client.server.held == 0


@pytest.mark.parametrize("frame", [frames.frame(FrameType.PING, 0, 0, bytes(8)), frames.settings({})])
def test_a_turn_ends_when_its_frames_have_cost_enough_and_the_others_stay(frame):
    client = Client()
    client.server.keep(frame * 100)
    assert 10 * budget.FRAME <= client.server.read(10 * budget.FRAME) < 11 * budget.FRAME
    assert client.server.more
    assert client.server.held == 90 * len(frame)
    client.server.read()
    assert not client.server.more
    assert len(client.hear()) == 100


def test_a_connection_that_owes_too_much_for_long_is_told_to_be_calm():
    client = Client()
    client.send(client.head(1))
    client.server.budget.charge(budget.CREDIT)
    for _ in range(budget.CALM_TICKS):
        assert not client.server.tick()
    assert client.server.tick()
    assert not client.server.tick()
    (goaway,) = client.hear()
    assert int.from_bytes(goaway.payload[4:], "big") == ErrorCode.ENHANCE_YOUR_CALM
    assert client.calls[0].events == ["lost"]
    assert client.server.closed


def test_what_a_connection_holds_is_told():
    client = Client()
    client.send(client.head(1), client.head(3))
    client.send(frames.frame(FrameType.DATA, 0, 1, framed(b"x" * 100)[:50]), b"\0\0\x64")
    assert client.server.held == 50 + 3
    client.server.receive(frames.frame(FrameType.DATA, 0, 3, b"x" * 100)[3:])  # the rest of that frame
    assert client.server.held == 50
    client.send(frames.reset(1, ErrorCode.CANCEL))
    assert client.server.held == 0
    client.send(frames.frame(FrameType.HEADERS, 0, 5, b"\x82" * 7))
    assert client.server.held == 7


def test_a_full_port_refuses_streams():
    client = Client()
    client.server.full = True
    assert kinds(client.send(client.head(1))) == ["RST_STREAM"]
