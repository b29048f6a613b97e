import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_picker.http2 import budget, connection, frames
from promptgroup_picker.http2.frames import PREFACE, ErrorCode, FrameType
from promptgroup_picker.http2.grpc_messages import GrpcStatus, framed
from support.grpcclient import Client, Noted


def kinds(found):
    return [FrameType(each.type).name for each in found]


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
    assert not client.server.streams


def test_trailers_end_what_a_client_sends():
    client = Client()
    client.send(client.head(1), client.data(1, b"ask"), client.head(1))
    (call,) = client.calls
    assert (call.messages, call.events) == ([b"ask"], ["half closed"])
    client.send(frames.reset(1, ErrorCode.CANCEL), client.head(1))
    assert client.calls == [call], "trailers of a stream that has ended are no new call"
    assert not client.server.closed


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
    assert list(client.server.streams) == [3]
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
    assert not client.server.streams


@pytest.mark.parametrize("whole", [True, False])
def test_output_waits_for_the_windows(whole):
    client = Client()
    client.send(client.head(1))
    call = client.calls[0]
    call.stream.send(b"x" * 200_000)
    sent = sum(len(each.payload) for each in client.hear() if each.type == FrameType.DATA)
    assert sent == connection.DEFAULT_WINDOW
    call.stream.finish()
    assert client.hear() == []
    client.send(frames.window_update(1, 2**20))
    assert client.server.streams  # that of the connection is still closed
    for _ in range(1 if whole else 4):
        client.send(frames.window_update(0, 2**20 if whole else 40_000))
    assert client.messages(1) == [b"x" * 200_000]
    assert not client.server.streams


def test_settings_of_the_client_move_the_windows():
    client = Client()
    client.send(client.head(1), frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 10}))
    client.calls[0].stream.send(b"x" * 20)
    assert [len(each.payload) for each in client.hear() if each.type == FrameType.DATA] == [10]
    found = client.send(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 100}))
    assert [len(each.payload) for each in found if each.type == FrameType.DATA] == [15]


def test_the_client_gets_windows_for_what_it_sent_while_it_reads():
    client = Client()
    client.send(client.head(1))
    found = client.send(*(client.data(1, b"x" * 60_000) for _ in range(5)))
    assert sum(1 for each in found if each.type == FrameType.WINDOW_UPDATE and each.stream == 1) == 1
    client.calls[0].stream.send(b"x" * (connection.UNSENT + 70_000))
    found = client.send(*(client.data(1, b"x" * 60_000) for _ in range(8)))
    assert not [each for each in found if each.type == FrameType.WINDOW_UPDATE and each.stream == 1]
    client.send(frames.window_update(1, 2**20))
    found = client.send(frames.window_update(0, 2**20))
    assert [each for each in found if each.type == FrameType.WINDOW_UPDATE and each.stream == 1]


def test_resets_and_the_end_of_the_connection_lose_calls_once():
    client = Client()
    client.send(client.head(1), client.head(3), frames.reset(1, ErrorCode.CANCEL))
    assert [each.events for each in client.calls] == [["lost"], []]
    client.server.lost()
    client.server.lost()
    assert [each.events for each in client.calls] == [["lost"], ["lost"]]


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


def test_fields_in_several_frames():
    client = Client()
    head = client.head(1)
    block = head[9:]
    client.send(
        frames.frame(FrameType.HEADERS, 0, 1, block[:2]),
        frames.frame(FrameType.CONTINUATION, 0, 1, block[2:3]),
        frames.frame(FrameType.CONTINUATION, frames.END_HEADERS, 1, block[3:]),
    )
    assert len(client.calls) == 1


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
        *[frames.frame(FrameType.CONTINUATION, 0, 1, b"\x82")] * connection.MAX_FIELD_BYTES,
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


def test_streams_that_are_opened_and_reset_again_and_again():
    client = Client()
    for number in range(connection.MAX_RESETS + 1):
        client.send(client.head(2 * number + 1), frames.reset(2 * number + 1, ErrorCode.CANCEL))
    assert client.server.closed


def test_streams_that_are_reset_once_they_are_served_are_no_attack():
    client = Client()
    for number in range(connection.MAX_RESETS + 10):
        client.send(client.head(2 * number + 1))
        client.calls[-1].stream.send(b"answer")
        client.send(frames.reset(2 * number + 1, ErrorCode.INTERNAL_ERROR), frames.window_update(0, 100))
    assert not client.server.closed


@pytest.mark.parametrize("ends", ["well", "badly", "with nothing"])
def test_a_call_that_was_served_pays_for_a_client_that_left_early(ends, monkeypatch):
    monkeypatch.setattr(connection, "MAX_RESETS", 3)
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


@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 255), st.integers(0, 7), st.binary(max_size=40)), max_size=30)
)
def test_no_frames_raise(written):
    client = Client(lambda path, stream: Noted(stream) if path else None)
    for each in written:
        client.server.receive(frames.frame(*each))
    client.server.take()
    client.server.lost()
    assert not client.server.streams
    assert client.server._held == 0


# --- cost -------------------------------------------------------------------------------------------------------

CALLS = 200


def counted(client):
    """Count how often the connection looks at a stream to send what waits there."""
    looks, flush = [], client.server.flush

    def look(stream):
        looks.append(stream.id)
        flush(stream)

    client.server.flush = look
    return looks


def waiting(size=100):
    """A client with many calls whose answers wait for the connection's window."""
    client = Client()
    client.send(*(client.head(1 + 2 * number) for number in range(CALLS)))
    client.server._window = 0
    for call in client.calls:
        call.stream.send(b"x" * size)
    client.hear()
    return client


def test_settings_cost_the_same_however_many_calls_are_open_and_are_all_answered():
    client = waiting()
    looks = counted(client)
    sizes = [10, 2**20] * 500
    found = client.send(*(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: size}) for size in sizes))
    assert kinds(found) == ["SETTINGS"] * len(sizes)
    assert len(looks) <= CALLS
    assert {each.window for each in client.server.streams.values()} == {2**20}


def test_a_window_that_grows_byte_by_byte_costs_the_same_however_many_calls_wait():
    client = waiting(size=3)
    looks = counted(client)
    found = client.send(*[frames.window_update(0, 1)] * CALLS)
    assert len(found) == CALLS
    assert len(looks) <= 2 * CALLS
    client.send(frames.window_update(0, 8 * CALLS))  # a message has a prefix of five bytes
    assert [client.messages(1 + 2 * number) for number in range(CALLS)] == [[b"xxx"]] * CALLS


def test_a_window_that_shrinks_holds_from_the_answer_to_the_settings_on():
    client = Client()
    client.send(client.head(1))
    (call,) = client.calls
    call.message = lambda _: call.stream.send(b"x" * 100)
    client.send(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 105}))
    found = client.send(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 50}), client.data(1, b"ask"))
    assert kinds(found) == ["HEADERS", "DATA", "SETTINGS"]
    assert client.server.streams[1].window == -55
    assert kinds(client.send(client.data(1, b"ask"))) == []


def test_a_stream_that_is_opened_behind_settings_has_their_window():
    client = Client()
    client.send(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 7}), client.head(1))
    assert client.server.streams[1].window == 7


def echoing(window):
    """A client with one call that gives back what it gets; `window` is what the client lets it send."""
    client = Client()
    client.send(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: window}), client.head(1))
    (call,) = client.calls
    call.message = call.stream.send
    return client


def test_a_call_that_waits_for_the_window_and_is_reset_leaves_nothing_behind():
    client = Client()
    client.send(client.head(1), frames.window_update(1, 2**20))
    client.calls[0].stream.send(b"x" * 200_000)
    client.hear()
    assert client.server.held
    client.send(frames.reset(1, ErrorCode.CANCEL))
    assert not client.server.held
    assert not client.server._blocked
    assert client.send(frames.window_update(0, 2**20)) == []


def test_a_window_that_stays_closed_bounds_what_waits():
    client, allowed = echoing(0), connection.WINDOW
    message = client.data(1, b"x" * 50_000)
    while allowed >= len(message):
        allowed -= len(message) - frames.HEADER_BYTES
        for each in client.send(message):
            if each.type == FrameType.WINDOW_UPDATE and each.stream == 1:
                allowed += int.from_bytes(each.payload, "big")
    assert connection.UNSENT < client.server.held < connection.UNSENT + 1.3 * connection.WINDOW
    found = client.send(*[message] * 2)  # it may not
    assert client.server.closed
    assert int.from_bytes(found[-1].payload[4:], "big") == ErrorCode.FLOW_CONTROL_ERROR
    assert client.server._held == 0


def test_a_stream_whose_output_does_not_get_on_is_reset_in_time():
    client = echoing(0)
    client.send(client.data(1, b"ask"))
    for _ in range(connection.QUIET_TICKS):
        client.server.tick()
    client.send(frames.window_update(1, 1))
    client.server.tick()
    assert client.server.streams  # it has got on
    for _ in range(connection.QUIET_TICKS):
        client.server.tick()
    assert kinds(client.hear()) == ["RST_STREAM"]
    assert client.calls[0].events == ["lost"]


def test_a_stream_that_brings_no_message_is_reset_in_time():
    client = Client()
    client.send(client.head(1), client.head(3), client.data(3, b"ask"), client.data(1, b"not all of it")[:-1])
    for _ in range(connection.QUIET_TICKS + 1):
        client.server.tick()
    assert [(each.type, each.stream) for each in client.hear()] == [(FrameType.RST_STREAM, 1)]
    assert [each.events for each in client.calls] == [["lost"], []]


def test_a_long_message_is_not_copied_for_each_part_that_is_sent():
    client = echoing(0)
    text = bytes(range(256)) * 2000
    client.server._max_message = 2**22
    client.send(client.data(1, text[:600_000]))
    client.send(*[frames.window_update(1, 1)] * 1000)
    (waits,) = client.server.streams[1].output
    assert isinstance(waits, memoryview)
    client.send(frames.window_update(1, 2**20), frames.window_update(0, 2**20))
    assert client.messages(1) == [text[:600_000]]
    assert client.server.held == 0


def test_a_change_of_the_window_costs_as_much_as_the_calls_that_it_reaches():
    client, owed = waiting(), []
    for size in (10, 11, 11):
        before = client.server.budget.owed
        client.send(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: size}))
        owed.append(client.server.budget.owed - before)
    assert owed[0] == owed[1] == owed[2] + CALLS * budget.LOOK


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


def test_answers_pay_for_the_fields_that_opened_their_call_and_for_nothing_twice():
    client = Client()
    client.send(client.head(1), client.data(1, b"ask"))
    (call,) = client.calls
    assert client.server.budget.owed > budget.ANSWER
    call.stream.send(b"answer")
    assert client.server.budget.owed < budget.ANSWER
    client.send(client.head(3))
    owed = client.server.budget.owed
    call.stream.send(b"another")
    assert client.server.budget.owed == max(0, owed - budget.ANSWER)


def test_answers_that_are_not_what_gateways_come_for_pay_nothing():
    client = Client()
    client.send(client.head(1))
    client.calls[0].stream.pays = False
    owed = client.server.budget.owed
    client.calls[0].stream.send(b"answer")
    assert client.server.budget.owed == owed


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


def test_padding_counts_towards_windows_and_is_no_message():
    client = Client()
    client.send(client.head(1))
    padded = frames.frame(FrameType.DATA, frames.PADDED, 1, b"\xff" + framed(b"a") + bytes(255))
    rounds = connection.WINDOW // 4 // (len(padded) - frames.HEADER_BYTES) + 1
    found = client.send(*[padded] * rounds)
    assert client.calls[0].messages == [b"a"] * rounds
    granted = sum(int.from_bytes(each.payload, "big") for each in found if each.stream == 1)
    assert granted >= connection.WINDOW // 4  # else a gateway that pads would come to a halt


def test_a_full_port_refuses_streams():
    client = Client()
    client.server.full = True
    assert kinds(client.send(client.head(1))) == ["RST_STREAM"]
