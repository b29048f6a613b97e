"""What a picker counts of its callers: as a router where the gateway shows answers, and no wrong numbers elsewhere."""

import json

import pytest

from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_router.access.keyring import SecretRef
from promptgroup_router.decision.composition import router_state
from support.grpcclient import OneRequest
from support.keys import BY_KEY, KEY_A
from support.tables import group, revision, slot, table
from support.wire import chat

CHAT = json.dumps(chat()).encode()
USAGE = b'{"usage":{"prompt_tokens":40,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":30}}}'
EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
GIVEN = {"authorization": f"Bearer {KEY_A}"}
FULL_DUPLEX, STREAMED, BUFFERED, NONE = 4, 1, 2, 0


def shown(**limits: int) -> OneRequest:
    state = router_state()
    rules = CallerRules(default=CallerLimits(**limits))
    known = group("support", revision(slots=(slot(0, address="10.0.0.1:8000"),)), access=BY_KEY, callers=rules)
    state.install(table(known), "file", 0.0)
    state.features.authenticator.keyring.learn_keys(SecretRef("chat", "keys"), {"team-a": KEY_A.encode()})
    return OneRequest(state)


def counted(request: OneRequest) -> dict[str, int]:
    callers = request.picker.state.metrics.callers
    callers.tell()
    names = ("prompt_tokens", "cached_tokens", "answer_tokens", "unmetered")
    return {name: getattr(callers, name).values.get(("chat/support", "team-a"), 0) for name in names}


def account(request: OneRequest):
    (found,) = request.picker.state.features.limiter._accounts.values()
    return found


@pytest.mark.parametrize("mode", [FULL_DUPLEX, STREAMED, BUFFERED])
def test_an_answer_that_is_shown_is_counted_and_settles_its_charge(mode):
    request = shown(tokens_per_minute=1000, in_flight=5)
    request.head(answer=mode, **GIVEN)
    request.body(CHAT)
    request.answer_head()
    for part in (USAGE[:30], USAGE[30:]):
        request.answer_body(part, end=False)
    request.answer_body(b"")
    assert counted(request) == {"prompt_tokens": 40, "cached_tokens": 30, "answer_tokens": 3, "unmetered": 0}
    assert (account(request).minute_tokens, account(request).in_flight) == (43, 0)


@pytest.mark.parametrize("head", [True, False])
def test_where_a_gateway_shows_no_answers_it_is_said_and_nobody_is_locked_out(head):
    request = shown(in_flight=1)
    for _ in range(3):
        request.head(answer=NONE, **GIVEN)
        assert request.body(CHAT)[0].WhichOneof("response") == "request_headers"
        if head:
            request.answer_head()
        request.close()
        request.begin()
    assert account(request).in_flight == 0
    assert counted(request) == {"prompt_tokens": 0, "cached_tokens": 0, "answer_tokens": 0, "unmetered": 3}


def test_a_stream_without_usage_is_charged_by_its_events():
    request = shown(tokens_per_minute=1000)
    request.head(**GIVEN)
    request.body(json.dumps(chat(stream=True)).encode())
    request.answer_head(stream=True)
    reserved = account(request).minute_tokens
    assert reserved == 1000  # the answer may have any length
    request.answer_body(EVENT * 50 + b"data: [DONE]\n\n")
    assert 50 < account(request).minute_tokens < 100
    assert (counted(request)["answer_tokens"], counted(request)["unmetered"]) == (50, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_not_shown_costs_what_was_reserved(stream):
    """Nobody knows how long it was, and its caller is not to have it for the price of the prompt."""
    request = shown(tokens_per_minute=1000)
    request.head(answer=NONE, **GIVEN)
    request.body(json.dumps(chat(stream=stream, max_tokens=300)).encode())
    request.answer_head(stream=stream)
    request.close()
    assert 300 < account(request).minute_tokens < 400


TOLD = b'data: {"choices":[],' + USAGE[1:] + b"\n\n"


@pytest.mark.parametrize("mode", [FULL_DUPLEX, STREAMED, BUFFERED])
def test_an_engine_is_asked_for_the_usage_where_the_picker_can_keep_it_from_the_client(mode):
    request = shown()
    request.head(answer=mode, **GIVEN)
    said = request.body(json.dumps(chat(stream=True)).encode())
    asked = b"include_usage" in b"".join(each.SerializeToString() for each in said)
    assert asked is (mode == FULL_DUPLEX)
    request.answer_head(stream=True)
    said = request.answer_body(EVENT + (TOLD if asked else b"") + b"data: [DONE]\n\n")
    assert b'"usage"' not in b"".join(each.SerializeToString() for each in said)
    assert counted(request)["answer_tokens"] == (3 if asked else 1)
