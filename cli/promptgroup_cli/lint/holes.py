"""Placeholders of templates that are not filled in: `{{now}}`, `${USER}`, `%(name)s`, `{name}`.

In a file they mean that the text is different when it is sent. An operator fills in nothing, so the prompt of a
PromptGroup must be the text that requests contain. In a request they are plain text, the same every time.
"""

import re
from collections.abc import Iterator
from itertools import islice

from promptgroup_cli.lint.finding import Finding, Rule, Severity
from promptgroup_cli.lint.subject import LintSubject, Origin

TEMPLATE_HOLE = Rule(
    "template-hole",
    Severity.WARNING,
    "a hole of a template",
    "what fills it may differ between requests, and then voids the cache of all that follows; and requests with the "
    "hole filled do not match a PromptGroup, whose prompt is compared as it stands",
    "fill it before the prompt is declared, or move it into the last user message",
)
RULES = (TEMPLATE_HOLE,)

HOLES = 64
"""Placeholders of one text that are reported: more of them add nothing."""

_VOLATILE = frozenset(
    {"now", "date", "time", "datetime", "timestamp", "today", "day", "random", "nonce", "id", "uuid", "guid"}
    | {"user", "username", "customer", "session", "request"}
)
"""Words in a placeholder's name whose value differs between requests."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")

_CERTAIN = (
    r"\{\{[^{}\n]{1,80}\}\}|\{%[^%\n]{1,120}%\}|<%[=-]?[^%\n]{1,80}%>|\$\{[^{}\n]{1,80}\}|%\([A-Za-z_]\w*\)[sdifr]|"
    r"\$[A-Z][A-Z0-9_]{2,}\b"
)
_LIKELY = r"(?<![\w\\{}$])\{[A-Za-z_][\w.]*(?:\[\w*\])?(?:![rsa])?(?::[^{}\n\"' ]{0,20})?\}(?!\})"
"""Placeholders of f-strings; instructions about the form of answers look the same."""
_HOLE = re.compile(f"(?P<certain>{_CERTAIN})|(?P<likely>{_LIKELY})")


def findings(subject: LintSubject, show: int) -> Iterator[Finding]:
    """Yield the placeholders in a prompt; `show` is the number of bytes of text that a finding quotes."""
    for field, text in subject.texts():
        for match in islice(_HOLE.finditer(text), HOLES):
            severity, value = _judged(subject.origin, match)
            yield Finding(
                TEMPLATE_HOLE,
                severity,
                subject.place(field, text, match.start()),
                value,
                excerpt="" if subject.secret else text[match.start() : match.end()][:show],
            )


def _judged(origin: Origin, match: "re.Match[str]") -> tuple[Severity, str]:
    if origin is Origin.REQUEST:
        return Severity.NOTE, "a hole of a template was sent as it stands"
    if not _VOLATILE.isdisjoint(word.lower() for word in _WORD.findall(match[0])):
        return Severity.ERROR, "a hole of a template whose name says that it differs between requests"
    if match["likely"] is not None:
        return Severity.NOTE, "braces around a name: a hole of a template, if something fills it"
    return TEMPLATE_HOLE.severity, "a hole of a template"
