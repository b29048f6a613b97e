import pytest

from bench import unasked_usage_cost

pytestmark = [pytest.mark.heavy, pytest.mark.interpreted]
MOST = 1.6
"""Measured were 1.2 of a stream of 200 events; one of which each event is framed anew it was 2.2."""
TRIES = 8


def test_a_stream_whose_usage_is_asked_for_passes_nearly_as_cheaply_as_another():
    # what else runs on the machine adds to one of the two, and may go on for seconds: one quiet moment is enough
    found = []
    for _ in range(TRIES):
        found.append(unasked_usage_cost.measure(rounds=30))
        if found[-1].ratio <= MOST:
            return
    raise AssertionError(f"more than {MOST} times as much each time: {found}")
