"""Holes of templates: which are told, and how bad they are where they were found."""

import pytest

from promptgroup_cli.lint import holes
from promptgroup_cli.lint.subject import Origin
from support.lints import STATIC, chat, declared


def judged(text, origin=Origin.PROMPT):
    subject = declared(text, origin=origin)
    return [(each.severity.name.lower(), each.place.offset) for each in holes.findings(subject, 0)]


@pytest.mark.parametrize(
    "hole", ["{{now}}", "${USER}", "%(session_id)s", "<%= time %>", "{userName}", "{{ date.today }}"]
)
def test_a_hole_whose_name_says_that_it_varies_is_an_error(hole):
    assert judged(f"Für {hole}.") == [("error", 5)]


@pytest.mark.parametrize("hole", ["{{company}}", "${PRODUCT}", "%(brand)s", "{% if x %}", "$BRAND"])
def test_any_other_hole_is_a_warning(hole):
    assert judged(f"Für {hole}.") == [("warning", 5)]


@pytest.mark.parametrize("braces", ["{title}", "{answer.text}", "{score:.2f}"])
def test_braces_around_a_name_may_be_an_instruction(braces):
    assert judged(f"Answer as {braces}.") == [("note", 10)]


@pytest.mark.parametrize(
    "text", ['{"a": 1}', "\\frac{a}{b}", "{}", "costs $5", "a{b}", "100% (sure)", "{ x }", "{knowledge base}"]
)
def test_other_braces_are_no_holes(text):
    assert judged(text) == []


def test_knowledge_is_not_now():
    assert judged("{{knowledge}}") == [("warning", 0)]


def test_what_was_sent_with_a_hole_is_static():
    found = list(holes.findings(chat(f"{STATIC} {{{{now}}}}"), 0))
    assert [each.severity.name for each in found] == ["NOTE"]


def test_a_hole_is_quoted_where_that_was_asked_for_and_it_is_no_secret():
    quoted = [
        [each.excerpt for each in holes.findings(declared("{{now}}", secret=secret), show)]
        for secret, show in ((False, 0), (False, 4), (True, 4))
    ]
    assert quoted == [[""], ["{{no"], [""]]
