"""Text that is another one on the next request: dates, times, ids, counters.

A token is found by how it is written. Only a log shows that it really differs (`variants`): then it is an error;
where many requests agree on it, a note. Dates without a time are notes by themselves: most of them are part of a rule
(`valid until 2027-01-31`), unless a word in front says that this is today.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from promptgroup_cli.lint.finding import Rule, Severity

_VOIDS = "the cache of all that follows is void when it differs"
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
_BY_GROUP = {rule.id.replace("-", "_"): rule for rule in RULES}

TOKENS = 32
"""Tokens of one text that are told apart: more of them say nothing new."""

_DAY = r"[0-3]?[0-9](?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)[0-9]{2}(?![0-9])"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_WEEKDAY = r"(?:mon|tue(?:s)?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b"
_CLOCK = (
    r"[0-2]?[0-9]:[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]{1,9})?)?(?![0-9])"
    r"(?:\ ?[ap]\.?m\b\.?)?(?:\ ?(?:utc|gmt|z)\b|\ ?[+-][0-9]{2}:?[0-9]{2}(?![0-9]))?"
)
_DATE = (
    r"(?:(?:19|20)[0-9]{2}[-/][01]?[0-9][-/][0-3]?[0-9](?![0-9])|[0-3]?[0-9][./-][0-3]?[0-9][./-]" + _YEAR + "|"
    rf"(?:{_WEEKDAY},?\ )?(?:{_DAY}\ (?:of\ )?{_MONTH},?\ {_YEAR}|{_MONTH}\ {_DAY},?\ {_YEAR}))"
)
_STAMP = (
    rf"(?:{_DATE}(?:T|,?\ (?:at\ )?|\n){_CLOCK}|{_WEEKDAY}\ {_MONTH}\ +{_DAY}\ {_CLOCK}\ {_YEAR}|"
    r"(?:19|20)[0-9]{6}T[0-9]{4,6}Z?(?![0-9])|1[5-9][0-9]{8}(?:[0-9]{3}|\.[0-9]+)?(?![0-9]))"
)
_ALONE = r"(?<![0-9][.:/,-])"
"""In front of digits: not the end of a longer number, version or path."""
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9a-f])"
_RANDOM = (
    r"(?:0x)?(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{16,}(?![0-9a-z])|"
    r"[0-7](?=[a-z]*[0-9])(?=[0-9]*[a-z])[0-9a-hjkmnp-tv-z]{25}(?![0-9a-z])"
)
_VALUE = r"[\"']?(?=[\w.@:-]*[0-9])[\w.@:-]*\w[\"']?"
_NAMED = (
    r"(?:request|session|user|customer|account|trace|span|correlation|conversation|thread|message|tenant|run|job|"
    rf"transaction)[\s_-]?(?:id|uuid|identifier)[\"']?(?:\ is\ |\s*[:=\#]\s*|\ ){_VALUE}|"
    r"(?:req|sess|session|user|usr|trace|run|thread|conv|chatcmpl|resp|msg|job)[_-]"
    r"(?=[a-z_-]*[0-9])[0-9a-z_-]{6,}|"
    r"x-anthropic-billing-header:[^\n]{0,256}"  # of Claude Code, with a hash of the request
)
_COUNTER = (
    r"(?:request|message|turn|attempt|iteration|call|run|session|conversation|query)"
    r"\ ?(?:\#|no\.?\ |number\ ?:?\ ?)\ ?[0-9]+"
)
_PRESENT = (
    r"(?:today(?:'s\ date)?(?:\ is|\s*[:=])|(?:current|today's)\ (?:date|time|day|date\ and\ time|date/time|datetime|"
    r"timestamp)(?:\ is|\s*[:=])|now\ is|now\s*[:=])\ *"
)

_TOKEN = re.compile(
    r"(?<![0-9a-z])(?:"  # tokens begin where words begin: five times fewer places to look at
    rf"(?P<current_date>{_PRESENT}(?:{_STAMP}|{_DATE}|{_CLOCK}|{_WEEKDAY}|(?=[^\n.]{{0,24}}[0-9]{{2}}))|"
    rf"as\ of\ (?:{_STAMP}|{_DATE})|it\ is\ (?:now|currently)\ (?:{_STAMP}|{_DATE}|{_CLOCK}))|"
    rf"(?P<uuid>{_UUID})|(?P<named_id>{_NAMED})|(?P<counter>{_COUNTER})|(?P<timestamp>{_ALONE}{_STAMP})|"
    rf"(?P<date>{_ALONE}{_DATE})|(?P<time>{_ALONE}{_CLOCK})|(?P<random_id>{_RANDOM}))",
    re.IGNORECASE | re.ASCII,
)


class VolatileToken(NamedTuple):
    """A piece of text that looks volatile."""

    rule: Rule
    start: int
    end: int
    """In characters."""
    severity: Severity


def tokens(text: str) -> list[VolatileToken]:
    """Return the first tokens of a text, in order; none overlaps another."""
    return [each for each, _ in zip(_tokens(text), range(TOKENS), strict=False)]


def _tokens(text: str) -> Iterator[VolatileToken]:
    for match in _TOKEN.finditer(text):
        rule = _BY_GROUP[str(match.lastgroup)]
        severity = rule.severity
        if rule is TIME and match[0].count(":") == 1:
            severity = Severity.NOTE  # opening hours are no clock
        yield VolatileToken(rule, match.start(), match.end(), severity)
