import json
from dataclasses import replace

import pytest

from promptgroup_contract.caller_rules import NO_RULES, CachedTokens, CallerRules
from promptgroup_router.callers.reported_usage import ReportedUsage
from promptgroup_router.callers.unasked_usage import UsageEvents
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.answer_usage import HiddenUsage, UnaskedUsage
from promptgroup_router.features.cache_diagnosis import CACHE_MISS, Diagnosed
from promptgroup_router.routing.points import Answering, InTurn
from support.tables import group, table
from support.wire import chat

CHAT = b"/v1/chat/completions"


def added(rules=NO_RULES, status=200, *, compressed=False, asks=False):
    state = router_state()
    state.install(table(replace(group(), callers=rules)), "file", 0.0)
    fields = {b"x-promptgroup-diagnostics": b""} if asks else {}
    body = json.dumps(chat()).encode()
    found = arrive(state, method=b"POST", path=CHAT, headers=fields, body=body, now=0.0)
    answer = Answering(None, status, streamed=False, compressed=compressed, now=0.0)
    for feature in found.features:
        feature.answering(answer)
    return answer


def test_most_answers_pass_as_they_are():
    answer = added()
    assert (answer.limits, answer.fields, answer.rewriter) == (b"", [], None)


@pytest.mark.parametrize(("status", "rewritten"), [(200, True), (404, False)])
def test_what_was_cached_is_hidden_where_a_group_says_so(status, rewritten):
    rewriter = added(CallerRules(cached_tokens=CachedTokens.HIDDEN), status).rewriter
    assert isinstance(rewriter, ReportedUsage) is rewritten


def test_a_client_that_asks_is_told_in_a_field_and_its_prompt_remembered():
    found = added(asks=True)
    assert [name for name, _ in found.fields] == [CACHE_MISS]
    assert isinstance(found.rewriter, Diagnosed)
    assert added(asks=True, compressed=True).rewriter is None


@pytest.mark.parametrize(
    ("streamed", "status", "compressed", "rewritten"),
    [(True, 200, False, True), (False, 200, False, False), (True, 500, False, False), (True, 200, True, False)],
)
def test_a_usage_that_the_router_asked_for_is_taken_out_of_streams_alone(streamed, status, compressed, rewritten):
    answer = Answering(None, status, streamed=streamed, compressed=compressed, now=0.0)
    UnaskedUsage().answering(answer)
    assert isinstance(answer.rewriter, UsageEvents) is rewritten


def test_the_event_that_nobody_asked_for_goes_before_the_usage_is_hidden():
    answer = Answering(None, 200, streamed=True, compressed=False, now=0.0)
    UnaskedUsage().answering(answer)
    HiddenUsage(CachedTokens.HIDDEN).answering(answer)
    assert isinstance(answer.rewriter, InTurn)
