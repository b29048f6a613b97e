"""Command line: run the operator, plan without a cluster, print the CRDs, fingerprint a prompt."""

import argparse
import asyncio
import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from promptgroup_operator import crd, plancommand, settings
from promptgroup_router.contract.fingerprint import fingerprint


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="promptgroup-operator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run the operator against a cluster")
    settings.add_flags(run)
    planned = commands.add_parser("plan", help="print what would be done about a PromptGroup, without a cluster")
    plancommand.add_flags(planned)
    schemas = commands.add_parser("crd", help="print the CustomResourceDefinitions, or write them to a folder")
    schemas.add_argument("--output", type=Path, metavar="DIR", help="write one file a CRD here")
    hashed = commands.add_parser("fingerprint", help="print the fingerprint of a system prompt: what to pin")
    hashed.add_argument("system", type=Path, help="file with the system prompt, byte for byte; - for standard input")
    hashed.add_argument("--tools", type=Path, metavar="FILE", help="file with the tool definitions, a JSON list")
    arguments = parser.parse_args()
    match arguments.command:
        case "run":
            return _run(parser, arguments)
        case "plan":
            return _plan(arguments)
        case "crd":
            return _crd(arguments.output)
        case _:
            return _fingerprint(arguments.system, arguments.tools)


def _run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    from promptgroup_operator import exporter, handlers  # noqa: PLC0415 - kopf and the client take a second to import

    try:
        chosen = settings.from_flags(arguments)
    except ValueError as error:
        parser.error(str(error))
    logging.basicConfig(level=chosen.log_level, format="%(asctime)s %(levelname)-7s %(name)s %(message)s")
    for library in ("kopf", "aiohttp.access"):
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        asyncio.run(handlers.run(chosen))
    except exporter.PortError as error:
        print(f"promptgroup-operator run: {error}", file=sys.stderr)
        return 1
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    try:
        for line in plancommand.run(arguments, datetime.now(UTC).replace(microsecond=0)):
            print(line, flush=True)
    except plancommand.PlanError as error:
        print(f"promptgroup-operator plan: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # whoever reads has seen enough; what is buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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


def _fingerprint(system: Path, tools: Path | None) -> int:
    try:
        text = sys.stdin.read() if str(system) == "-" else system.read_bytes().decode()
        listed = json.loads(tools.read_text()) if tools is not None else []
    except (OSError, ValueError) as error:
        print(f"promptgroup-operator fingerprint: {error}", file=sys.stderr)
        return 1
    if not isinstance(listed, list):
        print(f"promptgroup-operator fingerprint: {tools} is not a JSON list of tools", file=sys.stderr)
        return 1
    print(fingerprint(text, listed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
