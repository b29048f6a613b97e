"""`promptgroup top`: show the traffic and load of each group, live from the routers."""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.cluster_choice import cluster_choice
from promptgroup_cli.base.errors import ExitStatus
from promptgroup_cli.base.terminal import send_control
from promptgroup_cli.reach.connect import ClusterConnection, Router, routers_at
from promptgroup_cli.reach.each_router import ask_each, heard
from promptgroup_cli.reach.group_status import group_status
from promptgroup_cli.reach.top_rates import RouterPage, rates, router_page
from promptgroup_cli.render import top_output
from promptgroup_cli.render.top_output import TopFrame, TopState

CLEAR = "\x1b[H\x1b[2J"
"""ECMA-48: cursor to the top left (CUP), erase the screen (ED)."""


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    shown = {"table": top_output.table, "json": top_output.document}[arguments.output]
    redrawn = sys.stdout.isatty() and arguments.output == "table" and not arguments.once
    try:
        for frame in _frames(arguments):
            if redrawn:
                send_control(CLEAR)
            print(shown(frame), flush=True)
            if arguments.once:
                break
            if not redrawn and arguments.output == "table":
                print()
    except KeyboardInterrupt:
        pass  # this is how it ends
    return ExitStatus.OK


def _frames(arguments: argparse.Namespace) -> Iterator[TopFrame]:
    """Yield a frame each interval, without end.

    Raises:
        ReachError: no router answers.
    """
    with ClusterConnection(cluster_choice(arguments)) if arguments.router is None else nullcontext() as cluster:
        before, at = _read(_routers(cluster, arguments.router))[0], time.monotonic()
        while True:
            time.sleep(arguments.interval)
            pages, silent = _read(_routers(cluster, arguments.router))
            then, at = at, time.monotonic()
            yield TopFrame(
                now=datetime.now(UTC),
                seconds=at - then,
                routers=len(pages),
                silent=silent,
                states=_states(cluster) if cluster is not None else {},
                rates=rates(before, pages, at - then),
            )
            before = pages


def _routers(cluster: ClusterConnection | None, url: str | None) -> Mapping[str, Router]:
    """Return the routers to ask; read anew for each frame, since routers come and go."""
    if cluster is not None:
        return cluster.routers(cluster.namespace)
    return routers_at([str(url)])


def _read(routers: Mapping[str, Router]) -> tuple[dict[str, RouterPage], tuple[str, ...]]:
    """Return the pages by router, and the names of the routers that did not answer."""
    pages, failed = ask_each(
        routers, lambda ask: router_page(ask("/metrics", None).decode(), bounded_json.parse(ask("/table", None)))
    )
    heard(pages, failed)
    return pages, tuple(failed)


def _states(cluster: ClusterConnection) -> dict[str, TopState]:
    found = [group_status(each, None, ()) for each in cluster.list("PromptGroup", cluster.namespace)]
    return {f"{each.key.namespace}/{each.key.name}": TopState(each.ready, each.warm) for each in found}
