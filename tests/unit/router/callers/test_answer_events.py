"""Whole routers count in `test_caller_usage.py`."""

import pytest

from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.callers.answer_events import tail_of
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.contract.caller_rules import CallerLimits

LIMITS = CallerLimits(tokens_per_minute=100)


@pytest.fixture
def charge():
    found = Limiter().admit("chat/support", "a", LIMITS, prompt=10, longest=5, now=0.0)
    assert found is not None
    return found


def test_events_are_counted_and_the_usage_is_read_as_without(charge):
    tail = tail_of(Tail(), charge, streamed=True)
    tail.add(b'data: {"choices":[{"delta":{"content":"data: {\\"x\\"}"}}]}\n\n' * 3)
    assert (charge.seen, tail.usage()) == (3, None)
    tail.add(b'data: {"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\ndata: [DONE]\n\n')
    assert (charge.seen, tail.usage()) == (4, Usage(7, None, 3))


@pytest.mark.parametrize("streamed", [False, True])
def test_nothing_is_counted_where_nobody_is_charged(charge, streamed):
    tail = Tail()
    assert tail_of(tail, None, streamed=streamed) is tail
    assert tail_of(tail, charge, streamed=False) is tail
