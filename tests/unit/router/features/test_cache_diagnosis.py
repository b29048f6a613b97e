import json
from itertools import pairwise
from types import SimpleNamespace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.access import ANONYMOUS, Caller
from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.apis.anthropic import parse_messages
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.responses import parse_response
from promptgroup_router.apis.usage import MessagesTail, Usage
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.features.cache_diagnosis import (
    MOST_HELD,
    AnswerDiagnosis,
    CacheDiagnosis,
    Diagnosed,
    question,
    without_question,
)
from promptgroup_router.features.miss_diagnosis import MissDiagnosis
from promptgroup_router.features.prompt_digest import PromptDigests
from promptgroup_router.prefixes.cache_domain import SHARED
from promptgroup_router.routing.points import Answering, RequestEnd

HEADER = b"x-promptgroup-diagnostics"
OWNER = "chat/a\0\0"


def message(**fields):
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]} | fields
    return parse_messages(json.dumps(body).encode())


def response(**fields):
    return parse_response(json.dumps({"model": "m", "input": "hi"} | fields).encode())


def chat(**fields):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields
    return parse(ApiKind.CHAT, json.dumps(body).encode())


ASKED = {
    "nothing": (chat(), {}, None),
    "nothing of Anthropic's": (message(diagnostics=None), {}, None),
    "Anthropic's first": (message(diagnostics={"previous_message_id": None}), {}, ("", ApiKind.MESSAGES)),
    "Anthropic's next": (message(diagnostics={"previous_message_id": "msg_1"}), {}, ("msg_1", ApiKind.MESSAGES)),
    "OpenAI's": (
        response(prompt_cache_options={"comparison_response_id": "resp_1"}), {}, ("resp_1", ApiKind.RESPONSES),
    ),
    "options of OpenAI's without a question": (response(prompt_cache_options={"ttl": "30m"}), {}, None),
    "by the header": (chat(), {HEADER: b" chatcmpl-1 "}, ("chatcmpl-1", None)),
    "by an empty header": (chat(), {HEADER: b""}, ("", None)),
    "by the header, beside another API's field": (
        chat(diagnostics={"previous_message_id": "msg_1"}), {HEADER: b"chatcmpl-1"}, ("chatcmpl-1", None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED)
def test_what_a_request_asks(case):
    ask, headers, expected = ASKED[case]
    found = question(ask, headers)
    assert (found and (found.previous, found.form)) == expected


@pytest.mark.parametrize("value", ["x", [], {"previous_message_id": 7}, {"previous_message_id": "x" * 300}])
def test_a_question_of_another_form_is_refused_with_the_field(value):
    with pytest.raises(ApiError, match="diagnostics"):
        question(message(diagnostics=value), {})


def test_an_engine_does_not_get_the_question():
    ask = message(diagnostics={"previous_message_id": None}, metadata={"user_id": "u"})
    assert "diagnostics" not in orjson.loads(without_question(ask).raw)
    assert orjson.loads(without_question(ask).raw)["metadata"] == {"user_id": "u"}
    assert without_question(chat()).raw == chat().raw


def asks(previous, **fields):
    return question(message(diagnostics={"previous_message_id": previous}, **fields), {})


def diagnosis_of(known, asked, *, caller=ANONYMOUS, how=CachedTokens.EXACT):
    """The diagnosis of a request whose prompt has four bytes a token."""
    route = SimpleNamespace(
        candidates=SimpleNamespace(rules=SimpleNamespace(cached_tokens=how)),
        group="chat/a",
        caller=caller,
        rewrite=SimpleNamespace(domain=SHARED),
        demand=SimpleNamespace(prompt=25),
    )
    return CacheDiagnosis(known, route, asked, 100, Metrics())


def answering(known, asked, *, usage=None, status=200, **whose):
    answer = Answering(None, status, streamed=False, compressed=False, now=0.0, usage=usage)
    diagnosis_of(known, asked, **whose).answering(answer)
    return answer


def answered(known, asked, body=b'{"id": "msg_1", "content": []}', **whose):
    rewriter = answering(known, asked, **whose).rewriter
    return rewriter.feed(body) + rewriter.finish()


def diagnosed(known, asked, **whose):
    return diagnosis_of(known, asked, **whose).expect(None)


@pytest.mark.interpreted
def test_a_conversation_is_told_what_changed_since_the_answer_that_it_names():
    known = PromptDigests()
    answered(known, asks(None, system="Be brief. " * 100))
    same = diagnosed(known, asks("msg_1", system="Be brief. " * 100))
    assert (same.reason, same.header()) == ("none", b"none;forecast")
    changed = diagnosed(known, asks("msg_1", system="Be verbose."))
    assert changed.reason == "system_changed"
    assert changed.tokens >= 250
    assert changed.header() == b"system_changed;tokens=%d;forecast" % changed.tokens
    other = [{"role": "user", "content": "bye"}]
    turned = diagnosed(known, asks("msg_1", system="Be brief. " * 100, messages=other))
    assert (turned.reason, turned.message, turned.reusable) == ("messages_changed", 0, 250)


@pytest.mark.interpreted
def test_an_answer_that_was_given_to_somebody_else_is_not_found():
    known = PromptDigests()
    answered(known, asks(None), caller=Caller("alice"))
    assert diagnosed(known, asks("msg_1"), caller=Caller("alice")).reason == "none"
    assert diagnosed(known, asks("msg_1"), caller=Caller("bob")).reason == "previous_message_not_found"


@pytest.mark.interpreted
def test_who_is_not_told_what_was_cached_is_told_nothing_of_it():
    hidden = next(each for each in CachedTokens if each is not CachedTokens.EXACT)
    told = answering(PromptDigests(), asks("msg_1"), how=hidden)
    assert (told.fields, told.rewriter) == ([], None)


STREAM = (
    b'event: message_start\ndata: {"type": "message_start", "message": {"id": "msg_7", "role": "assistant"}}\n\n'
    b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "\\"message\\": {\\"a"}}\n\n'
)
RESPONSE = (
    b'data: {"type":"response.created","response":{"id":"resp_7","status":"in_progress"}}\n\n'
    b'data: {"type":"response.output_text.delta","delta":"x"}\n\n'
    b'data: {"type":"response.completed","response":{"id":"resp_7","status":"completed"}}\n\n'
)


MISSED = MissDiagnosis("evicted", 767, observed=True)


def telling(first, observed=None):
    """An answer of which `first` is known, whose engine then reports a usage that shows `observed`."""
    return AnswerDiagnosis(first, lambda _: observed, lambda: observed)


def events(body):
    return [orjson.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: ")]


@pytest.mark.interpreted
@given(st.lists(st.integers(0, 260), max_size=8), st.sampled_from(["message", "response", "whole", "chat"]))
def test_an_answer_in_any_parts_is_the_answer_with_the_field(cuts, kind):
    diagnosis, known = MissDiagnosis("tools_changed", 5), PromptDigests()
    body = {"message": STREAM, "response": RESPONSE}.get(kind, b' {"id": "msg_7", "content": [{"text": "{"}]}')
    asked = {
        "response": question(response(prompt_cache_options={"comparison_response_id": None}), {}),
        "chat": question(chat(), {HEADER: b""}),
    }.get(kind, asks(None))
    rewriter = Diagnosed(known, OWNER, asked, telling(diagnosis), streamed=kind in ("message", "response"))
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    told = b"".join(rewriter.feed(body[a:b]) for a, b in pairwise(edges)) + rewriter.finish()
    identity = "resp_7" if kind == "response" else "msg_7"
    assert known.get(OWNER, identity) == asked.digest
    if kind == "chat":
        assert told == body
        return
    if kind == "whole":
        changed, plain = orjson.loads(told), orjson.loads(body)
        assert changed.pop("diagnostics")["cache_miss_reason"]["type"] == "tools_changed"
        assert changed == plain
        return
    name = "diagnostics" if kind == "message" else "prompt_cache_diagnostics"
    holds = [each.get(kind) for each in events(told)]
    assert [each is not None and name in each for each in holds] == [kind in each for each in events(body)]
    for each in holds:
        if each is not None:
            del each[name]
    assert [each.get(kind) for each in events(body)] == holds


@pytest.mark.interpreted
def test_an_answer_without_its_place_passes_unchanged():
    body = b'data: {"type": "error"}\n\n' * 1000
    rewriter = Diagnosed(PromptDigests(), OWNER, asks(None), telling(MissDiagnosis("none")), streamed=True)
    assert b"".join(rewriter.feed(body[at : at + 777]) for at in range(0, len(body), 777)) + rewriter.finish() == body


@pytest.mark.interpreted
def test_what_a_client_has_written_is_neither_the_id_nor_the_place():
    said = {"id": "mine", "response": {"id": "mine", "a": 1}, "properties": {"response": {"type": "x"}}}
    echo = {"metadata": said, "tools": [{"parameters": said}], "instructions": '"response":{"id":"mine"}'}
    events_ = [
        {"type": "response.created", "response": echo | {"id": "resp_7"}},
        {"type": "response.output_item.done", "item": said},
        {"type": "response.completed", "response": {"id": "resp_7"} | echo},
    ]
    body = b"".join(b"event: x\ndata: %b\n\n" % orjson.dumps(each) for each in events_)
    known, asked = PromptDigests(), question(response(prompt_cache_options={"comparison_response_id": None}), {})
    rewriter = Diagnosed(known, OWNER, asked, telling(MissDiagnosis("none", observed=True)), streamed=True)
    told = events(b"".join(rewriter.feed(body[at : at + 50]) for at in range(0, len(body), 50)) + rewriter.finish())
    assert known.get(OWNER, "resp_7") == asked.digest
    assert known.get(OWNER, "mine") is None
    for at in (0, 2):
        assert told[at]["response"].pop("prompt_cache_diagnostics") == {"type": "cache_hit"}
    assert told == events_


# --- what is told is held against the usage ----------------------------------------------------------------------

NOTHING_CACHED = Usage(767, 0)


@pytest.mark.interpreted
def test_a_whole_answer_is_told_what_its_own_usage_shows():
    known = PromptDigests()
    answered(known, asks(None))
    told = answering(known, asks("msg_1"), usage=Usage(767, 752))
    assert told.fields == [(b"x-promptgroup-cache-miss", b"none")]
    cold = answering(known, asks(None), usage=NOTHING_CACHED)
    assert cold.fields == [(b"x-promptgroup-cache-miss", b"new;tokens=767")]
    assert cold.rewriter.feed(b'{"id":"msg_2"}') == (
        b'{"diagnostics":{"cache_miss_reason":{"type":"unavailable","cache_missed_input_tokens":767}},"id":"msg_2"}'
    )


@pytest.mark.interpreted
def test_an_error_is_told_nothing_of_a_cache():
    told = answering(PromptDigests(), asks(None), status=400)
    assert (told.fields, told.rewriter) == ([], None)


@pytest.mark.interpreted
@pytest.mark.parametrize("long", [False, True])
def test_a_whole_answer_whose_usage_is_behind_waits_for_it_unless_it_is_too_long(long):
    body = b'{"id": "msg_7", "content": "%b"}' % (b"x" * (MOST_HELD if long else 9))
    rewriter = Diagnosed(PromptDigests(), OWNER, asks(None), telling(MissDiagnosis("none"), MISSED), streamed=False)
    first = rewriter.feed(body)
    diagnostics = orjson.loads(first + rewriter.finish())["diagnostics"]
    if long:
        assert diagnostics == {"cache_miss_reason": None, "forecast": True}
    else:
        assert first == b""
        assert diagnostics["cache_miss_reason"] == {"type": "unavailable", "cache_missed_input_tokens": 767}


@pytest.mark.interpreted
def test_a_streamed_message_begins_with_a_forecast_and_ends_with_what_was_reported():
    stream = STREAM + (
        b'event: message_delta\ndata: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, '
        b'"usage": {"input_tokens": 767, "cache_read_input_tokens": 0, "output_tokens": 4}}\n\n'
        b'event: message_stop\ndata: {"type": "message_stop"}\n\n'
    )
    rewriter = Diagnosed(PromptDigests(), OWNER, asks(None), telling(MissDiagnosis("none"), MISSED), streamed=True)
    told = rewriter.feed(stream) + rewriter.finish()
    begin, _, delta, _ = events(told)
    assert begin["message"]["diagnostics"] == {"cache_miss_reason": None, "forecast": True}
    reason = {"type": "unavailable", "cache_missed_input_tokens": 767}
    assert delta["diagnostics"] == {"cache_miss_reason": reason}
    assert told.endswith(b"\n: x-promptgroup-cache-miss: evicted;tokens=767\n\n")


@pytest.mark.interpreted
def test_a_message_whose_first_event_counts_its_input_begins_with_what_was_reported():
    usage = b'"usage": {"input_tokens": 767, "cache_read_input_tokens": 0}'
    stream = STREAM.replace(b'"role": "assistant"', usage)
    rewriter = Diagnosed(PromptDigests(), OWNER, asks(None), telling(MissDiagnosis("none"), MISSED), streamed=True)
    (begin, _) = events(rewriter.feed(stream))
    assert begin["message"]["diagnostics"]["cache_miss_reason"]["cache_missed_input_tokens"] == 767


@pytest.mark.interpreted
def test_a_streamed_response_ends_with_what_was_reported():
    usage = b'"usage":{"input_tokens":767,"output_tokens":4,"input_tokens_details":{"cached_tokens":0}}'
    stream = RESPONSE.replace(b'"status":"completed"', b'"status":"completed",' + usage)
    asked = question(response(prompt_cache_options={"comparison_response_id": None}), {})
    rewriter = Diagnosed(PromptDigests(), OWNER, asked, telling(MissDiagnosis("none"), MISSED), streamed=True)
    created, _, completed = events(rewriter.feed(stream) + rewriter.finish())
    assert created["response"]["prompt_cache_diagnostics"] == {"type": "cache_hit", "forecast": True}
    assert completed["response"]["prompt_cache_diagnostics"] == {"type": "unavailable"}


@pytest.mark.interpreted
def test_a_stream_that_is_asked_by_a_header_ends_with_a_comment():
    asked = question(chat(), {HEADER: b""})
    rewriter = Diagnosed(PromptDigests(), OWNER, asked, telling(MissDiagnosis("none"), MISSED), streamed=True)
    assert rewriter.feed(b"data: {}\n\n") == b"data: {}\n\n"
    assert rewriter.finish() == b"\n: x-promptgroup-cache-miss: evicted;tokens=767\n\n"


@pytest.mark.interpreted
def test_the_books_have_what_was_expected_and_what_was_reported():
    feature = diagnosis_of(PromptDigests(), asks(None))
    tail = feature.tail(MessagesTail(), streamed=False)
    feature.answering(Answering(None, 200, streamed=False, compressed=False, now=0.0))
    assert feature.reported() is None
    tail.add(b'{"usage":{"input_tokens":767,"cache_read_input_tokens":0,"output_tokens":1}}')
    assert feature.reported().reason == "new"
    feature.ended(RequestEnd(NOTHING_CACHED, 1.0, worked=True, metered=True))
    assert feature._metrics.cache_diagnoses.values == {("chat/a", "none", "new"): 1}
    assert feature.log_fields(NOTHING_CACHED) == {
        "promptgroup.cache_miss_expected": "none",
        "promptgroup.cache_miss": "new",
    }
    assert feature.log_fields(None) == {"promptgroup.cache_miss_expected": "none"}
