"""Flags of `promptgroup explain`."""

import argparse
from pathlib import Path

from promptgroup_cli.base.cluster_flags import add_cluster, add_router
from promptgroup_cli.base.errors import exit_statuses
from promptgroup_cli.reach.files import STDIN

EPILOG = exit_statuses(
    "a replica would get the request",
    "the request would be refused, or would wait for room",
    "  promptgroup explain request.json -n chat -H 'x-session-id: 7'\n",
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Show the group, session, revision and replica that a request would get, and why. A router of the namespace\n"
        "answers; it places, counts and logs nothing."
    )
    parser.epilog = EPILOG
    parser.add_argument(
        "file",
        nargs="?",
        default=STDIN,
        metavar="FILE",
        help="body of the request (OpenAI's chat and text completions and responses, Anthropic's messages); - for "
        "standard input (default)",
    )
    add_cluster(parser)
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


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError("not a header, expected 'NAME: VALUE'")  # not repeated: it may be a password
    return name.strip().lower(), value.strip()
