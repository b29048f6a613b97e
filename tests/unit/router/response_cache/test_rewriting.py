"""Events, ids and counts of answers."""

import itertools

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.response_cache.rewriting import EventSplitter, document, id_of, marked, new_id, with_id


@given(st.lists(st.sampled_from([b"\n", b"\r\n", b"data: a", b"event: b", b":"])), st.lists(st.integers(0, 40)))
def test_a_stream_is_split_the_same_whatever_its_parts(words, cuts):
    stream = b"".join(words)
    whole = EventSplitter()
    expected = whole.take(stream)
    parts, found, splitter = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)}), [], EventSplitter()
    for begin, end in itertools.pairwise(parts):
        found += splitter.take(stream[begin:end])
    rest = splitter.flush()
    assert b"".join(found) + rest == stream
    assert (found, rest) == (expected, whole.flush())


def test_a_stream_is_split_behind_empty_lines():
    assert EventSplitter().take(b"data: a\n\ndata: b\r\n\r\ndata: c\n") == [b"data: a\n\n", b"data: b\r\n\r\n"]


@pytest.mark.parametrize(
    ("piece", "found"),
    [
        (b'{"id":"chatcmpl-1","choices":[]}', b"chatcmpl-1"),
        (b'data: {"id":"cmpl-2"}\n\n', b"cmpl-2"),
        (b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_3"}}\n\n', b"msg_3"),
        (b'{"id":7}', b""),
        (b'{"id":"with \\" quote"}', b""),
        (b'{"x":{"id":"inner"}}', b""),
        (b": ping\n\n", b""),
        (b'not json with "id"', b""),
    ],
)
def test_the_id_of_an_answer_is_found(piece, found):
    assert id_of(piece) == found


@pytest.mark.parametrize(("old", "new"), [(b"chatcmpl-abc-1", b"chatcmpl-N"), (b"msg_1", b"msg_N"), (b"abc", b"N")])
def test_a_new_id_is_of_the_same_kind(old, new):
    assert new_id(old, b"N") == new


def test_an_id_within_a_text_is_text():
    piece = orjson.dumps({"id": "a-1", "text": 'say "a-1"', "other": "a-1b"})
    assert orjson.loads(with_id(piece, b"a-1", b"a-2")) == {"id": "a-2", "text": 'say "a-1"', "other": "a-1b"}
    assert with_id(piece, b"", b"x") == piece


def test_prompt_tokens_are_marked_as_cached():
    body = orjson.dumps({"usage": {"prompt_tokens": 40, "completion_tokens": 3, "total_tokens": 43}})
    usage = orjson.loads(marked(ApiKind.CHAT, body))["usage"]
    assert usage == {
        "prompt_tokens": 40,
        "completion_tokens": 3,
        "total_tokens": 43,
        "prompt_tokens_details": {"cached_tokens": 40},
    }
    event = b'id: 1\r\ndata: {"usage":{"prompt_tokens":4,"prompt_tokens_details":{"audio_tokens":1}}}\r\n\r\n'
    got = marked(ApiKind.TEXT, event)
    assert got.startswith(b"id: 1\r\ndata: {")
    assert got.endswith(b"}\r\n\r\n")
    assert document(got)["usage"]["prompt_tokens_details"] == {"audio_tokens": 1, "cached_tokens": 4}


def test_anthropic_s_counts_are_marked_too():
    counts = b'{"input_tokens":10,"cache_read_input_tokens":30,"cache_creation_input_tokens":2}'
    start = b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":%b}}\n\n' % counts
    usage = document(marked(ApiKind.MESSAGES, start))["message"]["usage"]
    assert usage == {"input_tokens": 0, "cache_read_input_tokens": 42, "cache_creation_input_tokens": 0}


@pytest.mark.parametrize(
    "piece",
    [
        b'data: {"choices":[],"usage":null}\n\n',
        b"data: [DONE]\n\n",
        b'{"usage":{}}',
        b'"usage"',
        b"",
        b'{"usage":{"prompt_tokens":"4"}}',
    ],
)
def test_what_counts_nothing_stays_as_it_is(piece):
    assert marked(ApiKind.CHAT, piece) is piece
    assert marked(ApiKind.MESSAGES, piece) is piece


@given(st.binary())
def test_any_bytes_are_taken(piece):
    marked(ApiKind.CHAT, piece + b'"usage"')
    id_of(b'"id"' + piece)
