import random
import statistics
from collections import Counter
from itertools import pairwise

import pytest

from promptgroup_research.simulator.draws import geometric, lognormal, modulated, poisson, waves, zipf


def test_lengths_have_their_median_and_stay_within_limits():
    draw = lognormal(random.Random(1), 100, 0.8, 20, 500)
    lengths = [draw() for _ in range(4000)]
    assert statistics.median(lengths) == pytest.approx(100, rel=0.1)
    assert (min(lengths), max(lengths)) == (20, 500)


def test_turns_have_their_mean():
    draw = random.Random(1)
    assert statistics.mean(geometric(draw, 5.0, 1000) for _ in range(5000)) == pytest.approx(5, rel=0.1)
    assert {geometric(draw, 1.0, 10) for _ in range(5)} == {1}


def test_the_first_is_drawn_most_often():
    draw = zipf(random.Random(1), 3)
    counts = Counter(draw() for _ in range(6000))
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.15)
    assert counts[0] / counts[2] == pytest.approx(3, rel=0.15)


def test_arrivals_keep_their_rate_and_their_end():
    times = list(poisson(random.Random(1), 50, 100))
    assert len(times) == pytest.approx(5000, rel=0.05)
    assert times[0] > 0
    assert times[-1] < 100
    assert list(poisson(random.Random(1), 0, 100)) == []


def test_modulated_arrivals_come_where_the_scale_is_high():
    times = list(modulated(random.Random(1), 50, 100, lambda now: 2.0 if now < 50 else 0.0, 2.0))
    assert len(times) == pytest.approx(5000, rel=0.05)
    assert max(times) < 50


def test_waves_alternate_to_the_end():
    found = waves(random.Random(1), 500)
    assert {factor for _, factor in found[::2]} == {0.5}
    assert {factor for _, factor in found[1::2]} == {2.5}
    assert all(a < b for (a, _), (b, _) in pairwise(found))
    assert found[-1][0] >= 500
