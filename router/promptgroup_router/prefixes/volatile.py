"""Finds text that differs between requests by its form: dates, times, ids, counters.

`promptgroup lint` searches a whole prompt for it. The router searches the top of prompts that no group declares: all
text behind a time is recomputed for each request, and without the time the requests have the same prompt. A text
without a digit at its top, which is the usual case, costs one search for a digit.
"""

import re
from typing import NamedTuple

TOP_CHARACTERS = 128
"""Characters of a text in which a token at the top begins: this bounds the cost of the search, and text that varies
further down leaves engines a prefix to cache."""
TOP_TOKENS = 4
"""Most volatile tokens at the top of a text."""
_LONGEST = 384
"""Most characters of a token at the top that are matched."""

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

TOKEN = re.compile(
    r"(?<![0-9a-z])(?:"  # tokens begin where words begin: five times fewer positions to search
    rf"(?P<current_date>{_PRESENT}(?:{_STAMP}|{_DATE}|{_CLOCK}|{_WEEKDAY}|(?=[^\n.]{{0,24}}[0-9]{{2}}))|"
    rf"as\ of\ (?:{_STAMP}|{_DATE})|it\ is\ (?:now|currently)\ (?:{_STAMP}|{_DATE}|{_CLOCK}))|"
    rf"(?P<uuid>{_UUID})|(?P<named_id>{_NAMED})|(?P<counter>{_COUNTER})|(?P<timestamp>{_ALONE}{_STAMP})|"
    rf"(?P<date>{_ALONE}{_DATE})|(?P<time>{_ALONE}{_CLOCK})|(?P<random_id>{_RANDOM}))",
    re.IGNORECASE | re.ASCII,
)

_DIGIT = re.compile("[0-9]")
_SAID = re.compile(r"[^\n.]{0,24}?[0-9]{2,4}")
"""The text behind `today is` where it is no date in one of the usual forms."""


class TopToken(NamedTuple):
    """Volatile text at the top of a prompt; positions are in characters."""

    rule: str
    start: int
    end: int


def rule_of(match: re.Match[str]) -> str:
    """Return the id of the rule that a token matches, as in `promptgroup lint`."""
    return str(match.lastgroup).replace("_", "-")


def on_top(text: str) -> list[TopToken]:
    """Return the volatile tokens at the top of a text, in order."""
    top_tokens: list[TopToken] = []
    if _DIGIT.search(text, 0, TOP_CHARACTERS) is None:
        return top_tokens
    at = 0
    while len(top_tokens) < TOP_TOKENS:
        match = TOKEN.search(text, at, TOP_CHARACTERS)
        if match is None:
            break
        # the token may extend beyond the characters that were searched
        match = TOKEN.match(text, match.start(), match.start() + _LONGEST) or match
        at = match.end()
        value = _SAID.match(text, at) if _DIGIT.search(match[0]) is None else None
        if value is not None:
            at = value.end()
        top_tokens.append(TopToken(rule_of(match), match.start(), at))
    return top_tokens
