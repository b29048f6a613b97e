"""Flags of `promptgroup plan`."""

import argparse

from promptgroup_cli.base.errors import exit_statuses

LONGEST_START = 24 * 3600
"""Seconds; a replica that takes a day to start is a mistake."""


EPILOG = exit_statuses(
    "the steps or objects were printed", "the API server would refuse the PromptGroup, or the plan never ends"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Show each step by which a PromptGroup is created, released or scaled. The operator's own\n"
        "planner decides; the cluster is simulated, and the output states what it is assumed to do."
    )
    parser.epilog = EPILOG
    parser.add_argument("file", metavar="FILE", help="PromptGroup to apply, as kubectl takes it; - for standard input")
    parser.add_argument(
        "--from", dest="old", metavar="OLD_FILE", help="PromptGroup that is applied already (default: none is)"
    )
    parser.add_argument("--objects", action="store_true", help="print the objects as YAML instead of the steps")
    parser.add_argument(
        "--judge", choices=("pass", "fail"), default="pass", help="result of the analysis at each step (default: pass)"
    )
    parser.add_argument(
        "--warm-seconds",
        type=_seconds,
        default=60,
        metavar="N",
        help="time from a pod's creation until it is warm (default: 60)",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default="default",
        metavar="NS",
        help="namespace of objects that name none (default: default)",
    )


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LONGEST_START:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {LONGEST_START}")
    return int(text)
