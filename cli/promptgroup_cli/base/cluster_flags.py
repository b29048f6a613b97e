"""Flags that several commands have: where the cluster and its routers are, and how often they are looked at."""

import argparse
from functools import partial

from promptgroup_cli.base.server_flags import server_address

HOUR = 3600
"""Most seconds between two looks."""


def add_cluster(parser: argparse._ActionsContainer, namespace: argparse._MutuallyExclusiveGroup | None = None) -> None:
    """Add the flags by which kubectl is told of a cluster and of a namespace in it.

    Args:
        parser: the parser, or a group of its flags.
        namespace: a group that has another flag in place of `--namespace`.
    """
    (namespace or parser).add_argument(
        "-n", "--namespace", metavar="NS", help="namespace (default: that of the kubeconfig's context)"
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="the kubeconfig (default: those of $KUBECONFIG, or ~/.kube/config)"
    )


def add_router(parser: argparse._ActionsContainer, *, several: bool = False) -> None:
    """Add the flag that names a router, or as many as one likes."""
    more = "; may be given several times" if several else ""
    parser.add_argument(
        "--router",
        action="append" if several else "store",
        type=server_address,
        metavar="URL",
        help=f"ask this router, by its admin port, as in http://127.0.0.1:9090{more} (default: the routers of the "
        "namespace, through the API server)",
    )


def add_interval(parser: argparse._ActionsContainer, default: float, least: float, what: str) -> None:
    """Add the flag that says how many seconds lie between two looks."""
    parser.add_argument(
        "--interval",
        type=partial(_seconds, least),
        default=default,
        metavar="SECONDS",
        help=f"{what} (default: %(default)g)",
    )


def _seconds(least: float, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not least <= value <= HOUR:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {least:g} to {HOUR}")
    return value
