"""Prompts too short to be cached: an engine caches whole blocks."""

from collections.abc import Iterator

from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.subject import LintSubject, size
from promptgroup_router.apis.request import ApiKind

SHORT_PREFIX = Rule(
    "short-prefix",
    Severity.WARNING,
    "a prompt shorter than one cache block",
    "engines cache whole blocks: nothing of it is found on its own",
    "nothing to mend: a PromptGroup does not pay for this prompt",
)
NO_PREFIX = Rule(
    "no-prefix",
    Severity.NOTE,
    "requests without system text and tools",
    "they share nothing but what users happen to say alike",
    "send instructions as the first message, with the role system",
)
RULES = (SHORT_PREFIX, NO_PREFIX)

TOKEN_BYTES = 4
"""Bytes a token, an estimate: of English. Code, Chinese and JSON have 2 to 3: their prompts are longer in tokens."""


def tokens(length: int) -> int:
    """Tokens of so many bytes, an estimate."""
    return length // TOKEN_BYTES


class Length:
    """The lengths of all prompts seen."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._short: dict[tuple[str, int], tuple[FindingPlace, int]] = {}
        """(file, bytes) → first place, requests; there are as many as a block has bytes."""

    def see(self, subject: LintSubject) -> None:
        """Whether a prompt fills a block."""
        if subject.ask is not None and subject.ask.kind is ApiKind.TEXT:
            return  # no field says where its prompt ends
        length = size(subject.system) + size(subject.tools)
        if tokens(length) < self._block:
            first = FindingPlace(
                subject.file, subject.line, "system" if subject.system or not subject.tools else "tools", 0
            )
            place, count = self._short.get((subject.file, length), (first, 0))
            self._short[subject.file, length] = (place, count + 1)

    def findings(self) -> Iterator[Finding]:
        """Prompts that are too short."""
        for (_, length), (place, count) in self._short.items():
            rule, said = NO_PREFIX, NO_PREFIX.title
            if length:
                rule = SHORT_PREFIX
                estimate = f"about {tokens(length)} tokens at {TOKEN_BYTES} bytes each"
                said = f"{length} bytes, {estimate}: a block has {self._block}"
            yield Finding(rule, rule.severity, place, said, count)
