"""Flags of `promptgroup discover`."""

import argparse

from promptgroup_cli.base.cluster_flags import add_cluster, add_router
from promptgroup_cli.base.errors import exit_statuses
from promptgroup_cli.base.object_names import group_name
from promptgroup_cli.reach.inputs import InputFormat

LIMIT = 20
"""Prefixes that are shown unless another number is asked for."""

EPILOG = exit_statuses(
    "there are prompts that no group declares, or the PromptGroup was written",
    "every request matched a group",
    "  promptgroup discover -n chat\n  promptgroup discover -n chat --sample requests.jsonl --write support.yaml\n",
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "List the prompts that deserve a group: the heaviest beginnings of requests that no group declares, as the\n"
        "routers of the namespace saw them lately. Routers keep no text unless they run with --keep-samples; with\n"
        "--sample, the text is that of your own requests."
    )
    parser.epilog = EPILOG
    add_cluster(parser)
    add_router(parser)
    parser.add_argument(
        "--limit", type=_count, default=LIMIT, metavar="N", help="prefixes to list (default: %(default)s)"
    )
    parser.add_argument(
        "--sample", metavar="FILE", help="requests of yours, as `promptgroup lint` takes them; - for standard input"
    )
    parser.add_argument(
        "--as",
        dest="format",
        type=InputFormat,
        choices=(InputFormat.REQUEST, InputFormat.LOG),
        help="format of the sample (default: by name)",
    )
    parser.add_argument(
        "--write",
        metavar="FILE",
        help="write a PromptGroup for the heaviest prefix whose text is known, or for --hash; - for standard output",
    )
    parser.add_argument("--hash", metavar="HASH", help="the prefix to write, as the list names it")
    parser.add_argument(
        "--name",
        type=group_name,
        default="discovered",
        metavar="NAME",
        help="name of that PromptGroup (default: %(default)s)",
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="format of the list (default: %(default)s)"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 256")
    return int(text)
