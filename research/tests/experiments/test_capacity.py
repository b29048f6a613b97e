import pytest

from promptgroup_research.experiments.capacity import PRECISION, RATIO, capacity


def test_it_finds_where_the_ratio_is_passed():
    assert capacity(lambda rate: rate / 30 * RATIO, 10, 80) == pytest.approx(30, rel=PRECISION)
