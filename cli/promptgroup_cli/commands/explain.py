"""`promptgroup explain`: show where a request would go, by a running router or by a table file."""

import argparse
import json
from pathlib import Path

from promptgroup_cli.base.errors import ExitStatus, InputError, exit_statuses
from promptgroup_cli.base.flags import add_cluster, add_output, add_router, cluster_choice
from promptgroup_cli.base.text import columns, fact
from promptgroup_cli.reach.each_router import ODD, no_router
from promptgroup_cli.reach.explained import Document, candidates, explain_question, facts, parse_explanation
from promptgroup_cli.reach.files import STDIN, read_bytes, read_text
from promptgroup_contract.table import TableError

MOST_BYTES = 64 << 20
"""Limit of a request's body, above that of routers."""
TABLE_BYTES = 256 << 20
"""Limit of a table file: a thousand groups with prompts of 256 KiB each."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Show the group, session, revision and replica that a request would get, and why. A router of the namespace\n"
        "answers; it places, counts and logs nothing."
    )
    parser.epilog = exit_statuses(
        "a replica would get the request",
        "the request would be refused, or would wait for room",
        "  promptgroup explain request.json -n chat -H 'x-session-id: 7'\n",
    )
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
    add_output(parser)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError("not a header, expected 'NAME: VALUE'")  # not repeated: it may be a password
    return name.strip().lower(), value.strip()


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    question = explain_question(read_text(arguments.file, MOST_BYTES), dict(arguments.header))
    by, answer = _ask(arguments, question)
    explanation = parse_explanation(by, answer)
    try:
        text = table(explanation)
    except ODD:
        raise no_router(by) from None
    print(json.dumps(explanation, indent=2) if arguments.output == "json" else text)
    return ExitStatus.OK if explanation.get("choice") is not None else ExitStatus.NEGATIVE


def _ask(arguments: argparse.Namespace, question: bytes) -> tuple[str, bytes]:
    """Return who answers, and the answer."""
    if arguments.table is not None:
        from promptgroup_router.explain import explain_with_table, parse_explain_request  # noqa: PLC0415
        from promptgroup_router.feed import table_file  # noqa: PLC0415

        try:
            groups = table_file.parse(read_bytes(str(arguments.table), TABLE_BYTES), "the file")
        except TableError as error:
            raise InputError(f"--table {arguments.table}: {error}") from None
        except RecursionError:
            raise InputError(f"{arguments.table}: nested too deeply for a table") from None
        return f"table {arguments.table}", explain_with_table(groups, parse_explain_request(question))
    # these bring the clients of clusters and routers, which a table does without
    from promptgroup_cli.reach.connect import ClusterConnection, routers_at  # noqa: PLC0415

    if arguments.router is not None:
        ((name, request),) = routers_at([arguments.router]).items()
        return f"router {name}", request("/explain", question)
    with ClusterConnection(cluster_choice(arguments)) as cluster:
        name, request = min(cluster.routers(cluster.namespace).items())  # any: they agree
        return f"router {cluster.namespace}/{name}", request("/explain", question)


def table(result: Document) -> str:
    """Return the text for people."""
    lines = [line for name, text in facts(result) for line in fact(name, text)]
    rows = candidates(result)
    return "\n".join([*lines, "", *columns(rows)] if rows else lines)
