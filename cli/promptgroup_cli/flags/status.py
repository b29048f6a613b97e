"""Flags of `promptgroup status`."""

import argparse

from promptgroup_cli.base.cluster_flags import add_cluster
from promptgroup_cli.base.errors import exit_statuses

EPILOG = exit_statuses("every group shown is Ready for its present spec", "a group shown is not Ready")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = "Show one PromptGroup in detail, or all of a namespace with a line each."
    parser.epilog = EPILOG
    parser.add_argument("name", nargs="?", metavar="NAME", help="PromptGroup to show (default: all)")
    where = parser.add_mutually_exclusive_group()
    add_cluster(parser, where)
    where.add_argument("-A", "--all-namespaces", action="store_true", help="show the groups of all namespaces")
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="format of the output (default: %(default)s)"
    )
