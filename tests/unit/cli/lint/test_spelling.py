"""Spellings that split a cache, in one text; and the forms that texts are compared in."""

import pytest

from promptgroup_cli.lint import spelling
from promptgroup_cli.lint.finding import Severity
from promptgroup_cli.lint.subject import Origin
from support.lints import declared


def judged(text, origin=Origin.PROMPT):
    return [(each.rule.id, each.place.offset) for each in spelling.findings(declared(text, origin=origin))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Zwei\r\nZeilen\r\n", [("line-ends", 4)]),
        ("\ufeffHello", [("invisible-characters", 0)]),
        ("Größe:\u00a05", [("invisible-characters", 8)]),
        ("Cafe\u0301, e\u0301", [("not-nfc", 3)]),
        ("Cafe\u0301", [("not-nfc", 3)]),
        ("Größe \u2013 „gut“, 日本語, می‌خواهم", []),
        ("Two lines\nof text\n", []),
        ("Hide \u202eeman\u202c here", [("bidi-override", 5)]),
        ("Isolate \u2067this\u2069", [("bidi-override", 8)]),
        ("A mark\u200e of direction", []),
        ("Cut\0 here", [("nul", 3)]),
        ("A line  \nand another", [("line-blanks", 6)]),
        ("A line\t\r\nand another", [("line-ends", 7), ("line-blanks", 6)]),
        ("A paragraph\n  \nand another  ", []),
    ],
)
def test_found_at_its_first_place(text, found):
    assert judged(text) == found


def test_a_declared_prompt_with_a_line_end_is_an_error():
    assert judged("Be kind.\n", Origin.MANIFEST) == [("end-line", 8)]
    assert judged("Be kind. ", Origin.MANIFEST) == [("end-blanks", 8)]
    assert judged("Be kind.", Origin.MANIFEST) == []
    assert spelling.END_LINE.severity is Severity.ERROR


def test_blanks_at_line_ends_take_linear_time():
    assert judged(" " * 200_000 + "x\n" + "\t" * 200_000) == []


def test_forms():
    assert spelling.characters("\u2018Café\u2019 \u2013 nice…\u200b\u00a0") == "'Café' - nice... "
    assert spelling.blanks(" a\r\n\tb  c\n") == "a b c"
