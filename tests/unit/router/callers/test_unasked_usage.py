"""Whole routers ask in `tests/unit/router/proxy/test_unasked_usage.py`."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.apis.anthropic import parse_messages
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.callers.unasked_usage import UsageEvents, asking, is_unasked
from promptgroup_router.http11.whole_events import MOST_HELD

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}


def asked(**fields):
    return parse(ApiKind.CHAT, orjson.dumps(BODY | fields))


@pytest.mark.parametrize(
    "options", [None, {}, {"include_usage": False}, {"include_usage": "off"}, {"include_usage": None, "other": 1}]
)
def test_a_stream_whose_client_did_not_ask(options):
    ask = asked(stream_options=options)
    assert is_unasked(ask)
    sent = orjson.loads(asking(ask, ask.raw))
    assert sent == BODY | {"stream_options": (options or {}) | {"include_usage": True}}


def test_the_question_is_put_in_without_parsing_where_there_are_no_options():
    ask = parse(ApiKind.CHAT, b" \n" + orjson.dumps(BODY))
    body = asking(ask, ask.raw)
    assert body == ask.raw.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
    assert is_unasked(ask)


@pytest.mark.parametrize(
    "fields",
    [
        {"stream_options": {"include_usage": True}},
        {"stream_options": {"include_usage": "yes"}},
        {"stream_options": 7},
        {"stream_options": []},
        {"stream": False},
    ],
)
def test_who_asks_and_who_has_no_stream_and_who_is_wrong_is_left_alone(fields):
    assert not is_unasked(asked(**fields))


def test_other_apis_tell_their_usage_anyway():
    assert not is_unasked(parse_messages(orjson.dumps(BODY)))
    text = parse(ApiKind.TEXT, orjson.dumps({"model": "m", "prompt": "Hi", "stream": True}))
    assert is_unasked(text)


USAGE = b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}'
EVENTS = [
    b": comment",
    b'data: {"choices":[{"delta":{"content":"say \\"choices\\":[] and \\"usage\\":{}"}}],"usage":null}',
    b'data: {"choices":[],"usage":null}',
    b'data: {"choices":[],"prompt_filter_results":[]}',
    b'data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":7}}',
    b'event: x\ndata: {"choices":[],"usage":{}}',
    b'data: {"choices":[],"usage":{}',
    b"data: [DONE]",
]


@given(
    events=st.lists(st.sampled_from([*EVENTS, USAGE, USAGE.replace(b":[]", b": []")]), max_size=8),
    cuts=st.lists(st.integers(0, 800), max_size=5),
    end=st.sampled_from([b"\n\n", b"\r\n\r\n"]),
    whole=st.booleans(),
)
def test_only_the_event_that_tells_nothing_but_usage_is_left_out_however_a_stream_is_cut(events, cuts, end, whole):
    if end != b"\n\n":
        events = [each.replace(b"\n", b"\r\n") for each in events]
    stream = b"".join(each + end for each in events) + (b"" if whole else b"data: {")
    body, got = UsageEvents(), b""
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(stream)], strict=True):
        got += body.feed(stream[start:stop])
    kept = [each for each in events if b'"id":"x"' not in each]
    assert got + body.finish() == b"".join(each + end for each in kept) + (b"" if whole else b"data: {")


def test_an_event_goes_on_at_once_and_an_endless_one_is_not_held():
    body = UsageEvents()
    assert body.feed(EVENTS[1] + b"\n\n") == EVENTS[1] + b"\n\n"
    assert body.feed(b"data: " + b"x" * MOST_HELD) != b""
