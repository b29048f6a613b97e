import pytest

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.errors import ReachError
from promptgroup_cli.reach.each_router import ask_each, heard


def silent(path, body):
    raise ReachError("router r2 does not answer")


ROUTERS = {"r1": lambda path, body: b'{"a": 1}', "r2": silent, "r3": lambda path, body: b"<html>"}


def test_one_that_does_not_answer_hides_no_other():
    answers, failed = ask_each(ROUTERS, lambda ask: bounded_json.parse(ask("/x", None))["a"])
    assert answers == {"r1": 1}
    assert str(failed["r2"]) == "router r2 does not answer"
    assert "r3 does not answer as a router of this version does: is it an admin port" in str(failed["r3"])


@pytest.mark.parametrize("answer", [b"[]", b"{}", b'{"a": "x"}', b'{"a": null}', b"3"])
def test_what_is_no_answer_of_a_router_is_a_failure(answer):
    answers, failed = ask_each(
        {"r": lambda path, body: answer}, lambda ask: int(bounded_json.parse(ask("/", None))["a"])
    )
    assert (answers, list(failed)) == ({}, ["r"])


def test_when_none_answers_the_first_reason_is_raised():
    with pytest.raises(ReachError, match="r2"):
        heard(*ask_each({"r2": silent}, lambda ask: ask("/", None)))
    assert heard({"r1": 1}, {"r2": ReachError("no")}) == {"r1": 1}
    assert heard({}, {}) == {}
