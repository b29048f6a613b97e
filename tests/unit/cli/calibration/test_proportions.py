"""How sure a share is that was seen in a sample."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.calibration.proportions import at_most, interval


def test_intervals_are_those_of_the_literature():
    # Newcombe, Statistics in Medicine 1998, table I
    assert interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert interval(0, 0) == (0.0, 1.0)


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.001, 0.999))
def test_the_tail_is_the_sum_of_its_terms(errors, trials, rate):
    exact = sum(comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(min(errors, trials) + 1))
    assert at_most(errors, trials, rate) == pytest.approx(exact, rel=1e-6, abs=1e-12)


@given(st.integers(1, 10**5).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_the_share(found):
    successes, trials = found
    low, high = interval(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1
