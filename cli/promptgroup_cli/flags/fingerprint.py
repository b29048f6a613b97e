"""Flags of `promptgroup fingerprint`."""

import argparse

from promptgroup_cli.base.errors import exit_statuses
from promptgroup_cli.reach.files import STDIN
from promptgroup_cli.reach.inputs import InputFormat

EPILOG = exit_statuses(
    "every prompt has a fingerprint, and with --check every pin is right",
    "a prompt is empty or not the first message, or --check finds a wrong pin",
    """\
  promptgroup fingerprint prompt.txt --tools tools.json
  promptgroup fingerprint --check deploy/*.yaml        # in CI: does each pin match its prompt?
""",
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = "Print the fingerprint of each prompt, which a PromptGroup may pin as spec.prompt.fingerprint."
    parser.epilog = EPILOG
    parser.add_argument(
        "files",
        nargs="*",
        default=[STDIN],
        metavar="FILE",
        help="a prompt, a request body (OpenAI's chat and text completions and responses, Anthropic's messages), a log "
        "of bodies (JSON Lines), or PromptGroups; - for standard input (default)",
    )
    parser.add_argument(
        "--as",
        dest="format",
        type=InputFormat,
        choices=tuple(InputFormat),
        help="format of the files (default: by name)",
    )
    parser.add_argument("--tools", metavar="FILE", help="tool definitions of a prompt: a JSON list")
    parser.add_argument("--check", action="store_true", help="compare with spec.prompt.fingerprint of PromptGroups")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="format of the output (default: %(default)s)"
    )
