import json
from dataclasses import replace

import pytest

from promptgroup_router.callers.reported_usage import ReportedUsage
from promptgroup_router.contract.caller_rules import NO_RULES, CachedTokens, CallerRules
from promptgroup_router.decision.answer import Additions, additions
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.cache_diagnosis import CACHE_MISS, Diagnosed
from promptgroup_router.routing.state import RouterState
from support.tables import group, table
from support.wire import chat

CHAT = b"/v1/chat/completions"


def added(rules=NO_RULES, status=200, *, compressed=False, asks=False):
    state = RouterState()
    state.install(table(replace(group(), callers=rules)), "file", 0.0)
    fields = {b"x-promptgroup-diagnostics": b""} if asks else {}
    body = json.dumps(chat()).encode()
    found = arrive(state, method=b"POST", path=CHAT, headers=fields, body=body, now=0.0)
    return additions(state, found, None, status, streamed=False, compressed=compressed, now=0.0)


def test_most_answers_pass_as_they_are():
    assert added() == Additions(b"", [], None)


@pytest.mark.parametrize(("status", "rewritten"), [(200, True), (404, False)])
def test_what_was_cached_is_hidden_where_a_group_says_so(status, rewritten):
    rewriter = added(CallerRules(cached_tokens=CachedTokens.HIDDEN), status).rewriter
    assert isinstance(rewriter, ReportedUsage) is rewritten


def test_a_client_that_asks_is_told_in_a_field_and_its_prompt_remembered():
    found = added(asks=True)
    assert [name for name, _ in found.fields] == [CACHE_MISS]
    assert isinstance(found.rewriter, Diagnosed)
    assert added(asks=True, compressed=True).rewriter is None
