"""Which table the bench of attacks makes of what honest requests waited, and when it holds."""

import pytest

from bench.attacks.report import MOST_RATIO, Pair, Window, is_quiet, markdown, summarize


def pair(alone: float, beside: float, *, failed: int = 0) -> Pair:
    """Windows of a hundred requests, of which two are slow."""
    return Pair(*(Window([0.05] * 98 + [slowest] * 2, lost) for slowest, lost in ((alone, 0), (beside, failed))), 40.0)


def test_a_ratio_is_the_median_of_rounds_so_that_one_busy_moment_decides_nothing():
    (row,) = summarize({"floods": [pair(0.06, 0.09), pair(0.06, 6.0), pair(0.1, 0.15)]})
    assert row.ratio_p99 == pytest.approx(1.5)
    assert row.ratio_p50 == 1
    assert (row.alone_p99, row.beside_p99) == pytest.approx((60, 150))
    assert row.holds


@pytest.mark.parametrize(
    ("measured", "holds"),
    [
        (pair(0.06, 0.06 * MOST_RATIO * 0.99), True),
        (pair(0.06, 0.06 * MOST_RATIO * 1.01), False),
        (pair(0.06, 0.06, failed=1), False),
    ],
)
def test_a_long_wait_or_a_lost_request_is_too_much(measured, holds):
    (row,) = summarize({"floods": [measured]})
    assert row.holds is holds


@pytest.mark.parametrize(("beside", "quiet"), [(0.06, True), (0.1, False), (0.03, False)])
def test_a_machine_whose_windows_differ_without_any_attack_tells_nothing(beside, quiet):
    windows = (Window([slowest] * 9, 0) for slowest in (0.06, beside))
    (row,) = summarize({"nothing": [Pair(*windows)]})
    assert is_quiet(row) is quiet


def test_the_table_of_a_page_has_a_line_for_each_attack():
    lines = markdown(summarize({"floods": [pair(0.06, 0.09)], "bodies": [pair(0.06, 0.06)]})).splitlines()
    assert [line.count("|") for line in lines] == [10] * 4
    assert lines[2] == "| floods | 50.0 | 50.0 | 60.0 | 90.0 | 1.00 | 1.50 | 0 | 40 |"
