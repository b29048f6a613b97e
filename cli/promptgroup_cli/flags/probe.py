"""The flags of `promptgroup probe`."""

import argparse
import re
from pathlib import Path

from promptgroup_cli.base.errors import exit_statuses

ENGINES = ("vLLM", "SGLang", "TensorRTLLM")
"""Values of `spec.engine.type`, repeated here since the models that define them take long to import."""
FEWEST = 3
"""Fewest lengths: through two there is always a line, which says nothing of its error."""
MOST_REPEATS = 20
LONGEST = 131_072

EPILOG = exit_statuses(
    "the replica's prefill rate was measured",
    "its times do not grow with the length of prompts, or it does not say what it found in cache",
    """\
  kubectl port-forward pod/support-9f2c61d0-abcde 8000 &
  promptgroup probe 127.0.0.1:8000 --model Qwen/Qwen3-8B -o json > measured.json
  promptgroup size --measured measured.json --model Qwen/Qwen3-8B --gpu H100-80GB ...
""",
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Measure the prefill rate of a replica, and how fast a KV tier copies to it, by a few requests with prompts "
        "that nobody else has."
    )
    parser.epilog = EPILOG
    parser.add_argument("engine", type=_address, metavar="HOST:PORT", help="the replica")
    parser.add_argument("--model", required=True, metavar="NAME", help="model that it serves")
    parser.add_argument(
        "--type", choices=ENGINES, default=ENGINES[0], help="spec.engine.type of its group (default: %(default)s)"
    )
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument(
        "--copy-to",
        type=_address,
        metavar="HOST:PORT",
        help="another replica of the group, which copies the prompts from the pool that both have",
    )
    tier.add_argument(
        "--reset",
        action="store_true",
        help="empty the replica's GPU cache in between, so that its own tier brings the prompts; of a replica in "
        "service, everybody's prompts are computed or copied again",
    )
    parser.add_argument(
        "--tokens",
        type=_lengths,
        default="512,1024,2048,4096",
        metavar="N,N",
        help="lengths of prompts, about (default: %(default)s)",
    )
    parser.add_argument(
        "--repeat", type=_repeat, default=3, metavar="N", help="requests of each length (default: %(default)s)"
    )
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="file with the API key that the engine asks for")
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="format of the output (default: %(default)s)"
    )


def _address(text: str) -> str:
    address = text.removeprefix("http://").rstrip("/")
    if not re.fullmatch(r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[1-9][0-9]{0,4}", address, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not an engine's address: write HOST:PORT")
    return address


def _lengths(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(re.fullmatch(r"[1-9][0-9]{0,5}", part, re.ASCII) and int(part) <= LONGEST for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} are not lengths up to {LONGEST} tokens: write 512,1024,2048")
    if not FEWEST <= len(set(parts)) <= MOST_REPEATS:
        raise argparse.ArgumentTypeError(f"{text!r} has not from {FEWEST} to {MOST_REPEATS} different lengths")
    return tuple(sorted({int(part) for part in parts}))


def _repeat(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]?", text, re.ASCII) or int(text) > MOST_REPEATS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_REPEATS}")
    return int(text)
