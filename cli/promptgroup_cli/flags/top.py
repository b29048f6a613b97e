"""Flags of `promptgroup top`."""

import argparse

from promptgroup_cli.base.cluster_flags import add_cluster, add_interval, add_router
from promptgroup_cli.base.errors import exit_statuses

SECONDS = 3.0
"""Default interval: long enough for a few requests of a quiet group, short enough to watch."""

EPILOG = exit_statuses("the routers answered, until Ctrl-C", "")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Show requests, hit rate, time to first token (of streamed answers) and load of each group, live."
    )
    parser.epilog = EPILOG
    add_cluster(parser)
    add_router(parser)
    parser.add_argument("--once", action="store_true", help="print one frame, after one interval, and exit")
    add_interval(parser, SECONDS, 0.1, "time of a frame")
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="format of the output, json with one line a frame (default: %(default)s)",
    )
