import pytest

from promptgroup_research.experiments.capacity import PRECISION, RATIO, STRIDE, around, capacity, of_file
from promptgroup_research.experiments.catalogue import Recorded, workload
from promptgroup_research.simulator.trace import synthetic, written


def test_it_finds_where_the_ratio_is_passed():
    assert capacity(lambda rate: rate / 30 * RATIO, 10, 80) == pytest.approx(30, rel=PRECISION)


@pytest.mark.parametrize("begin", [0.01, 20, 30, 44, 10_000])
def test_it_is_found_from_any_rate(begin):
    low, high = around(lambda rate: rate / 30 * RATIO, begin)
    assert low < 30 <= high == pytest.approx(low * STRIDE)


def test_a_trace_is_measured_before_it_is_played(tmp_path):
    path = tmp_path / "recorded.jsonl"
    path.write_text(written(synthetic(0, count=1200)))
    found = of_file(Recorded(path))
    assert 1.0 < found.capacity < 20.0
    assert workload("trace", found).capacity == found.capacity
