"""`promptgroup explain`: show where a request would go, by a running router or by a table file."""

import argparse
import json
from pathlib import Path

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import ExitStatus, InputError, ReachError, exit_statuses
from promptgroup_cli.reach.connect import ClusterConnection, add_namespace, add_router, router_at
from promptgroup_cli.reach.files import STDIN, read_text
from promptgroup_cli.reach.inputs import path_of
from promptgroup_cli.render import explain_output
from promptgroup_router.apis.request import CHAT_PATH
from promptgroup_router.contract.table import TableError
from promptgroup_router.explain import explain_with_table, parse_explain_request
from promptgroup_router.feed import table_file

MOST_BYTES = 64 << 20
"""Limit of a request's body: above what routers take."""

EPILOG = exit_statuses(
    "a replica would get the request",
    "the request would be refused, or would wait for room",
    "  promptgroup explain request.json -n chat -H 'x-session-id: 7'\n",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags and its way to run."""
    parser.description = (
        "Show the group, session, revision and replica that a request would get, and why. A router of the namespace\n"
        "answers; it places, counts and logs nothing."
    )
    parser.epilog = EPILOG
    parser.add_argument(
        "file", nargs="?", default=STDIN, metavar="FILE", help="body of the request; - for standard input"
    )
    add_namespace(parser)
    source = parser.add_mutually_exclusive_group()
    add_router(source)
    source.add_argument(
        "--table", type=Path, metavar="FILE", help="answer from a table file, as routers take it, without a cluster"
    )
    parser.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        type=_header,
        metavar="'NAME: VALUE'",
        help="header of the request",
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="format of the output (default: %(default)s)"
    )
    parser.set_defaults(run=_run)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError("not a header, expected 'NAME: VALUE'")  # not repeated: it may be a password
    return name.strip().lower(), value.strip()


def _run(arguments: argparse.Namespace) -> int:
    question = _question(arguments.file, dict(arguments.header))
    by, answer = _ask(arguments, question)
    try:
        told = {"by": by, **bounded_json.parse(answer)}
    except (JsonError, TypeError):
        raise ReachError(f"{by} does not answer as a router does: is it an admin port (9090)?") from None
    print(json.dumps(told, indent=2) if arguments.output == "json" else explain_output.table(told))
    return ExitStatus.OK if told.get("choice") is not None else ExitStatus.NEGATIVE


def _question(file: str, headers: dict[str, str]) -> bytes:
    """Return the question for a router; the body tells which API it is of."""
    body = read_text(file, MOST_BYTES)
    try:
        parsed = bounded_json.parse(body.encode())
    except JsonError:
        parsed = None  # the router says what is wrong
    path = path_of(parsed) if isinstance(parsed, dict) else CHAT_PATH
    return json.dumps({"path": path.decode(), "headers": headers, "body": body}).encode()


def _ask(arguments: argparse.Namespace, question: bytes) -> tuple[str, bytes]:
    """Return who answers, and the answer."""
    if arguments.table is not None:
        try:
            table = table_file.read(arguments.table)
        except TableError as error:
            raise InputError(str(error)) from None
        except (OSError, ValueError) as error:
            raise InputError(f"{arguments.table}: {getattr(error, 'strerror', None) or error}") from None
        except RecursionError:
            raise InputError(f"{arguments.table}: nested too deeply for a table") from None
        return f"table {arguments.table}", explain_with_table(table, parse_explain_request(question))
    if arguments.router is not None:
        return f"router {arguments.router}", router_at(arguments.router)("/explain", question)
    with ClusterConnection(arguments.namespace) as cluster:
        name, ask = min(cluster.routers(cluster.namespace).items())  # any: they agree
        return f"router {cluster.namespace}/{name}", ask("/explain", question)
