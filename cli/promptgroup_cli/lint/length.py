"""Prompts of which an engine caches nothing on their own: too short for a block, absent, or not at the start."""

from collections.abc import Iterator

from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.subject import LintSubject, Origin, size
from promptgroup_router.apis.request import ApiKind

SHORT_PREFIX = Rule(
    "short-prefix",
    Severity.WARNING,
    "a prompt shorter than one cache block",
    "engines cache whole blocks: nothing of it is found on its own",
    "no change is needed: this prompt is too short to profit from a PromptGroup",
)
NO_PREFIX = Rule(
    "no-prefix",
    Severity.NOTE,
    "requests without system text and tools",
    "such requests have no common beginning",
    "send instructions as the first message, with the role system",
)
EMPTY_PROMPT = Rule(
    "empty-prompt",
    Severity.WARNING,
    "a prompt without system text and tools",
    "there is nothing that an engine could keep, and no request matches it",
    "write the prompt, or name the file that has it",
)
LATE_SYSTEM = Rule(
    "late-system",
    Severity.WARNING,
    "a system message that is not the first message",
    "what stands in front of it differs between sessions, so that no two of them share it in a cache, and no "
    "PromptGroup matches the request",
    "send it as the first message",
)
RULES = (SHORT_PREFIX, EMPTY_PROMPT, NO_PREFIX, LATE_SYSTEM)

TOKEN_BYTES = 4
"""Bytes a token, an estimate: of English. Code, Chinese and JSON have 2 to 3: their prompts are longer in tokens."""


def tokens(length: int) -> int:
    """Return the tokens of so many bytes, an estimate."""
    return length // TOKEN_BYTES


class Length:
    """The lengths of all prompts."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._late: dict[str, tuple[FindingPlace, int]] = {}
        """File → first place, requests."""
        self._short: dict[tuple[str, int], tuple[FindingPlace, int]] = {}
        """(file, bytes) → first place, requests; there are as many as a block has bytes."""
        self._empty: list[FindingPlace] = []
        """Files of prompts that are empty."""

    def see(self, subject: LintSubject) -> None:
        """Note whether a prompt fills a block."""
        if subject.ask is not None and subject.ask.kind is ApiKind.TEXT:
            return  # no field says where its prompt ends
        if subject.late:
            first = FindingPlace(subject.file, subject.line, subject.late_field, 0)
            place, count = self._late.get(subject.file, (first, 0))
            self._late[subject.file] = (place, count + 1)
            return
        length = size(subject.system) + size(subject.tools)
        if not length and subject.origin is Origin.PROMPT:
            self._empty.append(FindingPlace(subject.file, subject.line, "system", 0))
        elif tokens(length) < self._block:
            first = FindingPlace(
                subject.file, subject.line, "system" if subject.system or not subject.tools else "tools", 0
            )
            place, count = self._short.get((subject.file, length), (first, 0))
            self._short[subject.file, length] = (place, count + 1)

    def findings(self) -> Iterator[Finding]:
        """Yield the prompts that are too short or too late."""
        for place, count in self._late.values():
            yield Finding(LATE_SYSTEM, LATE_SYSTEM.severity, place, LATE_SYSTEM.title, count)
        for place in self._empty:
            yield Finding(EMPTY_PROMPT, EMPTY_PROMPT.severity, place, EMPTY_PROMPT.title)
        for (_, length), (place, count) in self._short.items():
            rule, title = NO_PREFIX, NO_PREFIX.title
            if length:
                rule = SHORT_PREFIX
                estimate = f"about {tokens(length)} tokens at {TOKEN_BYTES} bytes each"
                title = f"{length} bytes, {estimate}: a block has {self._block}"
            yield Finding(rule, rule.severity, place, title, count)
