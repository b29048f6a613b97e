"""Runs all rules over all prompts, one at a time; its memory is bounded, whatever the length of a log."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from promptgroup_cli.lint import holes, length, salting, sent_otherwise, spelling, tooling, volatile
from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.length import Length
from promptgroup_cli.lint.messages import breakpoints, ordering, starts
from promptgroup_cli.lint.messages.breakpoints import Breakpoints
from promptgroup_cli.lint.messages.ordering import Ordering
from promptgroup_cli.lint.messages.starts import Starts
from promptgroup_cli.lint.prefixes import RULES as PREFIX_RULES
from promptgroup_cli.lint.prefixes import Prefixes, PromptPrefix
from promptgroup_cli.lint.salting import Salting
from promptgroup_cli.lint.sent_otherwise import SentOtherwise
from promptgroup_cli.lint.subject import LintSubject
from promptgroup_cli.lint.tooling import Tooling
from promptgroup_cli.lint.variants import Variants

UNREADABLE = Rule(
    "unreadable-request",
    Severity.WARNING,
    "a line of a log that is not a request",
    "the line is skipped",
    "one JSON body a line, or a record with the body under a key such as `body` or `request`",
)

TEMPLATE_TYPES = Rule(
    "template-types",
    Severity.ERROR,
    "a value of a wrong type, or a name that Kubernetes does not know, in spec.engine.template",
    "the engines that it asks for are never made",
    "write the type and the name that the message asks for",
)
TEMPLATE_NULL = Rule(
    "template-null",
    Severity.WARNING,
    "a null in spec.engine.template",
    "`kubectl apply` drops it before it sends the file, and other clients do not: one file makes two kinds of engines",
    "write a value, or use `$patch: delete` or `$patch: replace` in a map",
)

RULES: tuple[Rule, ...] = (
    *sent_otherwise.RULES,
    *volatile.RULES,
    *holes.RULES,
    *spelling.RULES,
    *tooling.RULES,
    *PREFIX_RULES,
    *length.RULES,
    *starts.RULES,
    *ordering.RULES,
    *breakpoints.RULES,
    *salting.RULES,
    UNREADABLE,
    TEMPLATE_TYPES,
    TEMPLATE_NULL,
)
"""The registry. docs/how-to/cli.md has a line for each."""

MOST_FINDINGS = 20
"""Findings of one rule that are listed; the number of further ones is reported."""


@dataclass(frozen=True, slots=True)
class LintReport:
    """The result of a run."""

    prompts: int
    """Prompts and requests that were checked."""
    findings: tuple[Finding, ...]
    """Worst first."""
    more: tuple[tuple[str, int], ...]
    """(rule, findings of it that are left out)."""
    worst: Severity | None
    """Worst severity of all findings, including those left out."""
    prefixes: tuple[PromptPrefix, ...]
    unexamined: int
    """Requests whose text was not examined for volatile text, since the log has too many different ones."""


class Linter:
    """One run over one or more files."""

    def __init__(self, block: int, show: int = 0) -> None:
        """Start a run.

        Args:
            block: tokens of a cache block.
            show: bytes of a prompt that a finding may quote.
        """
        self._show = show
        self._prompts = 0
        self._findings: list[Finding] = []
        self._counts: Counter[tuple[str, Severity]] = Counter()
        self._variants = Variants(show)
        self._prefixes = Prefixes(block)
        self._across = (
            self._prefixes,
            Length(block),
            Tooling(),
            Starts(),
            Salting(),
            SentOtherwise(),
            Ordering(),
            Breakpoints(),
        )

    def see(self, subject: LintSubject) -> None:
        """Check a prompt."""
        self._prompts += 1
        if self._variants.see(subject):
            self._keep(holes.findings(subject, self._show))
            self._keep(spelling.findings(subject))
        for item in self._across:
            item.see(subject)

    def unreadable(self, file: str, line: int, problem: str) -> None:
        """Record a line of a log that is not a request."""
        self._keep([Finding(UNREADABLE, UNREADABLE.severity, FindingPlace(file, line, "body", 0), problem)])

    def template(self, file: str, line: int, faults: Sequence[str], nulls: Sequence[str]) -> None:
        """Record the faults of the pod template of a PromptGroup."""
        for rule, result in ((TEMPLATE_TYPES, faults), (TEMPLATE_NULL, nulls)):
            place = FindingPlace(file, line, "spec.engine.template", 0)
            self._keep([Finding(rule, rule.severity, place, item) for item in result])

    def report(self) -> LintReport:
        """End the run and return its findings."""
        for item in (self._variants, *self._across):
            self._keep(item.findings())
        self._findings.sort(
            key=lambda finding: (-finding.severity, -finding.requests, finding.place.file, finding.place.line)
        )
        more = Counter[str]()
        for (rule, _), count in self._counts.items():
            more[rule] += count
        more.subtract(finding.rule.id for finding in self._findings)
        return LintReport(
            self._prompts,
            tuple(self._findings),
            tuple((rule, count) for rule, count in more.items() if count),
            max((severity for _, severity in self._counts), default=None),
            tuple(self._prefixes.table()),
            self._variants.unexamined,
        )

    def _keep(self, findings: "Iterator[Finding] | list[Finding]") -> None:
        """Store the first findings of each rule and severity."""
        for finding in findings:
            kind = (finding.rule.id, finding.severity)
            self._counts[kind] += 1
            if self._counts[kind] <= MOST_FINDINGS:
                self._findings.append(finding)
