"""Declared prompts compared with requests: the same text with another line end belongs to no group.

A request belongs to a group when it begins with the declared text, byte for byte. YAML's `system: |` ends a text with a
line end that most clients do not send: then none of their requests matches the group or hits its cached prompt.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import xxhash

from promptgroup_cli.lint import spelling
from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.subject import LintSubject, Origin

SENT_OTHERWISE = Rule(
    "sent-otherwise",
    Severity.ERROR,
    "a declared prompt that clients send with other blanks or line ends",
    "a request belongs to a group when it begins with the declared text, byte for byte: none of these does, and none "
    "finds its prompt in cache",
    "declare what is sent: `system: |-` ends without a line end, `system: |` with one",
)
RULES = (SENT_OTHERWISE,)

TRACKED = 4096
"""Different system texts of requests that are remembered."""


@dataclass(slots=True)
class _Sent:
    exact: int
    """Hash of the text."""
    trimmed: int
    """Hash of the text without blanks at its end: a request may continue after the declared text."""
    place: FindingPlace
    requests: int = 0


@dataclass(frozen=True, slots=True)
class _Declared:
    exact: int
    trimmed: int
    place: FindingPlace
    ends_line: bool


class SentOtherwise:
    """The system texts of requests and of declared prompts, in any order."""

    def __init__(self) -> None:
        self._sent: dict[int, dict[int, _Sent]] = {}
        """Form of a text with one blank between words → hash → the text."""
        self._count = 0
        self._declared: list[tuple[int, _Declared]] = []

    def see(self, subject: LintSubject) -> None:
        """Note a prompt."""
        text = subject.system
        if not text or subject.origin is Origin.PROMPT:
            return
        exact, trimmed = _hash(text), _hash(text.rstrip())
        form = _hash(spelling.blanks(spelling.characters(text)))
        place = subject.place("system", text, 0)
        if subject.ask is None:
            ends_line = text.endswith("\n")
            self._declared.append((form, _Declared(exact, trimmed, place, ends_line)))
            return
        forms = self._sent.setdefault(form, {}) if form in self._sent or self._count < TRACKED else {}
        if exact not in forms and self._count < TRACKED:
            self._count += 1
            forms[exact] = _Sent(exact, trimmed, place)
        if exact in forms:
            forms[exact].requests += 1

    def findings(self) -> Iterator[Finding]:
        """Yield the declared prompts that are sent otherwise."""
        for form, declared in self._declared:
            others = [
                item for item in self._sent.get(form, {}).values() if declared.exact not in (item.exact, item.trimmed)
            ]
            count = sum(other.requests for other in others)
            if not others:
                continue
            first = others[0].place
            subject = "other blanks or line ends"
            if declared.ends_line and all(other.trimmed == declared.trimmed for other in others):
                subject = "no line end, which `system: |` has written behind the declared prompt"
            result = f"{count} requests bring this prompt with {subject} (first in {first.file}:{first.line})"
            yield Finding(SENT_OTHERWISE, SENT_OTHERWISE.severity, declared.place, result, count)


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode(errors="surrogatepass"))
