"""Run the operator, or print its CustomResourceDefinitions."""

import argparse
import logging
import os
import sys
from pathlib import Path

from promptgroup_contract.command_line import Parser
from promptgroup_operator import __version__
from promptgroup_operator.base import settings
from promptgroup_operator.base.errors import ClusterError

CANNOT_START = 2
"""Exit status where the configuration does not allow a start, as argparse's own for a wrong flag."""


def main() -> int:
    """Run the command that the arguments name.

    Returns:
        The exit status: 0, 1 where a port is taken or the watches ended, 2 where the configuration is wrong.
    """
    parser = Parser(prog="promptgroup-operator", description=__doc__)
    parser.add_argument("--version", action="version", version=f"promptgroup-operator {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run the operator against a cluster")
    settings.add_flags(run)
    schemas = commands.add_parser("crd", help="print the CustomResourceDefinitions, or write them to a folder")
    schemas.add_argument("--output", type=Path, metavar="DIR", help="write one file for each CRD to this folder")
    arguments = parser.parse_args()
    if arguments.command == "run":
        return _run(run, arguments)
    try:
        return _crd(arguments.output)
    except OSError as error:  # of standard output: those of --output are reported where they arise
        # what is still buffered is discarded
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0  # the reader has seen enough (`crd | head`)
        print(f"promptgroup-operator crd: cannot write the output: {error.strerror}", file=sys.stderr)
        return CANNOT_START


def _run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    # Kopf and the Kubernetes client take a second to import.
    import asyncio  # noqa: PLC0415

    from promptgroup_operator import handlers  # noqa: PLC0415
    from promptgroup_operator.telemetry import metrics_server  # noqa: PLC0415

    try:
        chosen = settings.from_flags(arguments)
    except ValueError as error:
        parser.error(str(error))
    logging.basicConfig(level=chosen.log_level, format="%(asctime)s %(levelname)-7s %(name)s %(message)s")
    for library in ("kopf", "aiohttp.access"):
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        asyncio.run(handlers.run(chosen))
    except ClusterError as error:
        print(f"promptgroup-operator run: {error}", file=sys.stderr)
        return CANNOT_START
    except metrics_server.PortError as error:
        print(f"promptgroup-operator run: {error}", file=sys.stderr)
        return 1
    return 0


def _crd(output: Path | None) -> int:
    from promptgroup_operator.api import crd  # noqa: PLC0415 - the models take as long as they do in the operator

    for name, text in crd.render().items():
        if output is None:
            print("---")
            print(text, end="", flush=True)
            continue
        try:
            output.mkdir(parents=True, exist_ok=True)
            (output / name).write_text(text)
        except OSError as error:
            print(f"promptgroup-operator crd: cannot write to --output {output}: {error.strerror}", file=sys.stderr)
            return CANNOT_START
    return 0


if __name__ == "__main__":
    sys.exit(main())
