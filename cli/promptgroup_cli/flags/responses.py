"""Flags of `promptgroup responses`."""

import argparse

from promptgroup_cli.base.cluster_flags import add_cluster, add_router
from promptgroup_cli.base.errors import exit_statuses
from promptgroup_router.contract import names

EPILOG = exit_statuses(
    "all routers have forgotten the answers; a threshold is proven",
    "no threshold is proven to have the wanted precision",
    "  promptgroup responses purge -n chat --group support --revision 0123abcd\n"
    "  promptgroup responses calibrate pairs.jsonl --precision 0.99 \\\n"
    "    --endpoint http://127.0.0.1:8000/v1/embeddings --embedding-model BAAI/bge-small-en-v1.5\n",
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = """\
purge makes the routers forget answers of the response cache, and keep none of those that are on their way. Every router
of the namespace is asked; run the command again if one does not answer.

calibrate chooses the threshold of spec.responses.semantic. It reads pairs of questions that somebody has judged, one a
line, as in {"a": "How do I get a refund?", "b": "Can I have my money back?", "same": true}. It prints the precision and
the hit rate at several thresholds, the lowest threshold that is proven on half of the pairs to have the wanted
precision, and what it has on the other half."""
    parser.epilog = EPILOG
    parser.add_argument("action", choices=("purge", "calibrate"), help="forget answers, or choose a threshold")
    parser.add_argument("pairs", nargs="?", metavar="PAIRS", help="for calibrate: file of pairs, - for standard input")
    purge = parser.add_argument_group("purge")
    add_cluster(purge)
    add_router(purge)
    purge.add_argument(
        "--admin-token-file",
        metavar="FILE",
        help="file with the token that routers ask for before they forget answers; - for standard input (default: key "
        f"{names.ADMIN_KEY} of Secret {names.ADMIN_SECRET} in the namespace, if it is there)",
    )
    what = purge.add_mutually_exclusive_group()
    what.add_argument("--key", metavar="KEY", help="the answer of this key, as x-promptgroup-cache-key names it")
    what.add_argument("--group", metavar="GROUP", help="all answers of this group, NAME or NAMESPACE/NAME")
    what.add_argument("--all", action="store_true", help="all answers")
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
    calibrate.add_argument("--embedding-model", metavar="NAME", help="model that the endpoint is asked for")
    calibrate.add_argument("--key-env", metavar="NAME", help="environment variable with the endpoint's key")
    calibrate.add_argument(
        "--minilm",
        action="store_true",
        help="try it without an endpoint: all-MiniLM-L6-v2 on this machine's CPU (needs promptgroup[minilm])",
    )
