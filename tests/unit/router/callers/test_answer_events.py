"""Whole routers count in `test_caller_usage.py`."""

import pytest

from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.callers.answer_events import UNSEEN, SeenEvents, tail_of


def test_events_are_counted_and_the_usage_is_read_as_without():
    seen = SeenEvents()
    tail = tail_of(Tail(), seen, streamed=True)
    assert (seen.count, tail.usage()) == (0, None)
    tail.add(b'data: {"choices":[{"delta":{"content":"data: {\\"x\\"}"}}]}\n\n' * 3)
    assert (seen.count, tail.usage()) == (3, None)
    tail.add(b'data: {"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\ndata: [DONE]\n\n')
    assert (seen.count, tail.usage()) == (4, Usage(7, None, 3))


@pytest.mark.parametrize("streamed", [False, True])
def test_nothing_is_counted_where_nobody_wants_to_know(streamed):
    tail, seen = Tail(), SeenEvents()
    assert tail_of(tail, None, streamed=streamed) is tail
    assert tail_of(tail, seen, streamed=False) is tail
    assert seen.count == UNSEEN
