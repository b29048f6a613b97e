"""`promptgroup responses`: purge the routers' cached answers, and choose the threshold of a semantic cache."""

from __future__ import annotations

import argparse
import json
from operator import mul
from typing import TYPE_CHECKING

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import ExitStatus, InputError, ReachError, exit_statuses
from promptgroup_cli.base.flags import add_cluster, add_router, cluster_choice
from promptgroup_cli.calibration.choice import LEAST_PRECISION, MOST_PRECISION, choose
from promptgroup_cli.calibration.pairs import Judged, is_held_out, read_pairs
from promptgroup_cli.calibration.report import report
from promptgroup_cli.reach.connect import ClusterConnection, Router, routers_at, token_of
from promptgroup_cli.reach.each_router import no_router
from promptgroup_cli.reach.files import read_bytes, shown
from promptgroup_contract import names

if TYPE_CHECKING:
    from promptgroup_cli.embedding.endpoint import Embed

PATH = "/responses/purge"
TOKEN_BYTES = 4096
"""Most bytes of a file with a token."""
PAIRS_BYTES = 64 << 20
"""Most bytes of a file of pairs."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = """\
purge removes answers from the response caches of all routers of the namespace, and keeps those from being cached that
are on their way. Run the command again if a router does not answer.

calibrate chooses the threshold of spec.responses.semantic. It reads labelled pairs of questions, one a line, as in
{"a": "How do I get a refund?", "b": "Can I have my money back?", "same": true}. It prints the precision and the hit
rate at several thresholds, the lowest threshold that is proven on half of the pairs to have the wanted
precision, and what it has on the other half."""
    parser.epilog = exit_statuses(
        "all routers removed the answers; a threshold is proven",
        "no threshold is proven to have the wanted precision",
        "  promptgroup responses purge -n chat --group support --revision 0123abcd\n"
        "  promptgroup responses calibrate pairs.jsonl --precision 0.99 \\\n"
        "    --endpoint http://127.0.0.1:8000/v1/embeddings --embedding-model BAAI/bge-small-en-v1.5\n",
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
    calibrate = parser.add_argument_group("calibrate")
    calibrate.add_argument(
        "--precision",
        type=float,
        default=0.99,
        metavar="SHARE",
        help="wanted share of right answers among those given, 0.5 to 0.9999 (default: %(default)s)",
    )
    calibrate.add_argument("--endpoint", metavar="URL", help="URL of an endpoint for embeddings (/v1/embeddings)")
    calibrate.add_argument("--embedding-model", metavar="NAME", help="model to request from the endpoint")
    calibrate.add_argument("--key-env", metavar="NAME", help="environment variable with the endpoint's key")
    calibrate.add_argument(
        "--minilm",
        action="store_true",
        help="try it without an endpoint: all-MiniLM-L6-v2 on this machine's CPU (needs promptgroup[minilm])",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if arguments.action == "calibrate":
        return _calibrate(arguments)
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


def _calibrate(arguments: argparse.Namespace) -> int:
    if arguments.pairs is None:
        raise InputError("calibrate needs a file of pairs: promptgroup responses calibrate pairs.jsonl")
    if not LEAST_PRECISION <= arguments.precision <= MOST_PRECISION:
        given = f"--precision is {arguments.precision:.10g}"
        raise InputError(f"{given}, expected a share from {LEAST_PRECISION:g} to {MOST_PRECISION:g}, such as 0.99")
    pairs = read_pairs(read_bytes(arguments.pairs, PAIRS_BYTES), shown(arguments.pairs))
    embed = _embedding(arguments)
    texts = sorted({text for pair in pairs for text in (pair.one, pair.other)})
    vectors = dict(zip(texts, embed(texts), strict=True))
    judged = [Judged(pair, sum(map(mul, vectors[pair.one], vectors[pair.other]))) for pair in pairs]
    chosen_from = [item for item in judged if not is_held_out(item.pair)]
    held_out = [item for item in judged if is_held_out(item.pair)]
    chosen = choose(chosen_from, arguments.precision)
    print("\n".join(report(chosen_from, held_out, chosen, arguments.precision)))
    return ExitStatus.OK if chosen is not None else ExitStatus.NEGATIVE


def _embedding(arguments: argparse.Namespace) -> Embed:
    from promptgroup_cli.embedding import endpoint, minilm  # noqa: PLC0415 - bring a client of HTTP

    if arguments.minilm == (arguments.endpoint is not None):
        raise InputError("give one of --endpoint, with --embedding-model, and --minilm")
    if arguments.minilm:
        return minilm.installed()
    if arguments.embedding_model is None:
        raise InputError(
            "--endpoint needs --embedding-model: the one that spec.responses.semantic.embeddings will name"
        )
    return endpoint.from_endpoint(arguments.endpoint, arguments.embedding_model, arguments.key_env)


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
