"""The state of a cluster and its routers, as read at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from promptgroup_cli.base import bounded_json
from promptgroup_cli.reach.top_rates import RouterPage, router_page
from promptgroup_operator.load import router_metrics
from promptgroup_operator.load.router_metrics import RouterCounts
from promptgroup_operator.world.snapshot import Key, Manifest

MOST_MOVES = 256
"""Moves of sessions that are read from one router."""
MOST_MEMORY = 64 << 20
"""Bytes of memory that counters of one router may take: the page shows one cluster, at its user's request."""


class SessionMove(NamedTuple):
    """A session that another slot serves than before."""

    origin: str
    """Label of the slot that served it, as in `chat/support/9f2c61d0/0`."""
    target: str
    seconds_ago: float


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """The objects of one namespace."""

    groups: Sequence[Manifest] = ()
    routes: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()
    deployments: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()
    unknown: tuple[str, ...] = ()
    """Reasons why parts of it could not be read, a sentence each."""
    kubectl: str = "kubectl"
    """Beginning of a kubectl command line for the same cluster."""


@dataclass(frozen=True, slots=True)
class RouterReading:
    """The answers of one router."""

    page: RouterPage
    counts: Mapping[Key, RouterCounts]
    moves: tuple[SessionMove, ...]
    """The oldest first."""
    routes: Mapping[str, Manifest]
    """Group as `namespace/name` → its PromptRoute, as far as the router's table has it."""
    unmatched: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DashboardReading:
    """Everything that was read at one moment."""

    at: datetime
    clock: float
    """The same in monotonic seconds, from which the time between two readings follows."""
    cluster: ClusterReading | None
    """None where no cluster is read."""
    routers: Mapping[str, RouterReading] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    """Router → why it did not answer."""


def router_reading(metrics: bytes, table: bytes, unmatched: Mapping[str, Any]) -> RouterReading:
    """Read a router's answers to /metrics, /table and /unmatched (that one checked already).

    Raises:
        JsonError, ValueError, KeyError, TypeError, AttributeError: an answer is not a router's.
    """
    text, result = metrics.decode(), bounded_json.parse(table)
    moves = result.get("moves", [])[-MOST_MOVES:]  # a router of an earlier version reports none
    return RouterReading(
        page=router_page(text, result),
        counts=router_metrics.parse(text, lambda _: True, MOST_MEMORY),
        moves=tuple(SessionMove(str(move["from"]), str(move["to"]), float(move["secondsAgo"])) for move in moves),
        routes={f"{group['namespace']}/{group['name']}": _route(group) for group in result.get("groups", [])},
        unmatched=unmatched,
    )


def _route(result: Mapping[str, Any]) -> Manifest:
    """Return a group of a router's table in the form of a PromptRoute, which is that of its encoding."""
    return {
        "metadata": {"namespace": str(result["namespace"]), "name": str(result["name"])},
        "spec": {
            "model": str(result["model"]),
            "aliases": [{"name": str(alias["name"])} for alias in result.get("aliases", [])],
            "revisions": [_revision(revision) for revision in result["revisions"]],
        },
    }


def _revision(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "fingerprint": str(result["fingerprint"]),
        "weight": int(result["weight"]),
        "slots": [{"slot": int(slot["slot"]), "state": str(slot["state"])} for slot in result.get("slots", [])],
    }
