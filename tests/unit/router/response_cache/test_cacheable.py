"""Which requests have one answer that may be kept."""

import pytest

from promptgroup_contract.caller_rules import EngineField
from promptgroup_contract.table import ResponseCaching
from promptgroup_router.response_cache.cacheable import Bypass, bypass
from support.asks import MESSAGES, TEXT, asked

CACHING, SEEDED = ResponseCaching(60, 1024), ResponseCaching(60, 1024, trust_seed=True)

NO_FIELDS: frozenset[EngineField] = frozenset()


def text(prompt):
    return asked({"model": "llama", "prompt": prompt, "temperature": 0}, TEXT)


@pytest.mark.parametrize(
    ("ask", "caching", "reason"),
    [
        (asked(), CACHING, None),
        (asked(temperature=0.0), CACHING, None),
        (asked(temperature=-0.0), CACHING, None),
        (asked(temperature=None), CACHING, Bypass.SAMPLING),
        (asked(temperature=False), CACHING, Bypass.SAMPLING),
        (asked(temperature="0"), CACHING, Bypass.SAMPLING),
        (asked(temperature=1e-9), CACHING, Bypass.SAMPLING),
        (asked(temperature=1, seed=7), CACHING, Bypass.SAMPLING),
        (asked(temperature=1, seed=7), SEEDED, None),
        (asked(temperature=1, seed=True), SEEDED, Bypass.SAMPLING),
        (asked(temperature=1, seed=None), SEEDED, Bypass.SAMPLING),
        (asked(n=1), CACHING, None),
        (asked(n=2), CACHING, Bypass.CHOICES),
        (asked(n=True), CACHING, Bypass.CHOICES),
        (asked(best_of=2), CACHING, Bypass.CHOICES),
        (text("a"), CACHING, None),
        (text(["a"]), CACHING, None),
        (text(["a", "b"]), CACHING, Bypass.CHOICES),
        (text([1, 2, 3]), CACHING, None),
        (text([[1], [2]]), CACHING, Bypass.CHOICES),
        (asked({"model": "m", "temperature": 0, "input": "Hi"}, b"/v1/responses"), CACHING, Bypass.API),
        (asked({"model": "m", "temperature": 0, "input": "Hi"}, b"/v1/embeddings"), CACHING, Bypass.API),
    ],
)
def test_a_request_is_kept_only_if_it_has_one_answer(ask, caching, reason):
    assert bypass(ask, caching, "e1", NO_FIELDS) is reason


def test_parts_other_than_text_and_unknown_engines_are_reasons():
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    seen = asked({"model": "m", "temperature": 0, "messages": [{"role": "user", "content": [image]}]})
    assert bypass(seen, CACHING, "e1", NO_FIELDS) is Bypass.MEDIA
    assert bypass(asked(), CACHING, "", NO_FIELDS) is Bypass.ENGINE


def test_messages_of_anthropic_are_kept():
    body = {"model": "m", "max_tokens": 5, "temperature": 0, "messages": [{"role": "user", "content": "Hi"}]}
    assert bypass(asked(body, MESSAGES), CACHING, "e1", NO_FIELDS) is None


@pytest.mark.parametrize(
    ("allowed", "given", "reason"),
    [
        (frozenset((EngineField.SESSION_PARAMS,)), {"id": "a"}, Bypass.SESSION),
        (frozenset((EngineField.SESSION_PARAMS,)), {}, Bypass.SESSION),
        (frozenset((EngineField.SESSION_PARAMS,)), None, None),
        (frozenset((EngineField.RID,)), {"id": "a"}, None),
        (NO_FIELDS, {"id": "a"}, None),
    ],
)
def test_an_answer_that_follows_from_what_the_engine_heard_before_is_not_kept(allowed, given, reason):
    assert bypass(asked(session_params=given), CACHING, "e1", allowed) is reason
