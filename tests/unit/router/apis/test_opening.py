import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.apis.opening import MOST_HELD, Opening


def event(value, name=""):
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(**fields):
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


EMPTY = {
    "a comment": b": keep-alive\n\n",
    "a role": event(delta(role="assistant")),
    "a role with an empty text": event(delta(role="assistant", content="", tool_calls=None)),
    "an empty completion": event({"choices": [{"text": "", "finish_reason": None}]}),
    "a message": event({"type": "message_start", "message": {"content": []}}, "message_start"),
    "a ping": event({"type": "ping"}, "ping"),
    "a block of text": event({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}),
    "a block of thinking": event(
        {"type": "content_block_start", "content_block": {"type": "thinking", "thinking": ""}}
    ),
    "a response": event({"type": "response.created", "response": {"id": "resp_1"}}),
    "its progress": event({"type": "response.in_progress", "response": {}}),
    "its item": event({"type": "response.output_item.added", "item": {"type": "message", "content": []}}),
    "its part": event({"type": "response.content_part.added", "part": {"type": "output_text", "text": ""}}),
}
VISIBLE = {
    "a text": event(delta(content="Hi")),
    "a role with a text": event(delta(role="assistant", content="Hi")),
    "a thought": event(delta(reasoning_content="Hm")),
    "a call of a tool": event(delta(tool_calls=[{"index": 0}])),
    "an end": event({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
    "a completion": event({"choices": [{"text": " ", "finish_reason": None}]}),
    "an error": event({"error": {"message": "no"}}),
    "the usage alone": event({"choices": [], "usage": {}}),
    "no JSON": b"data: [DONE]\n\n",
    "a number": b"data: 7\n\n",
    "a delta of Anthropic": event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}}),
    "a tool of Anthropic": event({"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}}),
    "an error of Anthropic": event({"type": "error", "error": {}}),
    "a delta of a response": event({"type": "response.output_text.delta", "delta": "Hi"}),
    "a call in a response": event({"type": "response.output_item.added", "item": {"type": "function_call"}}),
    "an unknown type": event({"type": "response.new_thing"}),
    "no object": event({"choices": [7]}),
}


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("name", EMPTY)
def test_what_shows_nothing_is_held(name):
    opening = Opening(chunked=True)
    assert opening.take(chunk(EMPTY[name])) == b""
    assert opening.held() == chunk(EMPTY[name])


@pytest.mark.parametrize("name", VISIBLE)
def test_a_token_releases_what_was_held_as_received(name):
    opening = Opening(chunked=True)
    before, data = chunk(EMPTY["a role"]), chunk(VISIBLE[name])
    assert opening.take(before) == b""
    assert opening.take(data) == before + data


def test_a_body_without_chunks_is_read_too():
    opening = Opening(chunked=False)
    assert opening.take(EMPTY["a role"]) == b""
    assert opening.take(VISIBLE["a text"]) == EMPTY["a role"] + VISIBLE["a text"]


def test_no_more_than_some_bytes_are_held():
    opening = Opening(chunked=False)
    data = EMPTY["a comment"] * (MOST_HELD // len(EMPTY["a comment"]))
    assert opening.take(data) == b""
    assert opening.take(EMPTY["a comment"] * 2)


@given(
    st.lists(st.sampled_from(sorted(EMPTY)), max_size=6),
    st.sampled_from(sorted(VISIBLE)),
    st.lists(st.integers(1, 60), min_size=1),
    st.booleans(),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_cuts_anywhere_change_nothing(empty, visible, cuts, chunked, line):
    parts = [*(EMPTY[name] for name in empty), VISIBLE[visible]]
    parts = [part.replace(b"\n", line) for part in parts]
    body = b"".join(map(chunk, parts) if chunked else parts)
    opening, at, out = Opening(chunked=chunked), 0, b""
    last = len(body) - len(chunk(parts[-1]) if chunked else parts[-1])
    while not out and at < len(body):
        size = cuts[at % len(cuts)]
        out = opening.take(body[at : at + size])
        at += size
        assert not out or at > last
    assert out == body[:at]


@pytest.mark.parametrize("name", EMPTY)
def test_an_event_may_be_cut_into_chunks_anywhere(name):
    event = EMPTY[name]
    for at in range(1, len(event)):
        opening, body = Opening(chunked=True), chunk(event[:at]) + chunk(event[at:])
        assert opening.take(body) == b""
        assert opening.held() == body


@given(st.lists(st.binary(max_size=200)))
def test_any_bytes_come_out_as_they_went_in(parts):
    opening, out = Opening(chunked=False), b""
    for part in parts:
        out += opening.take(part)
    assert out + opening.held() == b"".join(parts)
