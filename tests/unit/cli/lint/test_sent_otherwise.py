"""Declared prompts beside a log of what clients send."""

import pytest

from promptgroup_cli.lint import sent_otherwise
from promptgroup_cli.lint.sent_otherwise import SentOtherwise
from promptgroup_cli.lint.subject import Origin
from support.lints import STATIC, chat, declared


def told(prompt, *systems, last=False):
    seen = SentOtherwise()
    subjects = [*(chat(each) for each in systems), declared(prompt, origin=Origin.MANIFEST)]
    for each in subjects if last else reversed(subjects):
        seen.see(each)
    return [(each.rule.id, each.requests, each.message) for each in seen.findings()]


@pytest.mark.parametrize("last", [False, True])
def test_a_line_end_that_nobody_sends_is_told_with_the_requests_that_it_costs(last):
    ((rule, requests, message),) = told(f"{STATIC}\n", STATIC, STATIC, STATIC, last=last)
    assert (rule, requests) == ("sent-otherwise", 3)
    assert "3 requests bring this prompt with no line end, which `system: |` has written" in message


def test_other_blanks_are_told_as_such():
    ((_, requests, message),) = told(STATIC, STATIC.replace(". ", ".\n"), STATIC)
    assert requests == 1
    assert "other blanks or line ends" in message


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [(STATIC, STATIC), (f"{STATIC}\n", f"{STATIC}\n"), (STATIC, f"{STATIC}\n"), (STATIC, "Another prompt")],
)
def test_what_begins_as_declared_and_what_is_another_prompt_is_fine(prompt, sent):
    assert told(prompt, sent) == []


def test_ever_new_prompts_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(sent_otherwise, "TRACKED", 8)
    seen = SentOtherwise()
    for number in range(50):
        seen.see(chat(f"{STATIC} {number}"))
    assert sum(map(len, seen._sent.values())) == 8
