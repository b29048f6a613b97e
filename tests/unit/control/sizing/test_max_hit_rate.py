from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.sizing.max_hit_rate import ceiling, declared, expected
from support.loads import load


def told(turns, prefix, message, answer):
    """A load of sessions of so many turns that are all alike."""
    lengths = [prefix + turn * (message + answer) + message for turn in range(turns)]
    mean = sum(lengths) / turns
    return load(1, opening=1 / turns, declared_tokens=prefix, queries=mean, generated=answer)


@pytest.mark.parametrize("turns", [1, 2, 5, 20])
def test_the_message_is_new_and_the_answer_before_it_may_be(turns):
    seen = told(turns, 2000, 100, 150)
    assert ceiling(seen) == pytest.approx(1 - (100 + 150 * (1 - 1 / turns)) / seen.engines.queries)


@pytest.mark.parametrize("turns", [2, 5, 20])
def test_of_models_whose_thoughts_are_left_out_no_more_is_expected_than_is_found(turns):
    """1,000 tokens of an answer are thought, and 150 come back."""
    seen = told(turns, 2000, 100, 150)
    thinking = replace(seen, engines=replace(seen.engines, generated=1150))
    assert 0.75 < ceiling(thinking) < ceiling(seen)


def test_prompts_that_share_nothing_have_no_hits_to_lose():
    assert ceiling(told(1, 10, 1000, 150)) == pytest.approx(0.01, abs=0.001)


@given(st.floats(0.01, 1), st.floats(1, 4000), st.floats(1, 4000), st.floats(0, 40_000))
def test_no_less_than_the_declared_prefix_may_be_found_and_no_more_than_all(opening, prefix, rest, answer):
    seen = load(1, opening=opening, declared_tokens=prefix, queries=prefix + rest, generated=answer)
    assert declared(seen) - 1e-9 <= ceiling(seen) <= 1


def test_where_sessions_are_not_told_the_declared_prefix_can_be_expected():
    assert ceiling(load(opening=None)) is None
    assert declared(load()) == expected(load(opening=None)) == 0.8


@pytest.mark.parametrize(
    "seen",
    [replace(load(), engines=None), replace(load(), clients=None), load(0), load(declared_tokens=0)],
    ids=["no engines", "no routers", "no requests", "no prefix known"],
)
def test_unknown_is_not_zero(seen):
    assert expected(seen) is None
