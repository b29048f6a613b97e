"""`--version` of the command line and of each command."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from promptgroup_cli.base.errors import ExitStatus

DISTRIBUTION = "promptgroup"
"""Name of the installed package, whose version `--version` prints."""


class VersionAction(argparse.Action):
    """`--version`: print the version of the package and end the process."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="print the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the version."""
        from importlib import metadata  # noqa: PLC0415 - takes a tenth of the time that a command may take to start

        print(f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)}")
        parser.exit(ExitStatus.OK)
