"""`promptgroup top`: show the traffic and load of each group, live from the routers."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.errors import ExitStatus, exit_statuses
from promptgroup_cli.base.flags import add_cluster, add_interval, add_output, add_router, cluster_choice
from promptgroup_cli.base.terminal import send_control
from promptgroup_cli.base.text import columns, duration
from promptgroup_cli.reach.connect import ClusterConnection, Router, routers_at
from promptgroup_cli.reach.each_router import ask_each, heard
from promptgroup_cli.reach.hit_rates import WINDOW_WORDS, share_of
from promptgroup_contract.names import HIT_RATE_SECONDS
from promptgroup_operator.base.timestamps import rfc3339

if TYPE_CHECKING:
    from promptgroup_cli.reach.top_rates import ReplicaRate, RouterPage, TopRates

CLEAR = "\x1b[H\x1b[2J"
"""ECMA-48: cursor to the top left (CUP), erase the screen (ED)."""
SECONDS = 3.0
"""Default interval: long enough for a few requests of a quiet group, short enough to watch."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Show requests, hit rate, time to first token (of streamed answers) and load of each group, live."
    )
    parser.epilog = exit_statuses("the routers answered, until Ctrl-C", "")
    add_cluster(parser)
    add_router(parser)
    parser.add_argument("--once", action="store_true", help="print one frame, after one interval, and exit")
    add_interval(parser, SECONDS, 0.1, "time of a frame")
    add_output(parser, text="format of the output, json with one line a frame")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    shown = {"table": table, "json": document}[arguments.output]
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
        pass  # Ctrl-C ends it
    return ExitStatus.OK


def _frames(arguments: argparse.Namespace) -> Iterator[TopFrame]:
    """Yield a frame each interval, without end.

    Raises:
        ReachError: no router answers.
    """
    from promptgroup_cli.reach.top_rates import rates  # noqa: PLC0415 - brings models, as those below

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
    """Return the routers to read; listed anew for each frame, since their number changes."""
    if cluster is not None:
        return cluster.routers(cluster.namespace)
    return routers_at([str(url)])


def _read(routers: Mapping[str, Router]) -> tuple[dict[str, RouterPage], tuple[str, ...]]:
    """Return the pages by router, and the names of the routers that did not answer."""
    from promptgroup_cli.reach.top_rates import router_page  # noqa: PLC0415

    pages, failed = ask_each(
        routers,
        lambda request: router_page(request("/metrics", None).decode(), bounded_json.parse(request("/table", None))),
    )
    heard(pages, failed)
    return pages, tuple(failed)


def _states(cluster: ClusterConnection) -> dict[str, TopState]:
    from promptgroup_cli.reach.group_status import group_status  # noqa: PLC0415

    group_statuses = [
        group_status(prompt_group, None, ()) for prompt_group in cluster.list("PromptGroup", cluster.namespace)
    ]
    return {
        f"{status.key.namespace}/{status.key.name}": TopState(
            status.ready, status.warm, share_of(status.hit_rate), status.host
        )
        for status in group_statuses
    }


UNMATCHED = "-"
"""The routers' name for requests that match no group."""

_HITS = f"HITS {WINDOW_WORDS.upper()}"
_SLOTS = ("REPLICA", "IN FLIGHT", "BACKLOG", "SESSIONS", "KV OF SESSIONS")


@dataclass(frozen=True, slots=True)
class TopState:
    """The part of a group's status that is shown."""

    ready: bool
    warm: str
    hit_rate: float | None = None
    """By the engines' counters, over HIT_RATE_SECONDS; None while it is unknown."""
    host: str = ""
    """The group whose replicas serve it; empty for one with an engine of its own."""


@dataclass(frozen=True, slots=True)
class TopFrame:
    """The values of one moment."""

    now: datetime
    seconds: float
    """Time that the rates cover."""
    routers: int
    silent: tuple[str, ...]
    """Routers that did not answer."""
    states: Mapping[str, TopState]
    """Status by `namespace/group`; empty where no cluster was read."""
    rates: Mapping[str, TopRates]

    @property
    def groups(self) -> Sequence[tuple[str, TopState | None, TopRates]]:
        """Return the groups of the cluster and of the routers; requests that match none are last, if there are any."""
        from promptgroup_cli.reach.top_rates import TopRates  # noqa: PLC0415

        names = sorted({*self.states, *self.rates} - {UNMATCHED})
        if self.rates.get(UNMATCHED, TopRates()).requests:
            names.append(UNMATCHED)
        return [(name, self.states.get(name), self.rates.get(name, TopRates())) for name in names]


def table(frame: TopFrame) -> str:
    """Return the text for people."""
    return "\n".join(_lines(frame))


def _lines(frame: TopFrame) -> Iterator[str]:
    silent = f", no answer from {', '.join(frame.silent)}" if frame.silent else ""
    routers = "1 router" if frame.routers == 1 else f"{frame.routers} routers"
    yield f"{rfc3339(frame.now)}, the last {frame.seconds:.0f} s, {routers}{silent}"
    yield ""
    rows = [_heads(frame.seconds), *(_row(*group) for group in frame.groups)]
    hosts = [state.host if state is not None else "" for _, state, _ in frame.groups]
    if any(hosts):
        rows = [(*row, host) for row, host in zip(rows, ("REPLICAS OF", *(host or "-" for host in hosts)), strict=True)]
    yield from columns(rows)
    replicas = [replica for _, _, rates in frame.groups for replica in rates.replicas]
    if replicas:
        yield ""
        yield from columns([_SLOTS, *map(_slot, replicas)])


def _heads(seconds: float) -> tuple[str, ...]:
    hits = f"HITS {seconds:.0f} S" if seconds >= 1 else "HITS"
    return "GROUP", "READY", "WARM", "REQ/S", hits, _HITS, "TTFT P50", "P99", "IN FLIGHT", "WAITING"


def _row(name: str, state: TopState | None, rates: TopRates) -> tuple[str, ...]:
    return (
        name if name != UNMATCHED else "(no group)",
        str(state.ready) if state is not None else "-",
        (state.warm or "-") if state is not None else "-",
        f"{rates.requests:.1f}",
        f"{rates.hit_rate:.1%}" if rates.hit_rate is not None else "-",
        f"{state.hit_rate:.0%}" if state is not None and state.hit_rate is not None else "-",
        duration(rates.median) if rates.median is not None else "-",
        duration(rates.late) if rates.late is not None else "-",
        str(rates.in_flight),
        str(rates.waiting),
    )


def _slot(replica: ReplicaRate) -> tuple[str, ...]:
    name = f"{replica.group}/{replica.revision}/{replica.place}"
    return name, str(replica.in_flight), duration(replica.wait), str(replica.sessions), f"{replica.filled:.0%}"


def document(frame: TopFrame) -> str:
    """Return the JSON for programs in one line; seconds, shares of 0 to 1, null for unknown values."""
    return json.dumps(
        {
            "time": rfc3339(frame.now),
            "seconds": round(frame.seconds, 3),
            "statusHitRateSeconds": HIT_RATE_SECONDS,
            "routers": frame.routers,
            "silent": list(frame.silent),
            "groups": [_group(*group) for group in frame.groups],
        }
    )


def _group(name: str, state: TopState | None, rates: TopRates) -> dict[str, Any]:
    return {
        "group": name,
        "ready": state.ready if state is not None else None,
        "warm": (state.warm or None) if state is not None else None,
        "engineFrom": (state.host or None) if state is not None else None,
        "requestsPerSecond": round(rates.requests, 3),
        "hitRate": round(rates.hit_rate, 4) if rates.hit_rate is not None else None,
        "statusHitRate": state.hit_rate if state is not None else None,
        "ttftP50": round(rates.median, 4) if rates.median is not None else None,
        "ttftP99": round(rates.late, 4) if rates.late is not None else None,
        "inFlight": rates.in_flight,
        "waiting": rates.waiting,
        "replicas": [
            {
                "revision": replica.revision,
                "slot": replica.slot,
                "rank": replica.rank,
                "inFlight": replica.in_flight,
                "backlogSeconds": replica.wait,
                "sessions": replica.sessions,
                "kvOfSessions": round(replica.filled, 4),
            }
            for replica in rates.replicas
        ],
    }
