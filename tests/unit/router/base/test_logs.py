import json
import logging
import sys

from promptgroup_router.base.logs import ACCESS, Json, Plain, configure, fields
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
