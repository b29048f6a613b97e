"""The report of `promptgroup lint` as text, JSON or SARIF 2.1.0. Does no I/O.

SARIF: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from promptgroup_cli.lint.finding import Finding
from promptgroup_cli.lint.length import TOKEN_BYTES
from promptgroup_cli.lint.linter import RULES, LintReport
from promptgroup_cli.lint.prefixes import PromptPrefix
from promptgroup_cli.lint.variants import EXAMINED
from promptgroup_cli.render.columns import columns

WIDTH = 120
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def text(report: LintReport) -> str:
    """Return the text for people."""
    return "\n".join(_lines(report))


def _lines(report: LintReport) -> Iterator[str]:
    explained: set[str] = set()
    for each in report.findings:
        place = each.place
        excerpt = f": {each.excerpt!r}" if each.excerpt else ""
        yield (
            f"{place.file}:{place.line}: {each.severity.name.lower()} {each.rule.id} at byte {place.offset} "
            f"of {place.field}: {each.message}{excerpt}"
        )
        if each.rule.id not in explained:
            explained.add(each.rule.id)
            for said in (f"why: {each.rule.why}", f"fix: {each.rule.way_out}"):
                yield textwrap.fill(said, WIDTH, initial_indent="    ", subsequent_indent="      ")
    yield from (f"{count} more findings of {rule}" for rule, count in report.more)
    if report.unexamined:
        texts = f"the log has more than {EXAMINED} texts"
        yield f"{report.unexamined} requests were not examined for volatile text: {texts}"
    if report.prompts > 1 and report.prefixes:
        yield from _table(report)
    counts = Counter(each.severity.name.lower() for each in report.findings)
    found = ", ".join(f"{count} {name}{'s' * (count > 1)}" for name, count in counts.items())
    looked = f"{report.prompts} prompt{'s' * (report.prompts != 1)} examined"
    yield f"{looked}: {found or 'nothing found'}"


_HEADS = ("hash", "bytes", "tokens", "requests", "share", "then")


def _table(report: LintReport) -> Iterator[str]:
    yield f"prefixes that requests share (tokens estimated at {TOKEN_BYTES} bytes each):"
    rows = [_HEADS, *map(_row, report.prefixes)]
    yield from (f"  {each}" for each in columns(rows, right=range(1, 5)))


def _row(prefix: PromptPrefix) -> Sequence[str]:
    parts = f"{prefix.prompts} prompts, from byte {prefix.offset} of {prefix.field}"
    then = "the same prompt" if prefix.prompts == 1 else parts
    return prefix.hash, f"{prefix.length}", f"{prefix.tokens}", f"{prefix.requests}", f"{prefix.share:.0%}", then


def document(report: LintReport) -> str:
    """Return the JSON for programs; docs/how-to/cli.md describes it."""
    return json.dumps(
        {
            "prompts": report.prompts,
            "findings": [_finding(each) for each in report.findings],
            "more": dict(report.more),
            "prefixes": [_prefix(each) for each in report.prefixes],
            "unexamined": report.unexamined,
        },
        indent=2,
    )


def _finding(finding: Finding) -> dict[str, object]:
    place = finding.place
    found: dict[str, object] = {
        "rule": finding.rule.id,
        "severity": finding.severity.name.lower(),
        "file": place.file,
        "line": place.line,
        "field": place.field,
        "offset": place.offset,
        "message": finding.message,
        "why": finding.rule.why,
        "wayOut": finding.rule.way_out,
        "requests": finding.requests,
    }
    return found | ({"excerpt": finding.excerpt} if finding.excerpt else {})


def _prefix(prefix: PromptPrefix) -> dict[str, object]:
    return {
        "model": prefix.model,
        "hash": prefix.hash,
        "bytes": prefix.length,
        "tokens": prefix.tokens,
        "requests": prefix.requests,
        "share": round(prefix.share, 4),
        "prompts": prefix.prompts,
        "field": prefix.field,
        "offset": prefix.offset,
    }


def sarif(report: LintReport) -> str:
    """Return SARIF for code scanning."""
    rules = [
        {
            "id": each.id,
            "shortDescription": {"text": each.title},
            "fullDescription": {"text": f"{each.why}."},
            "help": {"text": each.way_out},
            "defaultConfiguration": {"level": each.severity.name.lower()},
        }
        for each in RULES
    ]
    results = [
        {
            "ruleId": each.rule.id,
            "level": each.severity.name.lower(),
            "message": {"text": f"{each.message} (byte {each.place.offset} of {each.place.field})"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": each.place.file},
                        "region": {"startLine": each.place.line},
                    }
                }
            ],
        }
        for each in report.findings
    ]
    run = {"tool": {"driver": {"name": "promptgroup-lint", "rules": rules}}, "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


FORMS: Mapping[str, Callable[[LintReport], str]] = {"text": text, "json": document, "sarif": sarif}
