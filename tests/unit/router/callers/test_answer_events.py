"""Whole routers count in `test_caller_usage.py`."""

from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.callers.answer_events import AnswerEvents, SeenEvents


def test_events_are_counted_and_the_usage_is_read_as_without():
    seen = SeenEvents()
    tail = AnswerEvents(Tail(), seen)
    assert (seen.count, tail.usage()) == (0, None)
    tail.add(b'data: {"choices":[{"delta":{"content":"data: {\\"x\\"}"}}]}\n\n' * 3)
    assert (seen.count, tail.usage()) == (3, None)
    tail.add(b'data: {"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\ndata: [DONE]\n\n')
    assert (seen.count, tail.usage()) == (4, Usage(7, None, 3))
