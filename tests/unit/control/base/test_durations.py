import re
from datetime import timedelta

import pytest

from promptgroup_operator.base.durations import PATTERN, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("300ms", timedelta(milliseconds=300)),
        ("5s", timedelta(seconds=5)),
        ("10m", timedelta(minutes=10)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("0s", timedelta()),
        ("1m1m", timedelta(minutes=2)),
        ("1h1m1s1ms", timedelta(hours=1, minutes=1, seconds=1, milliseconds=1)),
    ],
)
def test_a_go_duration_is_understood(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "5", "m", "-5m", "5 m", "5m ", "5m\n", "5d", "5M", "1h30", ".5h", "1,5h", "1h 30m", "٣m"]
)
def test_anything_else_is_refused_with_the_text_and_the_way_out(text):
    with pytest.raises(ValueError, match=r"is no duration: write numbers with ms, s, m or h") as refused:
        parse(text)
    assert repr(text) in str(refused.value)


def test_no_duration_that_the_schema_accepts_overflows_when_added_to_a_date():
    longest = max(("999999.999h" * repeats for repeats in range(1, 9)), key=lambda each: (accepted(each), len(each)))
    assert accepted(longest)
    assert parse(longest) < timedelta(days=365 * 1000)


def accepted(text: str) -> bool:
    return re.fullmatch(PATTERN, text) is not None and len(text) <= 48


def test_a_number_too_long_for_a_date_is_refused():
    with pytest.raises(ValueError, match="is no duration"):
        parse("9" * 30 + "h")
