import io
import json
import logging
import sys
from datetime import UTC, datetime, timedelta

import pytest

from promptgroup_router.base import logs
from promptgroup_router.base.logs import (
    ACCESS,
    AccessLog,
    Json,
    Plain,
    configure,
    fields,
    flush_requests,
    log_request,
)
from promptgroup_router.feed import issuer_feed, key_copy, secret_feed
from promptgroup_router.feed import publish as tables


def record(**extra):
    return logging.makeLogRecord(
        {
            "name": "promptgroup.router",
            "levelname": "INFO",
            "msg": "served %s",
            "args": ("x",),
            "created": 0.5,
            "msecs": 500.0,
        }
        | extra
    )


def test_a_plain_line_has_the_fields_behind_the_event():
    assert (
        Plain("%(levelname)s %(message)s").format(record(**fields(group="a/b", tries=1)))
        == "INFO served x group=a/b tries=1"
    )


def test_a_value_cannot_be_taken_for_more_than_one():
    line = Plain("%(message)s").format(record(**fields(request='a" group=b\n', file="", problem="no file")))
    assert line == 'served x request="a\\" group=b\\n" file="" problem="no file"'


def test_a_json_line_is_one_object():
    line = Json().format(record(**fields(group="a/b", error=ValueError("bad"))))
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "INFO",
        "logger": "promptgroup.router",
        "event": "served x",
        "group": "a/b",
        "error": "bad",
    }


def test_a_json_line_has_its_traceback():
    try:
        int("bad")
    except ValueError:
        line = Json().format(record(exc_info=sys.exc_info()))
    assert "ValueError: invalid literal" in json.loads(line)["traceback"]
    assert "\n" not in line


def test_lines_of_a_worker_say_which_it_is(monkeypatch):
    root = logging.RootLogger(logging.INFO)
    monkeypatch.setattr(logging, "root", root)
    configure("INFO", "json", worker=2)
    marked = record(**fields(group="a/b"))
    root.handlers[0].filter(marked)
    assert json.loads(Json().format(marked))["worker"] == 2
    assert json.loads(Json().format(marked))["group"] == "a/b"


def test_without_the_access_log_problems_with_access_are_told_all_the_same(monkeypatch):
    monkeypatch.setattr(logging, "root", logging.RootLogger(logging.INFO))
    configure("INFO", "json", access=False)
    assert not logging.getLogger(ACCESS).isEnabledFor(logging.CRITICAL)
    for module in (issuer_feed, key_copy, secret_feed, tables):
        assert module.log.propagate, module.__name__
        assert module.log.isEnabledFor(logging.WARNING), module.__name__


@pytest.mark.interpreted
def test_lines_about_requests_are_written_together(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(logs, "_access_logs", [AccessLog(stream)])
    log_request("served", {"http.response.status_code": 200})
    log_request("cut", {"promptgroup.group": "chat/a"})
    assert stream.getvalue() == ""
    flush_requests()
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["logger"]) == ("served", "INFO", ACCESS)
    assert (first["http.response.status_code"], second["promptgroup.group"]) == (200, "chat/a")
    assert datetime.now(UTC) - datetime.fromisoformat(first["time"]) < timedelta(minutes=10)
    flush_requests()
    assert len(stream.getvalue().splitlines()) == 2


def test_lines_about_requests_do_not_wait_once_they_are_many():
    stream = io.StringIO()
    access_log = AccessLog(stream)
    for _ in range(1000):
        access_log.write("served", {"gen_ai.request.model": "x" * 100})
    assert len(stream.getvalue().splitlines()) > 500


def test_a_reader_of_the_lines_that_has_gone_ends_nothing():
    stream = io.StringIO()
    access_log = AccessLog(stream)
    access_log.write("served", {})
    stream.close()
    access_log.flush()


def test_the_access_log_is_on_where_it_is_configured(monkeypatch):
    monkeypatch.setattr(logging, "root", logging.RootLogger(logging.INFO))
    level = logging.getLogger(ACCESS).level
    try:
        for access in (True, False):
            configure("INFO", "json", access=access)
            assert (logging.getLogger(ACCESS).isEnabledFor(logging.INFO), len(logs._access_logs) == 1) == (
                access,
                access,
            )
    finally:
        logging.getLogger(ACCESS).setLevel(level)
