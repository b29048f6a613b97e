"""What looks volatile, and what does not. tests/property/test_lint.py puts tokens anywhere."""

import pytest

from promptgroup_cli.lint.finding import Severity
from promptgroup_cli.lint.volatile import RULES, TOKENS, tokens

VOLATILE = {
    "current-date": [
        "Today is Saturday, 21 November 2026", "Today is Saturday", "Today's date is 2026-11-21", "as of 11/21/2026",
        "current date: November 21, 2026", "Current time is 18:11", "now: 1763748665", "it is now 18:11:05",
        "Current date and time: Sat Nov 21 18:11:05 2026",
    ],
    "timestamp": [
        "2026-11-21T18:11:05Z", "2026-11-21 18:11:05.123+01:00", "Sat, 21 Nov 2026 18:11:05 GMT", "1763748665",
        "Sat Nov 21 18:11:05 2026", "1763748665123", "1763748665.25", "20261121T181105Z",
        "November 21, 2026 at 6:11 pm",
    ],
    "date": ["2026-11-21", "2026/11/21", "21.11.2026", "11/21/2026", "21st of November 2026", "Sat, 21 Nov 2026"],
    "time": ["18:11:05", "6:11 pm", "18:11 UTC", "18:11:05.123"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"],
    "random-id": ["9f2c61d04be83a77", "0x9f2c61d04be83a77", "01ARZ3NDEKTSV4RRFFQ69G5FAV"],
    "named-id": [
        "request id: 8f3a21", "session_id=abc123", 'user_id: "u-42"', "Customer ID is 4711", "req_8f3a2112",
        "chatcmpl-abc123def", "x-trace-id: 00-4bf92f",
        "x-anthropic-billing-header: cc_version=2; cch=1a",
    ],
    "counter": ["request #42", "turn number 7", "Attempt no. 3", "message #1"],
}  # fmt: skip


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule, texts in VOLATILE.items() for text in texts])
def test_found_whole_where_it_stands(rule, text):
    start = 4 + (2 if text.startswith("x-trace") else 0)
    (token,) = tokens(f"Abc {text}\nDef.")
    assert (token.rule.id, token.start, token.end) == (rule, start, 4 + len(text))


def test_every_rule_is_shown_here():
    assert [rule.id for rule in RULES] == list(VOLATILE)


@pytest.mark.parametrize(
    "text",
    [
        "If asked for the current date, say that you do not know.", "Today is a good day.", "version 1.2.3", "2024-06",
        "call 1-800-555-0199", "section 4.2.1", "deadbeef", "facedecadebeadedbeefed", "0123456789012345", "session 12",
        "As of version 2 the message has 3 parts.", "16:9", "the user identification", "a 5:1 ratio", "#1",
        "turn 3 of 5", "/usr/lib/python3.11/json", "9f2c61d0", "user_interface-elements", "",
    ],
)  # fmt: skip
def test_static_text_is_left_alone(text):
    assert tokens(text) == []


def test_opening_hours_are_a_note_and_a_clock_with_seconds_a_warning():
    assert [token.severity for token in tokens("9:00 to 17:00, at 18:11:05")] == [
        Severity.NOTE, Severity.NOTE, Severity.WARNING,
    ]  # fmt: skip


def test_so_many_tokens_and_no_more():
    assert len(tokens("2026-11-21 and " * 1000)) == TOKENS
