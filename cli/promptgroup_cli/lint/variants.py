"""Compares the texts of a log: groups those that are equal apart from volatile tokens and spelling.

A class of texts is identified by its normal form. Two things vary within a class: the tokens that differ between its
texts, and the steps of the normal form without which the texts would not be equal. Texts are compared by their hashes.

    text ─▶ tokens masked ─▶ characters ─▶ JSON keys ─▶ blanks ─▶ normal form
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import xxhash

from promptgroup_cli.base.text import counted
from promptgroup_cli.lint import keyorder, spelling, volatile
from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.subject import LintSubject
from promptgroup_cli.lint.volatile import VolatileToken

EXAMINED = 2048
"""Different texts that are examined, at about 2 ms each. Further texts of a log are counted and reported."""
STABLE = 10
"""Requests that agree on a token before it passes for static."""

STEPS: tuple[tuple[Callable[[str], str], Rule], ...] = (
    (spelling.characters, spelling.CHARACTERS_DIFFER),
    (keyorder.ordered, spelling.KEY_ORDER_DIFFERS),
    (spelling.blanks, spelling.BLANKS_DIFFER),
)
"""Steps of the normal form, and the rule of the finding where texts differ in one."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A token of a class, at its place in the first text."""

    token: VolatileToken
    place: FindingPlace
    rest: int
    """Bytes of the part after it."""
    excerpt: str


@dataclass(slots=True)
class _Class:
    """Texts with one normal form."""

    place: FindingPlace
    tokens: tuple[_Seen, ...]
    values: tuple[int, ...]
    """Hashes of the tokens."""
    without: tuple[int, ...]
    """Hashes of the forms that leave out one step each."""
    requests: int = 1
    texts: int = 1
    varied: set[int] = field(default_factory=set)
    """Tokens that differ in another text."""
    split: dict[int, FindingPlace] = field(default_factory=dict)
    """Steps without which another text differs → place of that text."""


class Variants:
    """The classes of all texts, separate for each log and part."""

    def __init__(self, show: int) -> None:
        self._show = show
        self._classes: dict[tuple[str, str, int], _Class] = {}
        self._by_hash: dict[tuple[str, str, int], _Class] = {}
        """Texts by their hash."""
        self._declared = 0
        self.unexamined = 0
        """Requests whose text was not examined."""

    def see(self, subject: LintSubject) -> bool:
        """Compare a prompt. Return True if one of its texts is new."""
        if subject.ask is None:
            self._declared += 1
        # a log's texts are compared with each other, declared prompts with none
        scope = subject.file if subject.ask is not None else f"\0{self._declared}"
        new = False
        for part, text in subject.texts():
            key = (scope, part, _hash(text))
            same = self._by_hash.get(key)
            if same is not None:
                same.requests += 1
            elif len(self._by_hash) >= EXAMINED:
                self.unexamined += 1
            else:
                self._by_hash[key] = self._classified(scope, subject, part, text)
                new = True
        return new

    def _classified(self, scope: str, subject: LintSubject, part: str, text: str) -> _Class:
        tokens = volatile.tokens(text)
        masked = _masked(text, tokens)
        normal = (scope, part, _hash(_formed(masked, None)))
        values = tuple(_hash(text[token.start : token.end]) for token in tokens)
        without = tuple(_hash(_formed(masked, left_out)) for left_out in range(len(STEPS)))
        result = self._classes.get(normal)
        if result is None:
            seen = tuple(self._seen(subject, part, text, token) for token in tokens)
            result = self._classes[normal] = _Class(subject.place(part, text, 0), seen, values, without)
            return result
        result.requests += 1
        result.texts += 1
        result.varied.update(i for i, (a, b) in enumerate(zip(result.values, values, strict=False)) if a != b)
        for step, (a, b) in enumerate(zip(result.without, without, strict=True)):
            if a != b:
                result.split.setdefault(step, subject.place(part, text, 0))
        return result

    def _seen(self, subject: LintSubject, part: str, text: str, token: VolatileToken) -> _Seen:
        place = subject.place(part, text, token.start)
        rest = len(text[token.end :].encode(errors="surrogatepass"))
        excerpt = "" if subject.secret else text[token.start : token.end][: self._show]
        return _Seen(token, place, rest, excerpt)

    def findings(self) -> Iterator[Finding]:
        """Yield findings about text that varies or looks volatile."""
        for item in self._classes.values():
            for index, seen in enumerate(item.tokens):
                yield _token(item, seen, index in item.varied)
            for step, place in item.split.items():
                rule = STEPS[step][1]
                text = f"{rule.title}: {item.place.file}:{item.place.line} has the same text otherwise"
                yield Finding(rule, rule.severity, place, text, item.requests)


def _token(result: _Class, seen: _Seen, varied: bool) -> Finding:
    rule, severity = seen.token.rule, seen.token.severity
    text = f"{rule.title}, followed by {counted(seen.rest, 'byte')}"
    if varied:
        severity = Severity.ERROR
        text += f"; {result.requests} requests bring {result.texts} versions of the text"
    elif result.requests >= STABLE and rule is not volatile.CURRENT_DATE:
        severity = Severity.NOTE
        text += f"; the same in all {result.requests} requests"
    return Finding(rule, severity, seen.place, text, result.requests, seen.excerpt)


def _masked(text: str, tokens: list[VolatileToken]) -> str:
    """Return the text with a mark in place of each token; a number stays a number, so that JSON stays JSON."""
    parts, done = [], 0
    for token in tokens:
        mark = "0" if text[token.start : token.end].isdigit() else f"\ue000{token.rule.id}\ue001"
        parts += [text[done : token.start], mark]
        done = token.end
    return "".join([*parts, text[done:]])


def _formed(text: str, left_out: int | None) -> str:
    for number, (step, _) in enumerate(STEPS):
        if number != left_out:
            text = step(text)
    return text


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode(errors="surrogatepass"))
