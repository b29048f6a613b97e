from promptgroup_picker.http2 import budget, frames
from promptgroup_picker.http2.frames import ErrorCode, FrameType
from promptgroup_picker.http2.grpc_messages import framed
from promptgroup_picker.http2.stream import UNSENT, WINDOW
from support.grpcclient import Client, echoing


def test_the_client_gets_windows_for_what_it_sent_while_it_reads():
    client = Client()
    client.send(client.head(1))
    found = client.send(*(client.data(1, b"x" * 60_000) for _ in range(5)))
    assert sum(1 for each in found if each.type == FrameType.WINDOW_UPDATE and each.stream == 1) == 1
    client.calls[0].stream.send(b"x" * (UNSENT + 70_000))
    found = client.send(*(client.data(1, b"x" * 60_000) for _ in range(8)))
    assert not [each for each in found if each.type == FrameType.WINDOW_UPDATE and each.stream == 1]
    client.send(frames.window_update(1, 2**20))
    found = client.send(frames.window_update(0, 2**20))
    assert [each for each in found if each.type == FrameType.WINDOW_UPDATE and each.stream == 1]


def test_a_window_that_stays_closed_bounds_what_waits():
    client, allowed = echoing(0), WINDOW
    message = client.data(1, b"x" * 50_000)
    while allowed >= len(message):
        allowed -= len(message) - frames.HEADER_BYTES
        for each in client.send(message):
            if each.type == FrameType.WINDOW_UPDATE and each.stream == 1:
                allowed += int.from_bytes(each.payload, "big")
    assert UNSENT < client.server.held < UNSENT + 1.3 * WINDOW
    found = client.send(*[message] * 2)  # it may not
    assert client.server.closed
    assert int.from_bytes(found[-1].payload[4:], "big") == ErrorCode.FLOW_CONTROL_ERROR
    assert client.server.held == 0


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


def test_padding_counts_towards_windows_and_is_no_message():
    client = Client()
    client.send(client.head(1))
    padded = frames.frame(FrameType.DATA, frames.PADDED, 1, b"\xff" + framed(b"a") + bytes(255))
    rounds = WINDOW // 4 // (len(padded) - frames.HEADER_BYTES) + 1
    found = client.send(*[padded] * rounds)
    assert client.calls[0].messages == [b"a"] * rounds
    granted = sum(int.from_bytes(each.payload, "big") for each in found if each.stream == 1)
    assert granted >= WINDOW // 4  # else a gateway that pads would come to a halt
