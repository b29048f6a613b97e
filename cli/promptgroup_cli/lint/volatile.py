"""Text that differs on the next request: dates, times, ids, counters.

A token is recognized by its format (`promptgroup_router.prefixes.volatile`). Only a log shows that it really
differs (`variants`): then it is an error; where many requests agree on it, a note. Dates without a time are notes by
themselves: most of them are part of a rule (`valid until 2027-01-31`), unless a word in front says that this is today.
"""

from collections.abc import Iterator
from typing import NamedTuple

from promptgroup_cli.lint.finding import Rule, Severity
from promptgroup_router.prefixes.volatile import TOKEN, rule_of

_VOIDS = "everything behind it is computed again when it changes"
_MOVE = "move it behind the static text: to the end of the prompt, or into the last user message"
_DROP = "leave it out of the prompt: send it as a header, or as metadata of the request"

CURRENT_DATE = Rule(
    "current-date", Severity.ERROR, "the present date or time", _VOIDS, _MOVE + "; a date alone changes once a day"
)
TIMESTAMP = Rule("timestamp", Severity.WARNING, "a date with a time, or seconds since 1970", _VOIDS, _MOVE)
DATE = Rule("date", Severity.NOTE, "a date", _VOIDS, _MOVE + ", unless it never changes")
TIME = Rule("time", Severity.WARNING, "a time of day", _VOIDS, _MOVE + ", unless it never changes")
UUID = Rule("uuid", Severity.WARNING, "a UUID", _VOIDS, _DROP)
RANDOM_ID = Rule("random-id", Severity.WARNING, "a hexadecimal or ULID id of 16 characters or more", _VOIDS, _DROP)
NAMED_ID = Rule("named-id", Severity.WARNING, "an id of a request, a session, a user", _VOIDS, _DROP)
COUNTER = Rule("counter", Severity.WARNING, "a number that counts requests, turns, attempts", _VOIDS, _DROP)

RULES = (CURRENT_DATE, TIMESTAMP, DATE, TIME, UUID, RANDOM_ID, NAMED_ID, COUNTER)
BY_ID = {rule.id: rule for rule in RULES}

TOKENS = 32
"""Tokens of one text that are examined: more of them add nothing."""


class VolatileToken(NamedTuple):
    """A piece of text that looks volatile."""

    rule: Rule
    start: int
    end: int
    """In characters."""
    severity: Severity


def tokens(text: str) -> list[VolatileToken]:
    """Return the first tokens of a text, in order; none overlaps another."""
    return [volatile_token for volatile_token, _ in zip(_tokens(text), range(TOKENS), strict=False)]


def _tokens(text: str) -> Iterator[VolatileToken]:
    for match in TOKEN.finditer(text):
        rule = BY_ID[rule_of(match)]
        severity = rule.severity
        if rule is TIME and match[0].count(":") == 1:
            severity = Severity.NOTE  # opening hours are no clock
        yield VolatileToken(rule, match.start(), match.end(), severity)
