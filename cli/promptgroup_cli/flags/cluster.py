"""Flags that several commands have: where the cluster and its routers are."""

import argparse


def add_namespace(parser: argparse._ActionsContainer) -> None:
    """Add the flag that kubectl has."""
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace (default: that of the kubeconfig's context)")


def add_router(parser: argparse._ActionsContainer) -> None:
    """Add the flag that names a router."""
    parser.add_argument(
        "--router",
        metavar="URL",
        help="ask this router, by its admin port, as in http://127.0.0.1:9090 (default: the routers of the namespace, "
        "through the API server)",
    )
