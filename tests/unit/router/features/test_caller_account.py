import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.caller_account import CallerAccount
from promptgroup_router.routing.points import Answering, RequestEnd, feature_of
from support.tables import group, table
from support.wire import chat

pytestmark = pytest.mark.interpreted

GROUP = "chat/support"


def account_of(state, name="team-a", *, cached=True, charge=None):
    route = SimpleNamespace(
        group=GROUP, caller=SimpleNamespace(name=name), demand=SimpleNamespace(prompt=40, cached=cached)
    )
    return CallerAccount(state.features.limiter, state.metrics, route, charge)


def end(usage=None, *, worked=True, metered=True, shown=True):
    return RequestEnd(usage, 1.0, worked=worked, metered=metered, shown=shown)


def told(state, series):
    state.metrics.callers.tell()
    return getattr(state.metrics.callers, series).values


def test_requests_are_counted_by_the_name_of_their_caller():
    state = router_state()
    account_of(state, "").answered(200)
    account_of(state).answered(200)
    account_of(state).answered(503)
    assert told(state, "requests") == {(GROUP, "team-a", "200"): 1, (GROUP, "team-a", "503"): 1}


def test_tokens_are_those_that_the_engine_reports():
    state = router_state()
    account = account_of(state)
    account.answered(200)
    account.ended(end(Usage(100, 60, 11)))
    assert told(state, "prompt_tokens") == {(GROUP, "team-a"): 100}
    assert told(state, "cached_tokens") == {(GROUP, "team-a"): 60}
    assert told(state, "answer_tokens") == {(GROUP, "team-a"): 11}


def test_of_a_stream_whose_engine_reports_none_its_events_are_counted():
    state = router_state()
    account = account_of(state)
    tail = account.tail(SimpleNamespace(add=lambda data: None), streamed=True)
    account.answered(200)
    tail.add(b'data: {"a": 1}\n\ndata: {"b": 2}\n\n')
    account.ended(end())
    assert told(state, "prompt_tokens") == {(GROUP, "team-a"): 40}
    assert told(state, "answer_tokens") == {(GROUP, "team-a"): 2}


@pytest.mark.parametrize(
    ("how", "cached", "counted"),
    [
        ({"metered": False}, True, {}),
        ({}, False, {}),
        ({}, True, {(GROUP, "team-a"): 1}),
        ({"shown": False}, True, {(GROUP, "team-a"): 1}),
    ],
    ids=["an error", "embeddings", "an answer", "an answer that a gateway does not show"],
)
def test_answers_whose_tokens_nobody_tells_are_counted(how, cached, counted):
    state = router_state()
    account = account_of(state, cached=cached)
    if how.get("shown", True):
        account.answered(200)
    account.ended(end(**how))
    assert {key: count for key, count in told(state, "unmetered").items() if count} == counted


LIMITS = CallerRules(default=CallerLimits(tokens_per_minute=100_000))


def arrived(state, **fields):
    body = json.dumps(chat(**fields)).encode()
    return arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=0.0)


@pytest.fixture
def limited():
    state = router_state()
    state.install(table(replace(group(), callers=LIMITS)), "file", 0.0)
    return state


@pytest.mark.parametrize(("worked", "left"), [(True, 99_000), (False, 100_000)])
def test_what_no_engine_has_worked_on_is_given_back(limited, worked, left):
    account = feature_of(arrived(limited, max_tokens=5000).features, CallerAccount)
    account.ended(end(Usage(900, 0, 100) if worked else None, worked=worked))
    answer = Answering(None, 200, streamed=False, compressed=False, now=1.0)
    account.answering(answer)
    assert f"ratelimit-remaining-tokens: {left}".encode() in answer.limits


def test_a_request_that_is_withdrawn_costs_nothing(limited):
    account = feature_of(arrived(limited, max_tokens=5000).features, CallerAccount)
    account.withdrawn(1.0)
    answer = Answering(None, 200, streamed=False, compressed=False, now=1.0)
    account.answering(answer)
    assert b"ratelimit-remaining-tokens: 100000" in answer.limits


def test_a_request_over_a_limit_is_refused_and_counted():
    state = router_state()
    state.install(table(replace(group(), callers=CallerRules(default=CallerLimits(in_flight=1)))), "file", 0.0)
    arrived(state)
    with pytest.raises(ApiError) as caught:
        arrived(state)
    assert caught.value.status == 429
    assert list(told(state, "limited").values()) == [1]


def test_who_has_no_name_and_no_limits_has_no_account():
    state = router_state()
    state.install(table(group()), "file", 0.0)
    assert feature_of(arrived(state).features, CallerAccount) is None
