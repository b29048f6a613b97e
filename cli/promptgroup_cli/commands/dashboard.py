"""`promptgroup dashboard`: serve a page on this machine that shows the groups of a namespace, live."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from promptgroup_cli.base.errors import ExitStatus, InputError, exit_statuses
from promptgroup_cli.base.flags import (
    add_cluster,
    add_interval,
    add_prometheus_files,
    add_router,
    cluster_choice,
    server_address,
    whole_number,
)
from promptgroup_cli.reach.connect import ClusterConnection, routers_at
from promptgroup_operator.base.settings import Settings

if TYPE_CHECKING:
    from promptgroup_cli.dashboard.past import DashboardPast

SECONDS = 2.0
"""Default interval: moves of sessions are visible, and the load on a cluster is small."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Serve a page on this machine that shows the groups of a namespace, live: their rings, hit rates and first\n"
        "tokens, releases, the reason for each number of replicas, prompts without a group, and where your own\n"
        "requests would go. It reads with the rights of your kubeconfig, and changes nothing."
    )
    parser.epilog = exit_statuses(
        "the page was served, until Ctrl-C",
        "",
        "  promptgroup dashboard -n chat\n  promptgroup dashboard -A\n  promptgroup dashboard -n chat --router http://127.0.0.1:9090\n",
    )
    where = parser.add_mutually_exclusive_group()
    add_cluster(parser, where)
    where.add_argument("-A", "--all-namespaces", action="store_true", help="show the groups of all namespaces")
    add_router(parser, several=True)
    parser.add_argument(
        "--no-cluster", action="store_true", help="query only the routers given with --router, and no cluster"
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
        type=whole_number(0, 65535),
        default=0,
        metavar="PORT",
        help="port of the page on 127.0.0.1 (default: any that is free)",
    )
    add_interval(parser, SECONDS, 0.5, "seconds between two updates of the page")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from promptgroup_cli.dashboard.observer import DashboardObserver  # noqa: PLC0415 - brings models and a server
    from promptgroup_cli.dashboard.server import serving  # noqa: PLC0415

    routers = routers_at(arguments.router) if arguments.router else None
    if arguments.no_cluster and routers is None:
        raise InputError("--no-cluster: there is nothing to look at; name a router with --router URL")
    with nullcontext() if arguments.no_cluster else ClusterConnection(cluster_choice(arguments)) as cluster:
        observer = DashboardObserver(
            cluster,
            routers,
            namespace=cluster.namespace if cluster is not None and not arguments.all_namespaces else "",
            interval=arguments.interval,
            now=_now(),
            past=_past(arguments),
        )
        observer.look(_now, time.monotonic)  # an unreachable cluster or router ends the command here
        with serving(observer, arguments.port) as url:
            print(f"The page is at {url}\nWhoever has this address can read it. Ctrl-C ends it.", flush=True)
            with suppress(KeyboardInterrupt), _terminated() as ended:  # Ctrl-C or SIGTERM ends it
                observer.run(ended, _now, time.monotonic)
    return ExitStatus.OK


@contextmanager
def _terminated() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM sets: processes that a shell starts in the background do not get Ctrl-C."""
    ended = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)


def _past(arguments: argparse.Namespace) -> DashboardPast | None:
    if arguments.prometheus is None:
        return None
    from promptgroup_cli.dashboard.past import DashboardPast, asking  # noqa: PLC0415 - as above
    from promptgroup_operator.load.prometheus_api import PrometheusApi  # noqa: PLC0415

    settings = Settings(
        prometheus_url=arguments.prometheus,
        prometheus_token_file=arguments.prometheus_token_file,
        prometheus_ca_file=arguments.prometheus_ca_file,
    )
    return DashboardPast(asking(PrometheusApi(settings)))


def _now() -> datetime:
    return datetime.now(UTC)
