"""`promptgroup lint`: find what breaks prefix caching in prompts, requests, PromptGroups and logs."""

import argparse
import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from promptgroup_cli.base.errors import ExitStatus, InputError, exit_statuses
from promptgroup_cli.base.flags import add_output, whole_number
from promptgroup_cli.base.text import columns, counted
from promptgroup_cli.lint.finding import Finding, Severity
from promptgroup_cli.lint.length import TOKEN_BYTES
from promptgroup_cli.lint.linter import RULES, Linter, LintReport
from promptgroup_cli.lint.prefixes import PromptPrefix
from promptgroup_cli.lint.subject import LintSubject, Origin, sent_prompt
from promptgroup_cli.lint.variants import EXAMINED
from promptgroup_cli.reach import inputs
from promptgroup_cli.reach.files import shown
from promptgroup_cli.reach.inputs import InputFormat, InputText, add_files

EXAMPLES = """\
  promptgroup lint prompt.txt deploy/*.yaml                  # in CI
  promptgroup lint requests.jsonl --fail-on error            # a log shows what differs between requests
  promptgroup lint requests.jsonl -o sarif > lint.sarif      # for code scanning
"""

BLOCK_TOKENS = 16
"""Default block size of vLLM."""
MOST_SHOWN = 10_000
"""Most characters of --show, and most tokens of --block-size."""
WIDTH = 120
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

_SEVERITIES = {severity.name.lower(): severity for severity in Severity}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = "Find what breaks prefix caching. Prints no text of a prompt unless --show asks for it."
    parser.epilog = exit_statuses("no finding reaches --fail-on", "there are findings at or above --fail-on", EXAMPLES)
    add_files(parser)
    parser.add_argument(
        "--block-size",
        type=whole_number(1, MOST_SHOWN),
        default=BLOCK_TOKENS,
        metavar="TOKENS",
        help="tokens of a cache block (default: %(default)s)",
    )
    parser.add_argument(
        "--fail-on",
        choices=tuple(_SEVERITIES),
        default="warning",
        help="lowest severity that makes the exit status 1 (default: %(default)s)",
    )
    parser.add_argument(
        "--show",
        type=whole_number(1, MOST_SHOWN),
        default=0,
        metavar="N",
        help="quote up to N characters of volatile text in a finding (default: none)",
    )
    add_output(parser, *FORMS)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    linter = Linter(arguments.block_size, arguments.show)
    for name in arguments.files:
        _see(linter, name, arguments.format)
    report = linter.report()
    print(FORMS[arguments.output](report))
    failed = report.worst is not None and report.worst >= Severity[arguments.fail_on.upper()]
    return ExitStatus.NEGATIVE if failed else ExitStatus.OK


def _see(linter: Linter, name: str, given: InputFormat | None) -> None:
    """Lint one file."""
    read = 0
    with inputs.opened(name, given) as content:
        if isinstance(content, InputText):
            _see_declared(linter, shown(name), content)
            return
        problem = ""
        for request in content:
            if request.ask is not None:
                linter.see(sent_prompt(shown(name), request.line, request.ask))
                read += 1
            else:
                linter.unreadable(shown(name), request.line, request.problem)
                problem = problem or f"{shown(name)}:{request.line}: {request.problem}"
    if not read:
        raise InputError(problem or f"{shown(name)}: it has no request")


def _see_declared(linter: Linter, name: str, content: InputText) -> None:
    """Lint the declared prompts of a file, and the pod templates beside them."""
    if content.format is InputFormat.PROMPT:
        linter.see(LintSubject(name, 1, Origin.PROMPT, "", content.content, "", lines=True))
        return
    # YAML and the models of the CRD take a third of a second to import, which prompts and requests do not wait for
    from promptgroup_cli.rehearsal import manifest, yaml_positions  # noqa: PLC0415

    try:
        result = manifest.declared_prompts(content.content, "default")
    except manifest.ManifestError as error:
        raise InputError(f"{name}: {error}") from None
    places = yaml_positions.system_places(content.content, len(result))
    templates = yaml_positions.template_lines(content.content, len(result))
    for declared, (line, lines), template in zip(result, places, templates, strict=True):
        prompt, secret = declared.text.prompt, declared.text.secret
        if prompt.size:  # a host may declare none
            linter.see(
                LintSubject(name, line, Origin.MANIFEST, "", prompt.system, prompt.tools, lines=lines, secret=secret)
            )
        faults, nulls = manifest.template_faults(declared.template), manifest.template_nulls(declared.template)
        linter.template(name, template, faults, nulls)


def text(report: LintReport) -> str:
    """Return the text for people."""
    return "\n".join(_lines(report))


def _lines(report: LintReport) -> Iterator[str]:
    explained: set[str] = set()
    for finding in report.findings:
        place = finding.place
        excerpt = f": {finding.excerpt!r}" if finding.excerpt else ""
        yield (
            f"{place.file}:{place.line}: {finding.severity.name.lower()} {finding.rule.id} at byte {place.offset} "
            f"of {place.field}: {finding.message}{excerpt}"
        )
        if finding.rule.id not in explained:
            explained.add(finding.rule.id)
            for value in (f"why: {finding.rule.why}", f"fix: {finding.rule.way_out}"):
                yield textwrap.fill(value, WIDTH, initial_indent="    ", subsequent_indent="      ")
    yield from (f"{count} more findings of {rule}" for rule, count in report.more)
    if report.unexamined:
        texts = f"the log has more than {EXAMINED} texts"
        yield f"{report.unexamined} requests were not examined for volatile text: {texts}"
    if report.prompts > 1 and report.prefixes:
        yield from _table(report)
    counts = Counter(finding.severity.name.lower() for finding in report.findings)
    result = ", ".join(counted(count, name) for name, count in counts.items())
    looked = f"{counted(report.prompts, 'prompt')} examined"
    yield f"{looked}: {result or 'nothing found'}"


_HEADS = ("hash", "bytes", "tokens", "requests", "share", "then")


def _table(report: LintReport) -> Iterator[str]:
    yield f"prefixes that requests share (tokens estimated at {TOKEN_BYTES} bytes each):"
    rows = [_HEADS, *map(_row, report.prefixes)]
    yield from (f"  {column}" for column in columns(rows, right=range(1, 5)))


def _row(prefix: PromptPrefix) -> Sequence[str]:
    parts = f"{prefix.prompts} prompts, from byte {prefix.offset} of {prefix.field}"
    then = "the same prompt" if prefix.prompts == 1 else parts
    return prefix.hash, f"{prefix.length}", f"{prefix.tokens}", f"{prefix.requests}", f"{prefix.share:.0%}", then


def document(report: LintReport) -> str:
    """Return the JSON for programs; docs/how-to/cli.md describes it."""
    return json.dumps(
        {
            "prompts": report.prompts,
            "findings": [_finding(finding) for finding in report.findings],
            "more": dict(report.more),
            "prefixes": [_prefix(prefix) for prefix in report.prefixes],
            "unexamined": report.unexamined,
        },
        indent=2,
    )


def _finding(finding: Finding) -> dict[str, object]:
    place = finding.place
    result: dict[str, object] = {
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
    return result | ({"excerpt": finding.excerpt} if finding.excerpt else {})


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
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": f"{rule.why}."},
            "help": {"text": rule.way_out},
            "defaultConfiguration": {"level": rule.severity.name.lower()},
        }
        for rule in RULES
    ]
    results = [
        {
            "ruleId": finding.rule.id,
            "level": finding.severity.name.lower(),
            "message": {"text": f"{finding.message} (byte {finding.place.offset} of {finding.place.field})"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": finding.place.file},
                        "region": {"startLine": finding.place.line},
                    }
                }
            ],
        }
        for finding in report.findings
    ]
    run = {"tool": {"driver": {"name": "promptgroup-lint", "rules": rules}}, "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


FORMS: Mapping[str, Callable[[LintReport], str]] = {"text": text, "json": document, "sarif": sarif}
