"""Weights that halve with time, without a look at each."""

import pytest

from promptgroup_router.undeclared.decay import HALF_LIFE, LARGEST_UNIT, Decay


def test_what_is_added_later_weighs_more_by_as_much_as_the_earlier_has_halved():
    decay = Decay()
    assert decay.advance(100.0) == 1.0
    assert decay.unit == 1.0
    assert decay.advance(100.0 + HALF_LIFE) == 1.0
    assert decay.unit == 2.0
    assert decay.advance(100.0) == 1.0  # a clock that goes back halves nothing
    assert decay.unit == 1.0


def test_before_a_float_ends_all_weights_are_to_be_divided_once():
    decay = Decay()
    decay.advance(0.0)
    assert decay.advance(64 * HALF_LIFE) == 1.0
    assert decay.unit == LARGEST_UNIT
    assert decay.advance(65 * HALF_LIFE) == 2 * LARGEST_UNIT
    assert decay.unit == 1.0
    assert decay.advance(66 * HALF_LIFE) == 1.0
    assert decay.unit == 2.0


def test_the_time_that_weights_stand_for_grows_to_a_limit():
    decay = Decay()
    assert decay.seconds(5.0) == 0.0
    decay.advance(0.0)
    assert decay.seconds(60.0) == pytest.approx(60.0, rel=0.01)
    assert decay.seconds(100 * HALF_LIFE) == pytest.approx(HALF_LIFE / 0.6931, rel=0.001)
