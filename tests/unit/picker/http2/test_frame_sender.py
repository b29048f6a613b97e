import pytest

from promptgroup_picker.http2 import budget, frames
from promptgroup_picker.http2.frame_sender import DEFAULT_WINDOW
from promptgroup_picker.http2.frames import FrameType
from support.grpcclient import CALLS, Client, echoing, kinds, waiting


@pytest.mark.parametrize("whole", [True, False])
def test_output_waits_for_the_windows(whole):
    client = Client()
    client.send(client.head(1))
    call = client.calls[0]
    call.stream.send(b"x" * 200_000)
    sent = sum(len(each.payload) for each in client.hear() if each.type == FrameType.DATA)
    assert sent == DEFAULT_WINDOW
    call.stream.finish()
    assert client.hear() == []
    client.send(frames.window_update(1, 2**20))
    assert client.server.streams.open  # that of the connection is still closed
    for _ in range(1 if whole else 4):
        client.send(frames.window_update(0, 2**20 if whole else 40_000))
    assert client.messages(1) == [b"x" * 200_000]
    assert not client.server.streams.open


def test_settings_of_the_client_move_the_windows():
    client = Client()
    client.send(client.head(1), frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 10}))
    client.calls[0].stream.send(b"x" * 20)
    assert [len(each.payload) for each in client.hear() if each.type == FrameType.DATA] == [10]
    found = client.send(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 100}))
    assert [len(each.payload) for each in found if each.type == FrameType.DATA] == [15]


def counted(client):
    """Count how often the connection looks at a stream to send what waits there."""
    looks, flush = [], client.server.streams.flush

    def look(stream):
        looks.append(stream.id)
        flush(stream)

    client.server.streams.flush = look
    return looks


def test_settings_cost_the_same_however_many_calls_are_open_and_are_all_answered():
    client = waiting()
    looks = counted(client)
    sizes = [10, 2**20] * 500
    found = client.send(*(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: size}) for size in sizes))
    assert kinds(found) == ["SETTINGS"] * len(sizes)
    assert len(looks) <= CALLS
    assert {each.window for each in client.server.streams.open.values()} == {2**20}


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
    assert client.server.streams.open[1].window == -55
    assert kinds(client.send(client.data(1, b"ask"))) == []


def test_a_stream_that_is_opened_behind_settings_has_their_window():
    client = Client()
    client.send(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 7}), client.head(1))
    assert client.server.streams.open[1].window == 7


def test_a_long_message_is_not_copied_for_each_part_that_is_sent():
    client = echoing(0)
    text = bytes(range(256)) * 2000
    client.server.streams._max_message = 2**22
    client.send(client.data(1, text[:600_000]))
    client.send(*[frames.window_update(1, 1)] * 1000)
    (waits,) = client.server.streams.open[1].output
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
