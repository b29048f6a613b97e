import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.base import nesting

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('ab"\\[]{}, :\n\u00e9'), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"[}\\', max_size=3), inner, max_size=4),
    max_leaves=30,
)


def cut(value, levels):
    """The value with null for what lies too deep, told in the plainest way."""
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return None
    if isinstance(value, dict):
        return {key: cut(each, levels - 1) for key, each in value.items()}
    return [cut(each, levels - 1) for each in value]


@given(DOCUMENTS, st.integers(0, 6), st.sampled_from([None, 1]), st.booleans())
def test_what_lies_too_deep_is_null_and_all_else_stands(document, levels, indent, ascii_only):
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()
    wanted = cut(document, levels)
    assert nesting.parse(text, levels) == wanted
    assert nesting.is_deeper(document, levels) == (wanted != document)


@given(st.binary(max_size=40) | st.text('{}[]",:\\a1', max_size=40).map(str.encode), st.integers(0, 3))
def test_any_bytes_are_a_value_within_the_depth_or_no_json(text, levels):
    try:
        found = nesting.parse(text, levels)
    except ValueError:
        return
    assert not nesting.is_deeper(found, levels)


@pytest.mark.parametrize("depth", [nesting.LEVELS + 1, 900, 1_100, 3_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('[{"a":[', "]}]")])
def test_no_depth_is_too_much(depth, opening, closing):
    text = f'{{"items":[{{"spec":{opening * depth}1{closing * depth}}},{{"spec":"]}}"}}]}}'
    deep, other = nesting.parse(text.encode())["items"]
    assert other == {"spec": "]}"}
    assert not nesting.is_deeper(deep, nesting.LEVELS - 2)
    assert nesting.is_deeper(deep, nesting.LEVELS - 3)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 500_000 + b"]" * 500_000,
        b"[" + b",".join([b"[" * 150 + b"]" * 150] * 3_000) + b"]",
        b'["' + b'\\"' * 500_000,
    ],
    ids=["one", "many", "a string without end"],
)
def test_it_takes_linear_time(text):
    began = time.thread_time()
    try:
        nesting.parse(text)
    except ValueError:
        assert text.startswith(b'["')
    assert time.thread_time() - began < 5.0


@given(DOCUMENTS, st.integers(0, 6))
def test_text_that_was_made_shallow_is_what_is_read_of_the_whole(document, levels):
    text = json.dumps(document).encode()
    assert json.loads(nesting.shallow(text, levels)) == nesting.parse(text, levels)
    if not nesting.is_deeper(document, levels):
        assert nesting.shallow(text, levels) is text


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": nan', b"\xff"])
def test_what_is_no_json_is_left_for_its_reader(text):
    assert nesting.shallow(text) is text


def test_a_depth_at_which_parsers_raise_is_made_shallow():
    text = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    assert not nesting.is_deeper(json.loads(nesting.shallow(text)), nesting.LEVELS)
