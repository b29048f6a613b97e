"""`promptgroup lint`: what breaks prefix caching in prompts, requests, PromptGroups and logs."""

import argparse
import sys
from collections.abc import Iterator

from promptgroup_cli.lint.finding import Severity
from promptgroup_cli.lint.linter import Linter
from promptgroup_cli.lint.subject import LintSubject, Origin, sent
from promptgroup_cli.reach import inputs, yaml_positions
from promptgroup_cli.reach.inputs import InputError, InputFormat, InputText
from promptgroup_cli.rehearsal import manifest
from promptgroup_cli.render import lint_output

EXAMPLE = """\
examples:
  promptgroup lint prompt.txt deploy/*.yaml                  # in CI
  promptgroup lint requests.jsonl --fail-on error            # a log: what really differs between requests
  promptgroup lint requests.jsonl -o sarif > lint.sarif      # for code scanning

exit status: 0 clean; 1 findings at or above --fail-on; 2 a file cannot be read.
"""

BLOCK_TOKENS = 16
"""vLLM's default block size."""
MOST_SHOWN = 10_000

_SEVERITIES = {each.name.lower(): each for each in Severity}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its flags."""
    parser = commands.add_parser(
        "lint",
        help="find what breaks prefix caching in prompts and logs",
        description="Find what breaks prefix caching. No text of a prompt is printed unless --show asks for it.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a prompt, a request body, a log of them (JSON Lines), or PromptGroups; - for standard input",
    )
    parser.add_argument("--as", dest="format", type=InputFormat, choices=tuple(InputFormat), help="what the files are")
    parser.add_argument(
        "--block-size", type=_natural, default=BLOCK_TOKENS, metavar="TOKENS", help="of a cache block; %(default)s"
    )
    parser.add_argument(
        "--fail-on",
        choices=tuple(_SEVERITIES),
        default="warning",
        help="lowest severity for exit status 1; %(default)s",
    )
    parser.add_argument(
        "--show",
        type=_natural,
        default=0,
        metavar="N",
        help="characters of volatile text that a finding may quote; none",
    )
    parser.add_argument("-o", "--output", choices=tuple(lint_output.FORMS), default="text", help="default: %(default)s")
    parser.set_defaults(run=lambda arguments: _run(parser.prog, arguments))


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_SHOWN:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {MOST_SHOWN}")
    return int(text)


def _run(prog: str, arguments: argparse.Namespace) -> int:
    linter = Linter(arguments.block_size, arguments.show)
    try:
        for name in arguments.files:
            _see(linter, name, arguments.format)
    except InputError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    report = linter.report()
    print(lint_output.FORMS[arguments.output](report))
    return 1 if report.worst is not None and report.worst >= _SEVERITIES[arguments.fail_on] else 0


def _see(linter: Linter, name: str, given: InputFormat | None) -> None:
    shown = inputs.shown(name)
    read = 0
    with inputs.opened(name, given) as content:
        if isinstance(content, InputText):
            for subject in _declared(shown, content):
                linter.see(subject)
            return
        problem = ""
        for request in content:
            if request.ask is not None:
                linter.see(sent(shown, request.line, request.ask))
                read += 1
            else:
                linter.unreadable(shown, request.line, request.problem)
                problem = problem or f"{shown}:{request.line}: {request.problem}"
    if not read:
        raise InputError(problem or f"{shown}: no request in it")


def _declared(shown: str, content: InputText) -> Iterator[LintSubject]:
    if content.format is InputFormat.PROMPT:
        yield LintSubject(shown, 1, Origin.PROMPT, "", content.content, "", lines=True)
        return
    try:
        found = manifest.prompts(content.content, "default")
    except manifest.ManifestError as error:
        raise InputError(f"{shown}: {error}") from None
    places = yaml_positions.systems(content.content, len(found))
    for each, (line, lines) in zip(found, places, strict=True):
        prompt = each.text.prompt
        yield LintSubject(
            shown, line, Origin.MANIFEST, "", prompt.system, prompt.tools, lines=lines, secret=each.text.secret
        )
