import pytest

from promptgroup_picker.http2 import frames, open_streams
from promptgroup_picker.http2.frames import ErrorCode, FrameType
from promptgroup_picker.http2.grpc_messages import GrpcStatus, framed
from support.grpcclient import Client, Noted, echoing, kinds


def test_a_call_of_no_method_is_refused():
    client = Client()
    found = client.send(client.head(1, path="nothing"))
    assert kinds(found) == ["HEADERS", "RST_STREAM"]
    assert client.fields(found[0])["grpc-status"] == str(GrpcStatus.UNIMPLEMENTED.value)


def test_a_call_that_ends_before_its_client_asks_for_no_more():
    client = Client()
    client.send(client.head(1))
    client.calls[0].stream.finish(GrpcStatus.INTERNAL, "100 % wrong")
    found = client.hear()
    assert kinds(found) == ["HEADERS", "HEADERS", "RST_STREAM"]
    assert client.fields(found[1])["grpc-message"] == "100 %25 wrong"
    client.send(client.data(1, b"late"))  # on its way, and ignored
    assert not client.server.closed


def test_a_message_that_is_too_large_ends_the_call_alone():
    client = Client(most=10)
    found = client.send(client.head(1), client.data(1, b"x" * 11))
    assert kinds(found) == ["HEADERS", "HEADERS", "RST_STREAM"]
    assert client.fields(found[1])["grpc-status"] == str(GrpcStatus.RESOURCE_EXHAUSTED.value)
    assert client.calls[0].events == ["lost"]
    assert not client.server.closed


@pytest.mark.parametrize("at", ["message", "half_closed", "lost"])
def test_a_fault_of_the_picker_ends_the_call_alone_and_is_told(at):
    class Faulty(Noted):
        def fail(self, *_):
            raise RuntimeError("it fails")

    def opener(_, stream):
        calls.append(Faulty(stream) if not calls else Noted(stream))
        if len(calls) == 1:
            setattr(calls[0], at, calls[0].fail)
        return calls[-1]

    calls = []
    client = Client(opener)
    client.send(client.head(1), client.head(3))
    reset = at == "lost"
    end = frames.reset(1, ErrorCode.CANCEL) if reset else client.data(1, b"ask", frames.END_STREAM)
    found = client.send(end, client.data(3, b"ask"))
    if not reset:
        assert client.fields(found[1])["grpc-status"] == str(GrpcStatus.INTERNAL.value)
        assert calls[0].events[-1] == "lost"
    assert not client.server.closed
    assert list(client.server.streams.open) == [3]
    assert calls[1].messages == [b"ask"]
    assert [str(each) for each in client.faults] == ["it fails"]


def test_what_comes_for_a_call_that_has_ended_is_dropped():
    client = Client()
    client.send(client.head(1), client.data(1, b"ask"))
    (call,) = client.calls
    call.stream.send(b"x" * 200_000)
    call.stream.finish()
    client.hear()
    half = frames.frame(FrameType.DATA, 0, 1, framed(b"x" * 1000)[:-1])
    client.send(client.data(1, b"more"), half)
    assert call.messages == [b"ask"]
    assert client.server.held == call.stream.waiting
    client.send(frames.window_update(1, 2**20), frames.window_update(0, 2**20))
    assert not client.server.streams.open


def test_resets_and_the_end_of_the_connection_lose_calls_once():
    client = Client()
    client.send(client.head(1), client.head(3), frames.reset(1, ErrorCode.CANCEL))
    assert [each.events for each in client.calls] == [["lost"], []]
    client.server.lost()
    client.server.lost()
    assert [each.events for each in client.calls] == [["lost"], ["lost"]]


def test_streams_that_are_opened_and_reset_again_and_again():
    client = Client()
    for number in range(open_streams.MAX_RESETS + 1):
        client.send(client.head(2 * number + 1), frames.reset(2 * number + 1, ErrorCode.CANCEL))
    assert client.server.closed


def test_streams_that_are_reset_once_they_are_served_are_no_attack():
    client = Client()
    for number in range(open_streams.MAX_RESETS + 10):
        client.send(client.head(2 * number + 1))
        client.calls[-1].stream.send(b"answer")
        client.send(frames.reset(2 * number + 1, ErrorCode.INTERNAL_ERROR), frames.window_update(0, 100))
    assert not client.server.closed


@pytest.mark.parametrize("ends", ["well", "badly", "with nothing"])
def test_a_call_that_was_served_pays_for_a_client_that_left_early(ends, monkeypatch):
    monkeypatch.setattr(open_streams, "MAX_RESETS", 3)
    client = Client()
    for number in range(1, 41, 4):
        client.send(client.head(number), frames.reset(number, ErrorCode.CANCEL), client.head(number + 2))
        call = client.calls[-1]
        client.send(client.data(number + 2, b"ask", frames.END_STREAM))
        if ends != "with nothing":
            call.stream.send(b"answer")
        call.stream.finish(GrpcStatus.INTERNAL if ends == "badly" else GrpcStatus.OK)
        client.hear()
    assert client.server.closed is (ends != "well")


def test_a_call_that_waits_for_the_window_and_is_reset_leaves_nothing_behind():
    client = Client()
    client.send(client.head(1), frames.window_update(1, 2**20))
    client.calls[0].stream.send(b"x" * 200_000)
    client.hear()
    assert client.server.held
    client.send(frames.reset(1, ErrorCode.CANCEL))
    assert not client.server.held
    assert not client.server._sender._blocked
    assert client.send(frames.window_update(0, 2**20)) == []


def test_a_stream_whose_output_does_not_get_on_is_reset_in_time():
    client = echoing(0)
    client.send(client.data(1, b"ask"))
    for _ in range(open_streams.QUIET_TICKS):
        client.server.tick()
    client.send(frames.window_update(1, 1))
    client.server.tick()
    assert client.server.streams.open  # it has got on
    for _ in range(open_streams.QUIET_TICKS):
        client.server.tick()
    assert kinds(client.hear()) == ["RST_STREAM"]
    assert client.calls[0].events == ["lost"]


def test_a_stream_that_brings_no_message_is_reset_in_time():
    client = Client()
    client.send(client.head(1), client.head(3), client.data(3, b"ask"), client.data(1, b"not all of it")[:-1])
    for _ in range(open_streams.QUIET_TICKS + 1):
        client.server.tick()
    assert [(each.type, each.stream) for each in client.hear()] == [(FrameType.RST_STREAM, 1)]
    assert [each.events for each in client.calls] == [["lost"], []]
