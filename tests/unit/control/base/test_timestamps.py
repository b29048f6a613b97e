"""Times as Kubernetes writes them."""

from datetime import UTC, datetime

import pytest

from promptgroup_operator.base import timestamps


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("", None),
        ("yesterday", None),
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T04:04:05+01:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_a_time_that_cannot_be_read_is_none(text, expected):
    assert timestamps.parse_time(text) == expected


def test_a_time_is_written_to_the_second_and_read_back():
    at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    assert timestamps.rfc3339(at) == "2026-01-02T03:04:05Z"
    assert timestamps.parse_time(timestamps.rfc3339(at)) == at.replace(microsecond=0)
