"""The fingerprint depends on what a prompt says and on nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.fingerprint import canonical_tools, fingerprint

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
TOOLS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), max_size=3)


def shuffled(value, seed):
    """The same value with the keys of its objects in another order."""
    if isinstance(value, dict):
        items = [(key, shuffled(item, seed)) for key, item in value.items()]
        seed.shuffle(items)
        return dict(items)
    return [shuffled(item, seed) for item in value] if isinstance(value, list) else value


@given(TEXTS, TOOLS, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(system, tools, seed):
    assert fingerprint(system, shuffled(tools, seed)) == fingerprint(system, tools)


@given(TOOLS, st.sampled_from([None, 2]), st.booleans())
def test_the_spelling_of_the_json_does_not_matter(tools, indent, ascii_only):
    spelled = json.dumps(tools, indent=indent, ensure_ascii=ascii_only)
    assert canonical_tools(json.loads(spelled)) == canonical_tools(tools)


@pytest.mark.heavy
@given(TOOLS)
def test_the_canonical_form_is_its_own_canonical_form(tools):
    form = canonical_tools(tools)
    assert canonical_tools(json.loads(form or "[]")) == form


@pytest.mark.heavy
@given(TOOLS)
def test_the_canonical_form_says_the_same(tools):
    assert json.loads(canonical_tools(tools) or "[]") == tools


@pytest.mark.heavy
@given(TEXTS, TEXTS, TOOLS)
def test_another_text_is_another_fingerprint(one, other, tools):
    assert (fingerprint(one, tools) == fingerprint(other, tools)) is (one == other)


@given(TEXTS, TOOLS)
def test_text_cannot_pass_for_tools(system, tools):
    form = canonical_tools(tools)
    assert not form or fingerprint(form + "\0" + system) != fingerprint(system, tools)
