"""`promptgroup explain`: show where a request would go, by a running router or by a table file."""

import argparse
import json

from promptgroup_cli.base.cluster_choice import cluster_choice
from promptgroup_cli.base.errors import ExitStatus, InputError
from promptgroup_cli.reach.each_router import ODD, no_router
from promptgroup_cli.reach.explained import explain_question, parse_explanation
from promptgroup_cli.reach.files import read_bytes, read_text
from promptgroup_cli.render import explain_output
from promptgroup_router.contract.table import TableError
from promptgroup_router.explain import explain_with_table, parse_explain_request
from promptgroup_router.feed import table_file

MOST_BYTES = 64 << 20
"""Limit of a request's body: above what routers take."""
TABLE_BYTES = 256 << 20
"""Limit of a table file: a thousand groups with prompts of 256 KiB each."""


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    question = explain_question(read_text(arguments.file, MOST_BYTES), dict(arguments.header))
    by, answer = _ask(arguments, question)
    told = parse_explanation(by, answer)
    try:
        text = explain_output.table(told)
    except ODD:
        raise no_router(by) from None
    print(json.dumps(told, indent=2) if arguments.output == "json" else text)
    return ExitStatus.OK if told.get("choice") is not None else ExitStatus.NEGATIVE


def _ask(arguments: argparse.Namespace, question: bytes) -> tuple[str, bytes]:
    """Return who answers, and the answer."""
    if arguments.table is not None:
        try:
            table = table_file.parse(read_bytes(str(arguments.table), TABLE_BYTES), "the file")
        except TableError as error:
            raise InputError(f"--table {arguments.table}: {error}") from None
        except RecursionError:
            raise InputError(f"{arguments.table}: nested too deeply for a table") from None
        return f"table {arguments.table}", explain_with_table(table, parse_explain_request(question))
    # these bring the clients of clusters and routers, which a table does without
    from promptgroup_cli.reach.connect import ClusterConnection, routers_at  # noqa: PLC0415

    if arguments.router is not None:
        ((name, ask),) = routers_at([arguments.router]).items()
        return f"router {name}", ask("/explain", question)
    with ClusterConnection(cluster_choice(arguments)) as cluster:
        name, ask = min(cluster.routers(cluster.namespace).items())  # any: they agree
        return f"router {cluster.namespace}/{name}", ask("/explain", question)
