import pytest

from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.measure import Figures, figures, mean, percentile
from promptgroup_research.simulator.turns import Session, Turn


def turn(arrived, first, *, cached=50, replica=0, refused=False):
    it = Turn(Session(1, 0, 0, 0.0), (1,), (100,), 10, 0)
    it.arrived, it.first, it.cached, it.replica, it.refused = arrived, first, cached, replica, refused
    it.admitted = arrived if cached >= 0 else -1.0
    return it


def test_what_a_run_says():
    turns = [turn(0, 1, replica=0), turn(1, 4, cached=30, replica=0), turn(2, 3, cached=100 - 16, replica=1)]
    turns += [turn(3, -1, cached=-1, replica=1), turn(4, -1, cached=-1, refused=True)]
    found = figures(turns, 4, Model(), ended=13.0)
    assert found.requests == 5
    assert found.hit == pytest.approx(164 / 300)
    assert found.mean == pytest.approx((1 + 3 + 1 + 10) / 4)  # the one without an answer has waited 10 s
    assert (found.refused, found.unfinished) == (1, 1)
    assert found.imbalance == pytest.approx(2 * 4 / 4)
    assert found.own == pytest.approx((Model().prefill(50, 50) + Model().prefill(30, 70) + Model().prefill(84, 16)) / 3)


def test_nothing_measured_is_no_error():
    assert figures([], 4, Model(), 1.0).p99 == 0


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 3), (0.99, 4)])
def test_percentiles(share, value):
    assert percentile([1, 2, 3, 4], share) == value


def test_means_are_figure_by_figure():
    one, other = (Figures(*range(start, start + 11)) for start in (0, 2))
    assert mean([one, other]) == Figures(*range(1, 12))
