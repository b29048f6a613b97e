import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.callers import reported_usage
from promptgroup_router.callers.reported_usage import ReportedUsage, TooLongError, UnreadableError

HIDDEN, ROUNDED = CachedTokens.HIDDEN, CachedTokens.ROUNDED
CHAT = {"prompt_tokens": 3000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2900, "audio": 1}}
RESPONSE = {
    "input_tokens": 3000,
    "input_tokens_details": {"cached_tokens": 2900, "cached_tokens_per_turn": [1400, 1500]},
    "output_tokens": 5,
}
MESSAGE = {"input_tokens": 90, "cache_read_input_tokens": 2900, "cache_creation_input_tokens": 10, "output_tokens": 5}

CASES = [
    (CHAT, HIDDEN, CHAT | {"prompt_tokens_details": {"audio": 1}}),
    (CHAT, ROUNDED, CHAT | {"prompt_tokens_details": {"cached_tokens": 2048, "audio": 1}}),
    (RESPONSE, HIDDEN, RESPONSE | {"input_tokens_details": {}}),
    (RESPONSE, ROUNDED, RESPONSE | {"input_tokens_details": {"cached_tokens": 2048}}),
    (MESSAGE, HIDDEN, {"input_tokens": 3000, "output_tokens": 5}),
    (
        MESSAGE,
        ROUNDED,
        {"input_tokens": 952, "cache_read_input_tokens": 2048, "cache_creation_input_tokens": 0, "output_tokens": 5},
    ),
    ({"output_tokens": 5}, HIDDEN, {"output_tokens": 5}),
]


@pytest.mark.parametrize(("usage", "how", "told"), CASES)
def test_a_whole_answer_tells_what_the_group_lets_it(usage, how, told):
    body = ReportedUsage(how, streamed=False)
    sent = {"choices": [], "usage": usage, "sglext": {"cached_tokens_details": [1]}}
    assert body.feed(orjson.dumps(sent)) == b""
    assert orjson.loads(body.finish()) == {"choices": [], "usage": told}


@pytest.mark.parametrize("holder", [None, "message", "response"])
@pytest.mark.parametrize("case", CASES)
@given(cuts=st.lists(st.integers(0, 600), max_size=5), end=st.sampled_from([b"\n", b"\r\n"]))
def test_a_stream_tells_the_same_however_it_is_cut(case, holder, cuts, end):
    usage, how, told = case

    def event(said):
        return {"type": "x", "usage": said} if holder is None else {"type": "x", holder: {"usage": said}}

    text = b'data: {"delta":"say \\"cached_tokens\\":1"}' + end * 2
    stream = text + b"data: " + orjson.dumps(event(usage)) + end * 2 + b"data: [DONE]" + end * 2
    body, got = ReportedUsage(how, streamed=True), b""
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(stream)], strict=True):
        got += body.feed(stream[start:stop])
    got += body.finish()
    lines = [line for line in got.splitlines() if line]
    assert orjson.loads(lines[0][6:]) == orjson.loads(text.splitlines()[0][6:])
    assert orjson.loads(lines[1][6:]) == event(told)
    assert lines[2] == b"data: [DONE]"
    assert got.endswith(end * 2)


def test_what_is_no_usage_passes_as_it_is():
    body = ReportedUsage(HIDDEN, streamed=False)
    for text in (b"", b"no JSON with cached_tokens", b"[1]", b'{"usage":7}'):
        body.feed(text)
        assert body.finish() == text
    stream = ReportedUsage(HIDDEN, streamed=True)
    assert stream.feed(b": cache\n\ndata: {cache\n") == b": cache\n\ndata: {cache\n"


@pytest.mark.interpreted
def test_an_endless_line_ends_the_answer(monkeypatch):
    monkeypatch.setattr(reported_usage, "MOST_BYTES", 100)
    for streamed in (True, False):
        body = ReportedUsage(HIDDEN, streamed=streamed)
        body.feed(b"x" * 100)
        with pytest.raises(TooLongError):
            body.feed(b"x")


def rewritten(document: bytes, how: CachedTokens = HIDDEN, *, streamed: bool = False) -> bytes:
    body = ReportedUsage(how, streamed=streamed)
    return body.feed(document) + body.finish()


TELLING = orjson.dumps(CHAT)
NESTED = 300
"""Levels: more than orjson writes."""


@pytest.mark.parametrize(
    "document",
    [
        b'{"logprob":NaN,"usage":%b}' % TELLING,
        b'{"text":"\\ud800","usage":%b}' % TELLING,
        b'{"deep":%b%b,"usage":%b}' % (b"[" * NESTED, b"]" * NESTED, TELLING),
        b'[{"usage":%b}]' % TELLING,
        b'{"responses":[{"usage":[%b,%b]}]}' % (TELLING, TELLING),
        b'{"choices":[{"meta_info":%b}]}' % TELLING,
        b'{"choices":[{"meta_info":{"id":"x","cached_tokens":2900,"cached_tokens_details":{"device":2900}}}]}',
        b'{"usage":{"turns":[{"cached_tokens":2900}]}}',
        b'{"output":[{"response":{"usage":{"cache_creation":{"five_minutes":2900}}}}]}',
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_wherever_it_stands_and_however_it_is_written_it_is_not_told(document, streamed):
    told = rewritten(b"data: " + document + b"\n\n" if streamed else document, streamed=streamed)
    assert b"2900" not in told
    kept = json.loads(told.removeprefix(b"data: "))
    assert kept.keys() == json.loads(document).keys() if isinstance(kept, dict) else len(kept) == 1


@pytest.mark.parametrize(
    "document",
    [
        b'{"usage":{"cached_tokens":2900}',
        b'{"deep":%b%b,"usage":{"cached_tokens":2900}}' % (b"[" * 200_000, b"]" * 200_000),
        b'{"number":%b,"usage":{"cached_tokens" \n: 2900}}' % (b"9" * 5000 + b"."),
        b'\xff{"usage":{"cached_tokens":2900}}',
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_cannot_be_read_and_may_tell_goes_to_nobody(document, streamed):
    if streamed:
        document = b"data: " + document.replace(b"\n", b"") + b"\n\n"
    with pytest.raises(UnreadableError):
        rewritten(document, streamed=streamed)


def test_a_line_of_a_stream_that_is_no_event_tells_nothing_either():
    assert rewritten(b": we cache\n\n", streamed=True) == b": we cache\n\n"
    with pytest.raises(UnreadableError):
        rewritten(b' data: {"cached_tokens":1}\n\n', streamed=True)


def test_a_compressed_answer_goes_to_nobody():
    with pytest.raises(UnreadableError):
        ReportedUsage(HIDDEN, streamed=False, compressed=True).feed(b"\x1f\x8b")


@pytest.mark.parametrize("text", [b'say "cache" aloud', b"cache" * 100_000, b'"' + b'cache" ' * 100_000])
def test_text_that_only_speaks_of_caches_passes(text):
    assert rewritten(text) == text


def test_what_clients_and_models_have_written_stays():
    written = {"usage": {"cache_dir": 1}, "cache": 2}
    answer = {
        "content": [{"type": "tool_use", "input": written, "arguments": written}],
        "tools": [{"parameters": written}],
        "metadata": written,
        "instructions": [written],
        "text": {"format": {"schema": written}},
        "usage": MESSAGE,
    }
    told = orjson.loads(rewritten(orjson.dumps(answer)))
    assert told == answer | {"usage": {"input_tokens": 3000, "output_tokens": 5}}
