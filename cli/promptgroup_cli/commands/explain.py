"""`promptgroup explain`: where a request would go, and why, by a router that runs or by a table."""

import argparse
import json
import sys
from pathlib import Path

from promptgroup_cli.reach.connect import ClusterConnection, ReachError, add_namespace, add_router, router_at
from promptgroup_cli.render import explain_output
from promptgroup_router.contract.table import TableError
from promptgroup_router.explain import explain_with_table, parse_explain_request
from promptgroup_router.feed import table_file

CHAT_PATH, TEXT_PATH = "/v1/chat/completions", "/v1/completions"

EPILOG = """\
example:
  promptgroup explain request.json -n chat -H 'x-session-id: 7'

Nothing is placed, counted or logged. Exit status: 0 when a replica would get the request, 1 when it would be refused or
wait for room, 2 when nobody could be asked.
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its flags."""
    parser = commands.add_parser(
        "explain",
        help="where a request would go, and why",
        description="The group, the session, the revision and the replica of a request, and why.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="the request's body; - for standard input")
    add_namespace(parser)
    source = parser.add_mutually_exclusive_group()
    add_router(source)
    source.add_argument("--table", type=Path, metavar="FILE", help="a table file, as the router's --table: no cluster")
    parser.add_argument(
        "-H", "--header", action="append", default=[], type=_header, metavar="'NAME: VALUE'", help="of the request"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: %(default)s")
    parser.set_defaults(run=_run)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError("no header, expected 'NAME: VALUE'")  # not repeated: it may be a password
    return name.strip().lower(), value.strip()


def _run(arguments: argparse.Namespace) -> int:
    try:
        question = _question(arguments.file, dict(arguments.header))
        by, answer = _ask(arguments, question)
    except (ReachError, TableError, OSError, UnicodeDecodeError) as error:
        print(f"promptgroup explain: {_line(error)}", file=sys.stderr)
        return 2
    told = {"by": by, **json.loads(answer)}
    print(json.dumps(told, indent=2) if arguments.output == "json" else explain_output.table(told))
    return 0 if told.get("choice") is not None else 1


def _question(file: str, headers: dict[str, str]) -> bytes:
    """What a router is asked. Texts have a `prompt`, chats have `messages`."""
    body = (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
    try:
        asked = json.loads(body)
    except ValueError:
        asked = None  # the router says what is wrong
    path = TEXT_PATH if isinstance(asked, dict) and "prompt" in asked and "messages" not in asked else CHAT_PATH
    return json.dumps({"path": path, "headers": headers, "body": body}).encode()


def _ask(arguments: argparse.Namespace, question: bytes) -> tuple[str, bytes]:
    """Who answers, and what."""
    if arguments.table is not None:
        return f"table {arguments.table}", explain_with_table(
            table_file.read(arguments.table), parse_explain_request(question)
        )
    if arguments.router is not None:
        return f"router {arguments.router}", router_at(arguments.router)("/explain", question)
    with ClusterConnection(arguments.namespace) as cluster:
        name, ask = min(cluster.routers(cluster.namespace).items())  # any: they agree
        return f"router {cluster.namespace}/{name}", ask("/explain", question)


def _line(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, UnicodeDecodeError):
        return "the request's body is not UTF-8"
    return str(error)
