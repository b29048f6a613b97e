"""`promptgroup top`: show the traffic and load of each group, live from the routers."""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import ExitStatus, ReachError, exit_statuses
from promptgroup_cli.reach.connect import ClusterConnection, Router, add_namespace, add_router, router_at
from promptgroup_cli.reach.group_status import group_status
from promptgroup_cli.reach.top_rates import RouterPage, page, rates
from promptgroup_cli.render import top_output
from promptgroup_cli.render.top_output import TopFrame, TopState

SECONDS = 3.0
"""Default interval: long enough for a few requests of a quiet group, short enough to watch."""
CLEAR = "\x1b[H\x1b[2J"
"""ECMA-48: cursor to the top left (CUP), erase the screen (ED)."""

EPILOG = exit_statuses("the routers answered, until Ctrl-C", "")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags and its way to run."""
    parser.description = (
        "Show requests, hit rate, time to first token (of streamed answers) and load of each group, live."
    )
    parser.epilog = EPILOG
    add_namespace(parser)
    add_router(parser)
    parser.add_argument("--once", action="store_true", help="print one frame, after one interval, and exit")
    parser.add_argument(
        "--interval", type=_seconds, default=SECONDS, metavar="SECONDS", help="time of a frame (default: %(default)g)"
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="format of the output, json with one line a frame (default: %(default)s)",
    )
    parser.set_defaults(run=_run)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return value


def _run(arguments: argparse.Namespace) -> int:
    shown = {"table": top_output.table, "json": top_output.document}[arguments.output]
    redrawn = sys.stdout.isatty() and arguments.output == "table" and not arguments.once
    try:
        for frame in _frames(arguments):
            print(f"{CLEAR if redrawn else ''}{shown(frame)}", flush=True)
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
    with ClusterConnection(arguments.namespace) if arguments.router is None else nullcontext() as cluster:
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
    return {str(url): router_at(str(url))}


def _read(routers: Mapping[str, Router]) -> tuple[dict[str, RouterPage], tuple[str, ...]]:
    """Return the pages by router, and the names of the routers that did not answer."""
    pages, failed = {}, {}
    for name, ask in routers.items():
        try:
            pages[name] = page(ask("/metrics", None).decode(), bounded_json.parse(ask("/table", None)))
        except ReachError as error:
            failed[name] = error
        except (JsonError, ValueError, KeyError, TypeError, AttributeError) as error:
            failed[name] = ReachError(f"router {name} does not answer as a router does: {type(error).__name__}")
    if not pages:
        raise next(iter(failed.values()))
    return pages, tuple(failed)


def _states(cluster: ClusterConnection) -> dict[str, TopState]:
    found = [group_status(each, None, ()) for each in cluster.list("PromptGroup", cluster.namespace)]
    return {f"{each.key.namespace}/{each.key.name}": TopState(each.ready, each.warm) for each in found}
