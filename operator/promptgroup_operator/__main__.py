"""Run the operator, print its CRDs."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from promptgroup_operator.api import crd
from promptgroup_operator.base import settings


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="promptgroup-operator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run the operator against a cluster")
    settings.add_flags(run)
    schemas = commands.add_parser("crd", help="print the CustomResourceDefinitions, or write them to a folder")
    schemas.add_argument("--output", type=Path, metavar="DIR", help="write one file a CRD here")
    arguments = parser.parse_args()
    if arguments.command == "run":
        return _run(parser, arguments)
    return _crd(arguments.output)


def _run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    # kopf and the client take a second to import
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
    except metrics_server.PortError as error:
        print(f"promptgroup-operator run: {error}", file=sys.stderr)
        return 1
    return 0


def _crd(output: Path | None) -> int:
    for name, text in crd.render().items():
        if output is None:
            print("---")
            print(text, end="")
        else:
            output.mkdir(parents=True, exist_ok=True)
            (output / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
