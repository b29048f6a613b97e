"""Flags of `promptgroup dashboard`."""

import argparse

from promptgroup_cli.base.cluster_flags import add_cluster, add_interval, add_router
from promptgroup_cli.base.errors import exit_statuses
from promptgroup_cli.base.server_flags import add_prometheus_files, server_address

SECONDS = 2.0
"""Default interval: a session that moves is seen to move, and a cluster hardly notices."""

EPILOG = exit_statuses(
    "the page was served, until Ctrl-C",
    "",
    "  promptgroup dashboard -n chat\n  promptgroup dashboard -n chat --router http://127.0.0.1:9090\n",
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Serve a page on this machine that shows the groups of a namespace, live: their rings, hit rates and first\n"
        "tokens, releases, the reason for each number of replicas, prompts without a group, and where a request of\n"
        "yours would go. It reads with the rights of your kubeconfig, and changes nothing."
    )
    parser.epilog = EPILOG
    add_cluster(parser)
    add_router(parser, several=True)
    parser.add_argument(
        "--no-cluster", action="store_true", help="ask the routers given with --router alone, and no cluster"
    )
    parser.add_argument(
        "--prometheus",
        type=server_address,
        metavar="URL",
        help="also show the hour before, from this Prometheus",
    )
    add_prometheus_files(parser)
    parser.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="PORT",
        help="port of the page on 127.0.0.1 (default: any that is free)",
    )
    add_interval(parser, SECONDS, 0.5, "seconds between two updates of the page")


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)
