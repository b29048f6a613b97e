"""Flags of `promptgroup lint`."""

import argparse

from promptgroup_cli.base.errors import exit_statuses
from promptgroup_cli.lint.finding import Severity
from promptgroup_cli.reach.inputs import InputFormat
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


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = "Find what breaks prefix caching. Prints no text of a prompt unless --show asks for it."
    parser.epilog = exit_statuses("no finding reaches --fail-on", "there are findings at or above --fail-on", EXAMPLES)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a prompt, a request body (OpenAI's chat and text completions and responses, Anthropic's messages), a log "
        "of bodies (JSON Lines), or PromptGroups; - for standard input",
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


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_SHOWN:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST_SHOWN}")
    return int(text)
