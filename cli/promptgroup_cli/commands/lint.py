"""`promptgroup lint`: find what breaks prefix caching in prompts, requests, PromptGroups and logs."""

import argparse
from collections.abc import Iterator

from promptgroup_cli.base.errors import ExitStatus, InputError, exit_statuses
from promptgroup_cli.lint.finding import Severity
from promptgroup_cli.lint.linter import Linter
from promptgroup_cli.lint.subject import LintSubject, Origin, sent
from promptgroup_cli.reach import inputs, yaml_positions
from promptgroup_cli.reach.files import shown
from promptgroup_cli.reach.inputs import InputFormat, InputText
from promptgroup_cli.render import lint_output

EXAMPLES = """\
  promptgroup lint prompt.txt deploy/*.yaml                  # in CI
  promptgroup lint requests.jsonl --fail-on error            # a log shows what differs between requests
  promptgroup lint requests.jsonl -o sarif > lint.sarif      # for code scanning
"""

BLOCK_TOKENS = 16
"""Default block size of vLLM."""
MOST_SHOWN = 10_000
"""Most characters of --show, and most tokens of --block-size."""

_SEVERITIES = {each.name.lower(): each for each in Severity}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags and its way to run."""
    parser.description = "Find what breaks prefix caching. Prints no text of a prompt unless --show asks for it."
    parser.epilog = exit_statuses("no finding reaches --fail-on", "there are findings at or above --fail-on", EXAMPLES)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a prompt, a request body of OpenAI's or Anthropic's API, a log of bodies (JSON Lines), or PromptGroups; "
        "- for standard input",
    )
    parser.add_argument(
        "--as",
        dest="format",
        type=InputFormat,
        choices=tuple(InputFormat),
        help="format of the files (default: by name)",
    )
    parser.add_argument(
        "--block-size",
        type=_natural,
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
        type=_natural,
        default=0,
        metavar="N",
        help="quote up to N characters of volatile text in a finding (default: none)",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=tuple(lint_output.FORMS),
        default="text",
        help="format of the output (default: %(default)s)",
    )
    parser.set_defaults(run=_run)


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_SHOWN:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST_SHOWN}")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    linter = Linter(arguments.block_size, arguments.show)
    for name in arguments.files:
        _see(linter, name, arguments.format)
    report = linter.report()
    print(lint_output.FORMS[arguments.output](report))
    failed = report.worst is not None and report.worst >= _SEVERITIES[arguments.fail_on]
    return ExitStatus.NEGATIVE if failed else ExitStatus.OK


def _see(linter: Linter, name: str, given: InputFormat | None) -> None:
    """Lint one file."""
    read = 0
    with inputs.opened(name, given) as content:
        if isinstance(content, InputText):
            for subject in _declared(shown(name), content):
                linter.see(subject)
            return
        problem = ""
        for request in content:
            if request.ask is not None:
                linter.see(sent(shown(name), request.line, request.ask))
                read += 1
            else:
                linter.unreadable(shown(name), request.line, request.problem)
                problem = problem or f"{shown(name)}:{request.line}: {request.problem}"
    if not read:
        raise InputError(problem or f"{shown(name)}: it has no request")


def _declared(name: str, content: InputText) -> Iterator[LintSubject]:
    """Yield the declared prompts of a file."""
    if content.format is InputFormat.PROMPT:
        yield LintSubject(name, 1, Origin.PROMPT, "", content.content, "", lines=True)
        return
    # the models of the CRD take a third of a second to import, which prompts and requests should not wait for
    from promptgroup_cli.rehearsal import manifest  # noqa: PLC0415

    try:
        found = manifest.prompts(content.content, "default")
    except manifest.ManifestError as error:
        raise InputError(f"{name}: {error}") from None
    places = yaml_positions.systems(content.content, len(found))
    for each, (line, lines) in zip(found, places, strict=True):
        prompt = each.text.prompt
        yield LintSubject(
            name, line, Origin.MANIFEST, "", prompt.system, prompt.tools, lines=lines, secret=each.text.secret
        )
