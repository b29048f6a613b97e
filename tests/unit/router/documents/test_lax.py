"""Compared with pydantic, by which engines read their bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from promptgroup_router.documents import lax

WHOLE, TRUTH = TypeAdapter(int), TypeAdapter(bool)
NUMBERS = [
    8, 0, -8, True, False, 2**63, 2**64, 10**30, 8.0, -8.0, 8.5, -0.0, 1e2, 1e18, 9.3e18, 1e300, 2.0**63, -(2.0**63),
    float("inf"), float("nan"), None, [8], {}, "8", " 8 ", "\n8\t", "+8", "-8", "- 8", "+ 8", "08", "8.0", "8.00", "8.",
    "8.5", ".0", "1_000", "1__0", "_1", "1_", "1e2", "0x8", "", " ", "\uff18", "٣",
    "\u00a08", "\u20038", "\x1f8", "+-8",
    "8_0.0", "8.0_0", "0_8", "+_8", "-.0", "1" * 30, "1" * 4300, "1" * 4301, " " * 5000 + "8", "true", "8\n", "8.0\n",
    "\u180e8", "\ufeff8", "\u200b8", "\x858", "8\x00",
]  # fmt: skip
BOOLEANS = [
    True, False, 1, 0, 2, -1, 1.0, 0.0, -0.0, 0.5, float("nan"), None, [], "1", "0", "on", "off", "t", "f", "true",
    "false", "y", "n", "yes", "no", "TRUE", "Yes", "oN", " true", "true ", "1.0", "2", "", "\uff54rue",
    "enabled", "\u0130",
    "\ufb00", "o\ufb00", "\u212a",
]  # fmt: skip


def taken(adapter: TypeAdapter, value: object) -> object:
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None


@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: repr(value)[:20])
def test_a_whole_number_in_each_spelling(value):
    found = lax.whole(value)
    assert found == taken(WHOLE, value)
    assert type(found) in (int, type(None))


@pytest.mark.parametrize("value", BOOLEANS, ids=repr)
def test_a_boolean_in_each_spelling(value):
    assert lax.truth(value) is taken(TRUTH, value)


@given(st.integers() | st.floats() | st.booleans() | st.text(max_size=8) | st.text("+-_. 0189", max_size=8))
def test_any_value_is_read_as_engines_do(value):
    assert lax.whole(value) == taken(WHOLE, value)
    assert lax.truth(value) is taken(TRUTH, value)
