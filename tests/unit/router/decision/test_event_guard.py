import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.base.errors import Failure
from promptgroup_router.decision.event_guard import (
    CHAT,
    MESSAGES,
    RESPONSES,
    EventGuard,
    body_suspicious,
    broken_body,
    suspicious,
)


def event(document, name=""):
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(document).encode() + b"\n\n"


def choice(text="a", reason=None):
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]})


def delta(reason):
    return event({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}})


STOP = event({"type": "message_stop"})
TEXT = event({"type": "content_block_delta", "delta": {"text": "a"}})
DONE = b"data: [DONE]\n\n"


def completed(status):
    return event({"type": "response.completed", "response": {"status": status, "error": None}})


BROKEN = {
    "abort": (choice(), choice("", "abort") + DONE),
    "aborted": (choice(), choice("", "aborted") + DONE),
    "error": (choice(), choice("", "error") + DONE),
    "one of two choices": (
        choice(),
        event({"choices": [{"finish_reason": "stop"}, {"finish_reason": "abort"}]}) + DONE,
    ),
    "text completions": (b"", event({"choices": [{"text": "", "finish_reason": "abort"}]}) + DONE),
    "a message": (TEXT + delta(None), STOP),
    "a response": (TEXT, completed("cancelled")),
    "a response that failed": (TEXT, completed("failed")),
}
WHOLE = {
    "a chat": choice() + choice("", "stop") + DONE,
    "text that says so": choice('"finish_reason":"abort", "cancelled" "failed"') + choice("abort", "length") + DONE,
    "the name of a tool": event({"choices": [{"delta": {"tool_calls": [{"function": {"name": "abort"}}]}}]}) + DONE,
    "a message": TEXT + delta("end_turn") + STOP,
    "a message of which nobody says why it stops": TEXT + STOP,
    "a response": TEXT + completed("completed"),
    "a response that is too long": TEXT + completed("incomplete"),
    "a chunk without an error": event({"choices": [], "error": None}) + DONE,
    "a response without an error": event({"type": "response.created", "response": {"error": None}}, "response.created"),
    "an answer about errors": choice("event: error\\n") + choice('{"error": {"code": 1}}') + DONE,
    "no JSON": b'data: "error" {\n\n' + DONE,
    "JSON that is no object": b'data: ["error"]\n\n' + DONE,
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_what_an_engine_broke_off_ends_before_the_event_that_says_so(case, size):
    before, after = BROKEN[case]
    content, guard = before + after, EventGuard(chunked=False)
    passed = b"".join(guard.feed(content[at : at + size]) for at in range(0, len(content), size))
    assert (passed, guard.broken, guard.at_boundary) == (before, True, True)
    assert guard.finish() == b""


TOLD = {
    "chat": event({"error": {"message": "x", "code": 500}}),
    "chat, as text": event({"error": "x"}),
    "chat, of an older engine": event({"object": "error", "message": "x"}),
    "messages": event({"type": "error", "error": {"type": "api_error", "message": "x"}}, "error"),
    "an event of that name": b"event:error\r\ndata: out of memory\r\n\r\n",
    "responses": event({"type": "error", "code": "x", "message": "y"}, "error"),
    "a response": event({"type": "response.failed", "response": {"status": "failed", "error": {}}}, "response.failed"),
}


@pytest.mark.parametrize("case", TOLD)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_error_that_the_engine_tells_goes_on_as_it_is_and_nothing_after_it(case, size):
    content, guard = choice() + TOLD[case] + DONE + STOP, EventGuard(chunked=False)
    passed = b"".join(guard.feed(content[at : at + size]) for at in range(0, len(content), size))
    assert (passed, guard.broken, guard.reported, guard.at_boundary) == (choice() + TOLD[case], True, True, True)
    assert (guard.finish(), guard.failure) == (b"", Failure.REPORTED)


@pytest.mark.parametrize("words", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("case", TOLD)
def test_no_event_that_tells_an_error_goes_on_without_a_look_into_it(case, words):
    assert not EventGuard(chunked=True, words=words).passes(chunk(TOLD[case]))


@pytest.mark.parametrize("case", WHOLE)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_any_other_stream_goes_on_as_it_is(case, size):
    content, guard = WHOLE[case], EventGuard(chunked=False)
    passed = b"".join(guard.feed(content[at : at + size]) for at in range(0, len(content), size))
    assert (passed + guard.finish(), guard.broken) == (content, False)


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_bytes_of_any_kind_come_out_as_they_went_in_or_not_at_all(parts):
    guard = EventGuard(chunked=False)
    passed = b"".join(map(guard.feed, parts)) + guard.finish()
    assert b"".join(parts).startswith(passed)
    assert guard.broken or passed == b"".join(parts)


@given(st.lists(st.sampled_from([choice(), TEXT, DONE, b": ping\n\n", b"data: x\r\n\r\n"]), min_size=1), st.data())
def test_what_goes_on_is_whole_events(events, data):
    content, guard, passed = b"".join(events), EventGuard(chunked=False), b""
    while content:
        size = data.draw(st.integers(1, len(content)))
        passed += guard.feed(content[:size])
        content = content[size:]
        assert not passed or passed.endswith((b"\n\n", b"\n\r\n"))
        assert guard.at_boundary
    assert guard.idle


def chunk(content):
    return b"%x\r\n%b\r\n" % (len(content), content)


def test_a_chunk_of_whole_events_goes_on_as_received():
    guard = EventGuard(chunked=True)
    assert guard.passes(chunk(choice()))
    assert guard.passes(chunk(DONE) + b"0\r\n\r\n")
    assert not guard.passes(chunk(b": keep-alive\n\n"))
    messages = EventGuard(chunked=True, words=MESSAGES)
    assert messages.passes(chunk(event({"type": "content_block_delta"}, "content_block_delta")))
    assert not messages.passes(chunk(SILENT[4]))
    assert not messages.passes(chunk(delta(None)))
    assert not EventGuard(chunked=True, words=RESPONSES).passes(chunk(completed("cancelled")))
    assert not guard.passes(chunk(choice()[:20]))
    assert not guard.passes(chunk(b"data: x\r\n"))  # the next line may belong to its event
    assert not guard.passes(chunk(choice("", "abort")))
    assert EventGuard(chunked=False).passes(b"id: 1\n" + choice())


def test_an_event_that_is_too_long_to_be_held_leaves_no_place_for_another():
    guard = EventGuard(chunked=False)
    assert guard.feed(b"data: " + b"x" * (2 << 20))
    assert not guard.at_boundary
    assert not guard.passes(choice())


SILENT = [
    b": keep-alive\n\n",
    b":\n\n",
    b": ping - 2026-11-03 11:00:00\r\n\r\n",
    b": data: none\n\n",
    b"event: ping\ndata: {}\n\n".replace(b"data: {}", b'data: {"type": "ping"}'),
    b"event: keep-alive\n\n",
    b"retry: 1000\n\n",
    b"\n",
    b"",
]


@pytest.mark.parametrize("data", SILENT)
def test_what_keeps_a_connection_alive_is_no_progress(data):
    assert not EventGuard(chunked=False).moves(data)
    assert not EventGuard(chunked=True).moves(chunk(data))


def test_a_comment_in_parts_is_none_either():
    guard = EventGuard(chunked=True)
    parts = [b"1f\r\n: a comment", b" of so", b"me words", b" in it\n", b"\n\r\n"]
    assert [guard.moves(part) for part in parts] == [False] * 5
    assert guard.moves(chunk(choice()))


@pytest.mark.parametrize("data", [choice(), TEXT, DONE, b": ping\n\n" + choice(), choice()[10:], b"x" * 5000 + b"\n"])
def test_events_and_their_parts_are_progress(data):
    assert EventGuard(chunked=False).moves(data)
    assert EventGuard(chunked=True).moves(chunk(data))


def test_a_ping_beside_an_event_is_progress():
    assert EventGuard(chunked=False).moves(SILENT[4] + TEXT)


def test_a_part_of_many_lines_is_taken_for_an_event():
    assert EventGuard(chunked=False).moves(b":\n" * 1000)


def test_events_of_a_response_are_numbered_on():
    guard = EventGuard(chunked=False)
    assert guard.next_number() == 0
    guard.feed(event({"type": "x", "sequence_number": 41}, "x"))
    assert guard.next_number() == 42
    guard.passes(event({"type": "x", "sequence_number": 42}, "x"))
    assert guard.next_number() == 43


BODIES = {
    "abort": ({"choices": [{"message": {}, "finish_reason": "abort"}]}, True),
    "stop": ({"choices": [{"message": {}, "finish_reason": "stop"}]}, False),
    "a message": ({"type": "message", "stop_reason": None}, True),
    "a message that ended": ({"type": "message", "stop_reason": "end_turn"}, False),
    "a message without a reason": ({"type": "message"}, False),
    "a response": ({"object": "response", "status": "cancelled"}, True),
    "a response that is queued": ({"object": "response", "status": "queued"}, False),
    "no object": (["abort"], False),
}


@pytest.mark.parametrize("case", BODIES)
def test_a_whole_answer_says_by_its_end_if_it_was_broken_off(case):
    document, broken = BODIES[case]
    body = json.dumps(document).encode()
    assert broken_body(body) == broken
    assert body_suspicious(body) or not broken
    assert not broken_body(body[:-1])


def test_most_events_are_not_looked_into():
    assert not suspicious(choice("some text"))
    assert not suspicious(TEXT)


@pytest.mark.parametrize("word", [b"error", b'"message_', b'"abort', b'"cancelled"', b'"failed"'])
def test_a_word_is_seen_wherever_it_stands(word):
    for data in (word, word + b"a", b"a" + word):
        assert suspicious(data)
        assert suspicious(bytearray(data))
    assert not suspicious(word[1:])
