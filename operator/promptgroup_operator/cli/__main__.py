"""Plan and look at PromptGroups."""

import argparse
import sys

from promptgroup_operator.cli import explaincommand, size, statuscommand, topcommand


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="promptgroup", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    statuscommand.add(commands)
    topcommand.add(commands)
    explaincommand.add(commands)
    size.add(commands)
    arguments = parser.parse_args()
    status: int = arguments.run(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
