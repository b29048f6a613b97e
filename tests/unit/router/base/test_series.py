"""The values of one metric for one set of labels."""

from promptgroup_router.base.exposition import Exemplar
from promptgroup_router.base.series import Observations, Series


def test_a_value_is_told_once_something_was_added():
    series = Series()
    assert not series.rank
    series.add(0)
    assert series.rank
    assert series.value == 0
    series.add()
    series.add(2.5)
    assert series.value == 3.5


def test_observations_are_counted_in_the_first_bucket_that_holds_them():
    series = Observations((1.0, 2.0))
    assert not series.rank
    for value in (0.5, 1.0, 1.5, 3.0):
        series.record(value)
    assert series.counts == [2, 1, 1]
    assert series.sum == 6.0
    assert series.rank


def test_the_last_exemplar_of_a_bucket_is_kept():
    series = Observations((1.0, 2.0))
    first, last, beyond = (Exemplar(trace, value, 0.0) for trace, value in ((1, 1.5), (2, 1.7), (3, 9.0)))
    for each in (first, last, beyond):
        series.mark(each)
    assert series.exemplars == {1: last, 2: beyond}
