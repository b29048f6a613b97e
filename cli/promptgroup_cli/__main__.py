"""Plan, size and look at PromptGroups, and find what breaks prefix caching.

As a kubectl plugin the same program is called `kubectl promptgroup`.
"""

import argparse
import os
import sys
from pathlib import Path

from promptgroup_cli.commands import completion, explain, fingerprint, lint, plan, size, status, top

PLUGIN = "kubectl-promptgroup"
"""Name of the file that kubectl runs for `kubectl promptgroup`."""


def main() -> int:
    """Entry point; returns the exit status."""
    parser = _parser("kubectl promptgroup" if Path(sys.argv[0]).name == PLUGIN else "promptgroup")
    completion.answer_shell(parser)
    arguments = parser.parse_args()
    try:
        exit_status: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever reads has seen enough; what is buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return exit_status


def kubectl_complete() -> int:
    """Entry point of `kubectl_complete-promptgroup`, which kubectl runs for the words after `kubectl promptgroup`."""
    print("\n".join(completion.answer_kubectl(_parser("promptgroup"), sys.argv[1:])))
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (status, top, explain, plan, size, lint, fingerprint, completion):
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
