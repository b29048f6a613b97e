"""Breakpoints of Anthropic's API: how many, behind how much, behind what."""

import orjson
import pytest

from promptgroup_cli.lint.messages import breakpoints
from promptgroup_cli.lint.messages.breakpoints import minimum
from promptgroup_cli.lint.subject import sent_prompt
from promptgroup_router.apis.anthropic import parse_messages
from support.lints import chat, found

MARK = {"cache_control": {"type": "ephemeral"}}
LONG = "Answer by the rules that follow. " * 400


def block(text, **more):
    return {"type": "text", "text": text} | more


def asked(*system, said=("hi",), model="claude-sonnet-4-5", **fields):
    messages = [{"role": "user", "content": list(said) if not isinstance(said[0], str) else said[0]}]
    body = {"model": model, "max_tokens": 9, "system": list(system), "messages": messages} | fields
    return sent_prompt("log", 1, parse_messages(orjson.dumps(body)))


def told(*subjects):
    return [(rule, severity, field) for rule, severity, field, _ in found(*subjects) if rule.startswith("breakpoint")]


def test_a_breakpoint_behind_a_long_prompt_is_fine():
    assert told(asked(block(LONG, **MARK))) == []
    assert told(asked(block(LONG))) == []
    assert told(chat(LONG)) == []


def test_more_than_four_are_refused():
    parts = [block(LONG, **MARK)] + [block(f"Part {number}.", **MARK) for number in range(4)]
    assert told(asked(*parts)) == [("breakpoints", "error", "system[4]")]
    assert told(asked(*parts[:4])) == []


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("claude-sonnet-4-5", 1024),
        ("claude-opus-4-5-20251101", 4096),
        ("claude-haiku-4-5", 4096),
        ("claude-3-5-haiku-latest", 2048),
        ("anthropic/claude-opus-4.5", 4096),
    ],
)
def test_the_least_length_is_the_models(model, least):
    assert minimum(model) == least
    short = "x" * (4 * least // 2)
    assert told(asked(block(short, **MARK), model=model)) == [("breakpoint-short", "warning", "system[0]")]
    assert told(asked(block("x" * 4 * least, **MARK), model=model)) == []


def test_a_breakpoint_behind_the_time_is_told_at_the_time():
    now = f"{LONG} Today is 2026-11-27T12:34:56Z."
    assert told(asked(block(now, **MARK))) == [("breakpoint-volatile", "warning", "system")]
    assert told(asked(block(now))) == []
    tools = [{"name": "f", "description": LONG, "input_schema": {"type": "object"}, **MARK}]
    assert told(asked(block(now), tools=tools)) == []  # what is kept ends in front of the time


def test_what_no_two_requests_have_in_common_is_told():
    each = [asked(block(LONG), said=(block(f"Question {number}", **MARK),)) for number in range(12)]
    assert told(*each) == [("breakpoint-volatile", "warning", "messages[0].content[0]")]
    shared = [asked(block(LONG, **MARK), said=(block(f"Question {number}", **MARK),)) for number in range(12)]
    assert told(*shared) == []


def test_ever_new_texts_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(breakpoints, "TRACKED", 8)
    seen = breakpoints.Breakpoints()
    for number in range(50):
        seen.see(asked(block(f"{number} {LONG}", **MARK)))
    assert len(seen._prefixes) == 8
