from datetime import UTC, datetime

import pytest

from promptgroup_operator import records
from promptgroup_operator.observed import Problem, Progress, RolledBack
from support.builders import NOW, ago

MARK = RolledBack(ago(minutes=3), "5e771295", Problem("ErrorRate", "8 % of requests failed, 1 % did"))


def test_what_is_written_is_read():
    found = records.encode(NOW, Progress(2, ago(minutes=1)), MARK, 7)
    assert records.superseded_at(found) == NOW
    assert records.progress(found) == Progress(2, ago(minutes=1))
    assert records.rolled_back(found) == MARK
    assert records.size(found) == 7


def test_what_is_not_there_is_not_written():
    assert records.encode(None, None, None, None) == {}
    assert records.encode(None, Progress(0, None), None, None) == {records.STEP: "0"}
    assert (records.superseded_at({}), records.progress({}), records.rolled_back({}), records.size({})) == (None,) * 4


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e3", "[]", "{}", '{"at": 3}', "٣", "9" * 30, "[" * 9999])
def test_what_somebody_else_wrote_is_as_good_as_not_there(text):
    names = (records.SUPERSEDED, records.STEP, records.STEP_SINCE, records.ROLLED_BACK, records.SIZE)
    found = dict.fromkeys(names, text)
    assert (records.superseded_at(found), records.progress(found), records.size(found)) == (None, None, None)
    assert records.rolled_back(found) is None


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
    assert records.time_of(text) == expected
