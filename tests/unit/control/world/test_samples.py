import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.world.samples import Flow, Histogram, Stratum, Traffic, bucket_of, histogram, mean, quantile

A, B = Histogram((1.0,), (3.0, 1.0)), Histogram((1.0,), (1.0, 4.0))


def test_histograms_add_up_and_what_came_since_is_never_negative():
    assert Histogram((1.0,), (4.0, 5.0)) == A + B
    assert A + Histogram() == Histogram() + A == A
    assert Histogram((1.0,), (2.0, 0.0)) == A - B
    assert A.total == 4


def test_histograms_of_other_buckets_are_not_added_up():
    other = Histogram((1.0, 2.0), (1.0, 1.0, 1.0))
    assert A + other == other + A == A
    assert other - A == other


def test_strata_add_up_and_what_came_since_is_never_negative():
    one, two = Stratum(5, 1, A, B), Stratum(3, 2, B, A)
    assert one + two == Stratum(8, 3, A + B, B + A)
    assert one - two == Stratum(2, 0, A - B, B - A)


def test_traffic_knows_its_requests():
    assert Traffic(True, {"a": Flow(2, 1), "b": Flow(3, 0)}).requests() == 5


BOUNDS = (0.5, 1.0, 2.0, 4.0)
EDGES = (0.0, *BOUNDS, BOUNDS[-1])
"""Where buckets begin and end; what lies above the last bound is taken to lie there."""
OBSERVED = st.lists(st.floats(0.001, 8), min_size=1, max_size=30)


def observed(values):
    """Return the histogram of values, read as Prometheus writes it."""
    return histogram({bound: sum(value <= bound for value in values) for bound in (*BOUNDS, math.inf)})


def bucket(value):
    return sum(bound < value for bound in BOUNDS)


@given(OBSERVED)
def test_every_observation_is_in_its_bucket(values):
    read = observed(values)
    assert read.bounds == BOUNDS
    assert read.counts == tuple(sum(bucket(value) == index for value in values) for index in range(len(BOUNDS) + 1))


@given(OBSERVED, st.integers(1, 99))
def test_a_quantile_is_in_the_bucket_of_the_observation_of_its_rank(values, percent):
    read = observed(values)
    ranked = sorted(values)[math.ceil(percent * len(values) / 100 - 1e-9) - 1]
    assert bucket_of(read, percent / 100) == bucket(ranked)
    low, high = EDGES[bucket(ranked)], EDGES[bucket(ranked) + 1]
    assert low <= quantile(read, percent / 100) <= high + 1e-9


@given(OBSERVED)
def test_quantiles_rise_and_the_mean_is_between_the_bounds(values):
    read = observed(values)
    found = [quantile(read, percent / 100) for percent in range(1, 100)]
    assert all(a <= b + 1e-9 for a, b in pairwise(found))
    assert BOUNDS[0] <= mean(read) <= BOUNDS[-1]


def test_estimates_are_linear_within_a_bucket():
    read = Histogram((1.0, 3.0), (2.0, 4.0, 2.0))
    assert [quantile(read, q) for q in (0.125, 0.5, 0.9)] == pytest.approx([0.5, 2.0, 3.0])
    assert mean(read) == pytest.approx((2 * 1 + 4 * 2 + 2 * 3) / 8)
