"""Prompts shorter than a cache block."""

from promptgroup_cli.lint.subject import LintSubject, Origin
from support.lints import STATIC, chat, declared, found, report, text, tool


def test_a_prompt_must_fill_a_block():
    assert found(declared("x" * 64)) == []
    assert found(declared("x" * 63)) == [("short-prefix", "warning", "system", 0)]
    assert found(declared("x" * 64), block=17) == [("short-prefix", "warning", "system", 0)]


def test_tools_count():
    assert found(chat("x" * 10, tools=[tool("look")])) == []


def test_the_estimate_is_said():
    (finding,) = report(*[chat("Be kind.")] * 3).findings
    assert finding.message == "8 bytes, about 2 tokens at 4 bytes each: a block has 16"
    assert finding.requests == 3


def test_no_prompt_is_a_note():
    assert found(chat(""), chat(STATIC)) == [("no-prefix", "note", "system", 0)]


def test_of_a_text_nobody_knows_how_long_its_prompt_is():
    assert found(text("Hi")) == []


def test_a_file_of_a_prompt_that_is_empty_is_no_request():
    empty = LintSubject("empty.txt", 1, Origin.PROMPT, "", "", "", lines=True)
    assert found(empty) == [("empty-prompt", "warning", "system", 0)]
