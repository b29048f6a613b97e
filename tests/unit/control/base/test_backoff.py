import random

import pytest

from promptgroup_operator.base.backoff import FIRST_RETRY, LAST_RETRY, backoff, retry_seconds
from promptgroup_operator.base.errors import ClusterError


@pytest.mark.parametrize(
    ("failures", "chance", "expected"),
    [
        (1, 1.0, FIRST_RETRY),
        (1, 0.0, FIRST_RETRY / 2),
        (2, 1.0, FIRST_RETRY * 2),
        (5, 0.5, FIRST_RETRY * 12),
        (100, 1.0, LAST_RETRY),
        (100, 0.0, LAST_RETRY / 2),
    ],
)
def test_backoff(monkeypatch, failures, chance, expected):
    monkeypatch.setattr(random, "random", lambda: chance)
    assert backoff(failures) == expected


def test_a_retry_waits_for_what_the_server_asked_and_longer_after_a_slow_try():
    assert retry_seconds(ClusterError("busy", status=429, retry_after=60.0), 1, 0.1) == 60.0
    assert retry_seconds(ClusterError("timed out"), 1, 15.0) == 30.0
    assert retry_seconds(ClusterError("x", status=503), 1, 0.0) <= FIRST_RETRY.total_seconds()
