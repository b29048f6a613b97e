"""Marks of prompts are the same whether the marks of their beginning were cached or not."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.prefixes import prompt_marks
from promptgroup_router.prefixes.prompt_marks import REMEMBERED_BYTES, REMEMBERED_STARTS, marks_of

lengths = st.integers(0, 3 * REMEMBERED_BYTES)
letters = st.sampled_from("aé")


@st.composite
def prompts(draw):
    """Return requests whose tools and system text have lengths around those from which on their marks are cached."""
    messages = [{"role": "user", "content": draw(letters) * draw(lengths)}]
    if size := draw(lengths):
        messages.insert(0, {"role": "system", "content": draw(letters) * size})
    body = {"model": "m", "messages": messages}
    if size := draw(lengths):
        body["tools"] = [{"type": "function", "function": {"name": "f", "description": draw(letters) * size}}]
    return parse(ApiKind.CHAT, orjson.dumps(body))


@given(st.lists(prompts(), min_size=1, max_size=6))
def test_cached_beginnings_change_no_mark(requests):
    prompt_marks._starts.clear()
    plain = []
    for request in requests:
        prompt_marks._starts.clear()
        plain.append(marks_of(request))
    for _ in range(2):
        assert [marks_of(request) for request in requests] == plain
        assert len(prompt_marks._starts) <= REMEMBERED_STARTS
