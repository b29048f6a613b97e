"""Times as Kubernetes writes them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.base import durations, timestamps


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("", None),
        ("yesterday", None),
        ("0001-01-01T00:00:00+05:00", None),
        ("0001-01-01", None),
        ("1999-12-31T23:59:59Z", None),
        ("2200-01-01T00:00:01Z", None),
        ("9999-12-31T23:59:59Z", None),
        ("9999-12-31T23:59:59-05:00", None),
        ("2000-01-01T00:00:00Z", timestamps.FIRST),
        ("2200-01-01T00:00:00Z", timestamps.LAST),
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


@given(
    st.text("0123456789-+:.TZW ", max_size=30)
    | st.builds("{:04}-{:02}-{:02}T{:02}:59:59{}".format, *[st.integers(0, 9999)] * 4, st.sampled_from(["Z", "-23:59"]))
    | st.datetimes(timezones=st.timezones()).map(str)
)
def test_any_text_is_a_time_to_which_any_duration_can_be_added_or_none(text):
    at = timestamps.parse_time(text)
    longest = durations.parse("999999h999999h999999h999999h")
    if at is not None:
        assert at + longest > at - longest
