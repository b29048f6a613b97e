from datetime import UTC, datetime

import pytest

from promptgroup_cli.dashboard.past import FRESH_SECONDS, SPAN, DashboardPast, asking, before, past_queries
from promptgroup_operator.load.prometheus_api import PrometheusError

NOW = datetime(2026, 11, 22, 14, tzinfo=UTC)


class Asked:
    def __init__(self):
        self.queries, self.fails = [], False

    def __call__(self, query, start, end):
        if self.fails:
            raise PrometheusError("ConnectionError")
        self.queries.append((query, start, end))
        return {10: 0.5, 40: 0.6}


def test_a_group_is_asked_for_once_in_a_while_and_at_once_when_it_changes():
    asked = Asked()
    past = DashboardPast(asked)
    past.refresh("chat/a", NOW, 0.0)
    assert past.columns["hitRate"] == {10: 0.5, 40: 0.6}
    assert {each[1:] for each in asked.queries} == {(NOW - SPAN, NOW)}
    count = len(asked.queries)
    past.refresh("chat/a", NOW, FRESH_SECONDS - 1)
    assert len(asked.queries) == count
    past.refresh("chat/b", NOW, FRESH_SECONDS - 1)
    assert len(asked.queries) == 2 * count
    past.refresh("chat/b", NOW, 2 * FRESH_SECONDS)
    assert len(asked.queries) == 3 * count


def test_a_prometheus_that_fails_is_a_problem_until_it_answers():
    asked = Asked()
    past = DashboardPast(asked)
    asked.fails = True
    past.refresh("chat/a", NOW, 0.0)
    assert (past.columns, "--prometheus: ConnectionError" in past.problem) == ({}, True)
    asked.fails = False
    past.refresh("chat/a", NOW, FRESH_SECONDS)
    assert (past.problem, len(past.columns)) == ("", 5)


def test_a_name_cannot_leave_its_quotes():
    for query in past_queries('a"} or vector(1) #\\').values():
        assert 'group="a\\"} or vector(1) #\\\\"' in query


def test_times_before_the_page_began():
    columns = {"hitRate": {10: 0.5, 40: 0.6, 70: 0.7}, "ttftP50": {40: 0.02}}
    times, values = before(columns, datetime.fromtimestamp(70, UTC))
    assert (times, values) == ([10, 40], {"hitRate": [0.5, 0.6], "ttftP50": [None, 0.02]})
    assert before(columns, None)[0] == [10, 40, 70]
    assert before({}, NOW) == ([], {})


@pytest.mark.parametrize(("found", "values"), [([], {}), ([({}, [(10, 0.5)])], {10: 0.5})])
def test_one_series_is_read(found, values):
    class Api:
        def query_range(self, *_):
            return found

    assert asking(Api())("q", NOW, NOW) == values
