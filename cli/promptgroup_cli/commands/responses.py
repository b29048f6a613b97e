"""`promptgroup responses`: purge the routers' cached answers; `calibrate` is a module of its own."""

from __future__ import annotations

import argparse
import json

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import ExitStatus, InputError, ReachError, exit_statuses
from promptgroup_cli.base.flags import add_cluster, add_router, cluster_choice
from promptgroup_cli.calibration import command as calibrate
from promptgroup_cli.reach.connect import ClusterConnection, Router, routers_at, token_of
from promptgroup_cli.reach.each_router import no_router
from promptgroup_cli.reach.files import read_bytes
from promptgroup_contract import names

PATH = "/responses/purge"
TOKEN_BYTES = 4096
"""Most bytes of a file with a token."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = f"""\
purge removes answers from the response caches of all routers of the namespace, and keeps those from being cached that
are on their way. Run the command again if a router does not answer.

{calibrate.DESCRIPTION}"""
    parser.epilog = exit_statuses(
        "all routers removed the answers; a threshold is proven",
        "no threshold is proven to have the wanted precision",
        "  promptgroup responses purge -n chat --group support --revision 0123abcd\n" + calibrate.EXAMPLE,
    )
    parser.add_argument("action", choices=("purge", "calibrate"), help="remove cached answers, or choose a threshold")
    parser.add_argument("pairs", nargs="?", metavar="PAIRS", help="for calibrate: file of pairs, - for standard input")
    purge = parser.add_argument_group("purge")
    add_cluster(purge)
    add_router(purge)
    purge.add_argument(
        "--admin-token-file",
        metavar="FILE",
        help="file with the token that routers require for a purge; - for standard input (default: key "
        f"{names.ADMIN_KEY} of Secret {names.ADMIN_SECRET} in the namespace, if it is there)",
    )
    group = purge.add_mutually_exclusive_group()
    group.add_argument("--key", metavar="KEY", help="the answer of this key, as x-promptgroup-cache-key names it")
    group.add_argument("--group", metavar="GROUP", help="all answers of this group, NAME or NAMESPACE/NAME")
    group.add_argument("--all", action="store_true", help="all answers")
    purge.add_argument("--revision", metavar="DIGITS", help="of the group, those of this revision (8 hex digits)")
    calibrate.add(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if arguments.action == "calibrate":
        return calibrate.run(arguments)
    if arguments.pairs is not None:
        raise InputError("purge takes no file: name what to remove by --group, --key or --all")
    if (arguments.key, arguments.group) == (None, None) and not arguments.all:
        raise InputError("nothing to remove: give --group, --key or --all")
    if arguments.revision is not None and arguments.group is None:
        raise InputError("--revision requires --group")
    if arguments.router is not None:
        if arguments.group is not None and "/" not in arguments.group:
            raise InputError("--group has no namespace: give NAMESPACE/NAME with --router")
        _purge(routers_at([arguments.router], _token(arguments)), _what(arguments, ""))
        return ExitStatus.OK
    with ClusterConnection(cluster_choice(arguments)) as cluster:
        cluster.admin_token = _token(arguments)
        _purge(dict(cluster.routers(cluster.namespace)), _what(arguments, cluster.namespace))
    return ExitStatus.OK


def _token(arguments: argparse.Namespace) -> str:
    """Return the admin token of the file that the flag names; empty without the flag."""
    file = arguments.admin_token_file
    return token_of(read_bytes(file, TOKEN_BYTES)) if file is not None else ""


def _what(arguments: argparse.Namespace, namespace: str) -> bytes:
    if arguments.key is not None:
        return json.dumps({"key": arguments.key}).encode()
    if arguments.group is None:
        return b'{"all":true}'
    group = arguments.group if "/" in arguments.group else f"{namespace}/{arguments.group}"
    revision = {"revision": arguments.revision} if arguments.revision is not None else {}
    return json.dumps({"group": group, **revision}).encode()


def _purge(routers: dict[str, Router], subject: bytes) -> None:
    """Send the purge to all routers, also after one that does not answer.

    Raises:
        ReachError: a router does not answer, and may still have the answers.
    """
    failed: list[str] = []
    for name, request in sorted(routers.items()):
        try:
            purged = bounded_json.parse(request(PATH, subject))["purged"]
            print(f"{name}: {purged} purged")
        except ReachError as error:
            failed.append(str(error))
        except (JsonError, KeyError, TypeError):
            failed.append(str(no_router(f"router {name}")))
    if failed:
        raise ReachError(f"{failed[0]}; {len(failed)} of {len(routers)} routers may keep the answers: run it again")
