"""Keys of answers against an independent reading of the APIs: equal exactly where the engine's answer would be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.response_cache import canonical
from promptgroup_router.response_cache.canonical import NOT_COVERED
from support.asks import CHAT, key_of
from support.keybodies import FIELDS
from support.keycampaign import run
from support.keymeaning import meaning
from support.wire import chat


def test_keys_are_equal_exactly_where_answers_are():
    report = run(seed=1, count=1500)
    assert report.meanings < report.different < report.bodies, "bodies must meet, or the test says nothing"
    assert report.equal > 2_500


@pytest.mark.slow
def test_keys_of_many_bodies_are_equal_exactly_where_answers_are():
    assert run(seed=2, count=30_000).equal > 1_000_000


def _without(name):
    def plant(patch):
        patch.setattr(canonical, "NOT_COVERED", NOT_COVERED | {name})

    return plant


def _covering(name):
    def plant(patch):
        patch.setattr(canonical, "NOT_COVERED", NOT_COVERED - {name})

    return plant


def _tools_in_any_order(patch):
    def key(ask, **of):
        ask.tools = "".join(sorted(ask.tools))
        return sound(ask, **of)

    sound = canonical.cache_key
    patch.setattr("support.asks.cache_key", key)


def _one_for_all_paths(patch):
    sound = canonical.cache_key
    patch.setattr("support.asks.cache_key", lambda ask, **of: sound(ask, **(of | {"path": CHAT})))


FAULTS = {
    "a field is left out": _without("top_p"),
    "what nobody knows is left out": _without("nobody_knows_this"),
    "an id is covered": _covering("request_id"),
    "tools are compared without their order": _tools_in_any_order,
    "paths are not told apart": _one_for_all_paths,
    "1 and 1.0 are two": lambda patch: patch.setattr(canonical, "_NUMBERS", frozenset()),
    "a default is another value": lambda patch: patch.setitem(canonical._DEFAULTS, "n", (None,)),
    "true is the number 1": lambda patch: patch.setattr(canonical, "_is_one_of", lambda value, of: value in of),
    "long numbers are doubles": lambda patch: patch.setattr(canonical, "_BEYOND", canonical.re.compile(b"never")),
    "members of messages have an order": lambda patch: patch.setattr(canonical, "_ordered", lambda value: value),
    "roles are left out": lambda patch: patch.setattr(canonical, "_message", lambda message: message["content"]),
}


@pytest.mark.heavy
@pytest.mark.parametrize("fault", FAULTS)
def test_keys_that_are_broken_on_purpose_are_found(fault, monkeypatch):
    FAULTS[fault](monkeypatch)
    with pytest.raises(AssertionError, match=r"one key for two meanings|two keys for one meaning"):
        run(seed=1, count=3000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=6,
)
UNKNOWN = st.text(min_size=1).filter(lambda name: name not in {*FIELDS, *NOT_COVERED, *chat()})


@given(UNKNOWN, JSON, JSON)
def test_any_value_of_a_field_that_nobody_knows_is_part_of_the_key(name, one, other):
    texts = [json.dumps({"temperature": 0, **chat(), name: value}).encode() for value in (one, other)]
    keys, meanings = [key_of(ENDPOINTS[CHAT].parse(text)) for text in texts], [meaning(CHAT, text) for text in texts]
    assert (keys[0] == keys[1]) == (meanings[0] == meanings[1])
