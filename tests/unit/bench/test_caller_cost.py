"""What access and limits cost a request, beside fixed work of the interpreter in the same moments."""

import pytest

from bench import caller_cost
from promptgroup_router.base import build

INTERPRETED, COMPILED = 7.0, 3.5
"""Yardsticks. Measured were 3.6 and 1.5 on one kind of machine, and 4.5 to 4.9 interpreted on another, with up to 5.5
beside other work."""
TRIES = 8


@pytest.mark.heavy
def test_access_and_limits_cost_no_more_than_so_many_yardsticks() -> None:
    # what else runs on the machine adds to one of the two, and may go on for seconds: one quiet moment is enough
    most = COMPILED if build.compiled() else INTERPRETED
    found = []
    for _ in range(TRIES):
        found.append(caller_cost.measure(batches=200))
        if found[-1].ratio <= most:
            return
    raise AssertionError(f"more than {most} yardsticks each time: {found}")
