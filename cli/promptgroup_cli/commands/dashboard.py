"""`promptgroup dashboard`: serve a page on this machine that shows the groups of a namespace, live."""

import argparse
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime

from promptgroup_cli.base.cluster_choice import cluster_choice
from promptgroup_cli.base.errors import ExitStatus, InputError
from promptgroup_cli.dashboard.observer import DashboardObserver
from promptgroup_cli.dashboard.past import DashboardPast, asking
from promptgroup_cli.dashboard.server import serving
from promptgroup_cli.reach.connect import ClusterConnection, routers_at
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.load.prometheus_api import PrometheusApi


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    routers = routers_at(arguments.router) if arguments.router else None
    if arguments.no_cluster and routers is None:
        raise InputError("--no-cluster: there is nothing to look at; name a router with --router URL")
    with nullcontext() if arguments.no_cluster else ClusterConnection(cluster_choice(arguments)) as cluster:
        observer = DashboardObserver(
            cluster,
            routers,
            namespace=cluster.namespace if cluster is not None else "",
            interval=arguments.interval,
            now=_now(),
            past=_past(arguments),
        )
        observer.look(_now, time.monotonic)  # what cannot be reached at all ends the command here, with its reason
        with serving(observer, arguments.port) as url:
            print(f"The page is at {url}\nWhoever has this address can read it. Ctrl-C ends it.", flush=True)
            with suppress(KeyboardInterrupt), _terminated() as ended:  # this is how it ends
                observer.run(ended, _now, time.monotonic)
    return ExitStatus.OK


@contextmanager
def _terminated() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM sets: what a shell starts in the background does not get Ctrl-C."""
    ended = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)


def _past(arguments: argparse.Namespace) -> DashboardPast | None:
    if arguments.prometheus is None:
        return None
    settings = Settings(
        prometheus_url=arguments.prometheus,
        prometheus_token_file=arguments.prometheus_token_file,
        prometheus_ca_file=arguments.prometheus_ca_file,
    )
    return DashboardPast(asking(PrometheusApi(settings)))


def _now() -> datetime:
    return datetime.now(UTC)
