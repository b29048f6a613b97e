import json
from itertools import pairwise
from types import SimpleNamespace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.access.caller import ANONYMOUS, Caller
from promptgroup_router.apis.anthropic import parse_messages
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.responses import parse_response
from promptgroup_router.base.errors import ApiError
from promptgroup_router.callers.salts import SHARED
from promptgroup_router.features.cache_diagnosis import (
    CacheDiagnosis,
    Diagnosed,
    MissDiagnosis,
    question,
    without_question,
)
from promptgroup_router.routing.points import Answering
from promptgroup_router.routing.prompt_digest import PromptDigests

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
    return CacheDiagnosis(known, route, asked, 100)


def answering(known, asked, **whose):
    answer = Answering(None, 200, streamed=False, compressed=False, now=0.0)
    diagnosis_of(known, asked, **whose).answering(answer)
    return answer


def answered(known, asked, body=b'{"id": "msg_1", "content": []}', **whose):
    rewriter = answering(known, asked, **whose).rewriter
    return rewriter.feed(body) + rewriter.finish()


def diagnosed(known, asked, **whose):
    return diagnosis_of(known, asked, **whose).diagnose(None)


@pytest.mark.interpreted
def test_a_conversation_is_told_what_changed_since_the_answer_that_it_names():
    known = PromptDigests()
    answered(known, asks(None, system="Be brief. " * 100))
    same = diagnosed(known, asks("msg_1", system="Be brief. " * 100))
    assert (same.reason, same.header()) == ("none", b"none")
    changed = diagnosed(known, asks("msg_1", system="Be verbose."))
    assert changed.reason == "system_changed"
    assert changed.tokens >= 250
    assert changed.header() == b"system_changed;tokens=%d" % changed.tokens
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


FIELDS = {
    "found": (MissDiagnosis("none"), {"cache_miss_reason": None}, {"type": "cache_hit"}),
    "changed": (
        MissDiagnosis("system_changed", 90, 10),
        {"cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 90}},
        {"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": 90, "comparison_reusable_tokens": 10},
    ),
    "not found": (
        MissDiagnosis("previous_message_not_found"),
        {"cache_miss_reason": {"type": "previous_message_not_found"}},
        {"type": "comparison_response_not_found"},
    ),
    "evicted": (
        MissDiagnosis("evicted", 90),
        {"cache_miss_reason": {"type": "unavailable", "cache_missed_input_tokens": 90}},
        {"type": "unavailable"},
    ),
}


@pytest.mark.parametrize("case", FIELDS)
def test_the_field_is_in_the_words_of_the_api(case):
    diagnosis, anthropic, openai = FIELDS[case]
    assert orjson.loads(b"{%b}" % diagnosis.field(ApiKind.MESSAGES)) == {"diagnostics": anthropic}
    assert orjson.loads(b"{%b}" % diagnosis.field(ApiKind.RESPONSES)) == {"prompt_cache_diagnostics": openai}


STREAM = (
    b'event: message_start\ndata: {"type": "message_start", "message": {"id": "msg_7", "role": "assistant"}}\n\n'
    b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "\\"message\\": {\\"a"}}\n\n'
)
RESPONSE = (
    b'data: {"type":"response.created","response":{"id":"resp_7","status":"in_progress"}}\n\n'
    b'data: {"type":"response.output_text.delta","delta":"x"}\n\n'
    b'data: {"type":"response.completed","response":{"id":"resp_7","status":"completed"}}\n\n'
)


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
    rewriter = Diagnosed(known, OWNER, asked, diagnosis, streamed=kind in ("message", "response"))
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
    rewriter = Diagnosed(PromptDigests(), OWNER, asks(None), MissDiagnosis("none"), streamed=True)
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
    rewriter = Diagnosed(known, OWNER, asked, MissDiagnosis("none"), streamed=True)
    told = events(b"".join(rewriter.feed(body[at : at + 50]) for at in range(0, len(body), 50)) + rewriter.finish())
    assert known.get(OWNER, "resp_7") == asked.digest
    assert known.get(OWNER, "mine") is None
    for at in (0, 2):
        assert told[at]["response"].pop("prompt_cache_diagnostics") == {"type": "cache_hit"}
    assert told == events_
