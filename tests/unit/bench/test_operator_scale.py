"""The gates of the operator's bench, by made-up results."""

from collections import Counter
from dataclasses import replace

from bench.operator_scale import Result, Spent, misses
from support.fleet import Calls


def spent(seconds: float, operator: float, server: float, **verbs: int) -> Spent:
    return Spent(seconds, operator, operator / 3, server, Calls(Counter(verbs)))


SMALL = Result(
    groups=20,
    replicas=5,
    creation=spent(20, 5, 12, get=160, patch=660),
    rest=spent(60, 0.5, 1),
    changes=spent(5, 0.3, 1),
    memory=(85, 87),
    to_warm=[1.0],
    to_routed=[1.0],
    told=[1.0],
)
LARGE = replace(SMALL, groups=100, creation=spent(90, 26, 60, get=800, patch=3300), rest=spent(60, 2, 1))


def test_a_run_that_grows_with_its_groups_misses_no_gate() -> None:
    assert list(misses(SMALL, SMALL)) == list(misses(LARGE, SMALL)) == []


def test_each_kind_of_gate_is_missed_by_a_count_a_ratio_or_growth() -> None:
    asks = replace(LARGE, creation=spent(90, 26, 60, get=8000, patch=3300))
    writes = replace(LARGE, rest=spent(60, 2, 1, patch=1))
    grows = replace(LARGE, rest=spent(60, 20, 1))
    assert [text for result in (asks, writes, grows) for text in misses(result, SMALL)] == [
        "100 x 5: creation, a group: reads is 80.00, and at most 11 is expected",
        "100 x 5: rest: writes is 1.00, and at most 0 is expected",
        "100 x 5: rest, CPU of the operator for a group is 8.00 times that of the first size (1.4)",
    ]
