"""Polls the cluster and its routers, and answers the page's requests."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import orjson

from promptgroup_cli.base.errors import CommandError, ReachError
from promptgroup_cli.dashboard.history import DashboardHistory
from promptgroup_cli.dashboard.past import DashboardPast
from promptgroup_cli.dashboard.reading import ClusterReading, DashboardReading, RouterReading, router_reading
from promptgroup_cli.dashboard.view import DashboardFrame, cut, view
from promptgroup_cli.reach.connect import ClusterConnection, Router
from promptgroup_cli.reach.discovered import ask_one
from promptgroup_cli.reach.each_router import ask_each
from promptgroup_cli.reach.explained import candidates, explain_question, facts, parse_explanation
from promptgroup_contract import names
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.world.snapshot import LEADER_WORKER_SET, Manifest

MOST_ROUTERS = 64
"""Most routers that are read; of more, the first ones by name."""
ROUTER_THREADS = 8


class DashboardObserver:
    """The state of one namespace, or of all, as of the latest reading. Safe to use from many threads.

    Args:
        cluster: the cluster; None to read routers alone.
        routers: the routers to read, by name; None for those of the namespace.
        namespace: the namespace to read; empty for all.
        interval: seconds between two readings.
        now: the time at which the observation begins.
        past: queries a Prometheus for the time before; None without one.
    """

    def __init__(
        self,
        cluster: ClusterConnection | None,
        routers: Mapping[str, Router] | None,
        *,
        namespace: str,
        interval: float,
        now: datetime,
        past: DashboardPast | None = None,
    ) -> None:
        self._past = past
        self._looked_at = ""
        """The group that the page showed in detail last."""
        self._cluster = cluster
        self._given = routers
        self._namespace = namespace
        self._interval = interval
        self._began = rfc3339(now)
        self._lock = threading.Lock()
        self._history = DashboardHistory()
        self._routers: Mapping[str, Router] = {}
        self._reading: DashboardReading | None = None
        self._number = 0
        self._since = 0.0

    def look(self, now: Callable[[], datetime], clock: Callable[[], float]) -> DashboardReading:
        """Read everything once.

        Raises:
            ReachError: the cluster does not answer, or none of the routers where only routers are read.
        """
        cluster = _read_cluster(self._cluster, self._namespace) if self._cluster is not None else None
        routers, missing = self._find_routers()
        parts = [
            dict(list(routers.items())[first::ROUTER_THREADS]) for first in range(min(ROUTER_THREADS, len(routers)))
        ]
        answers: dict[str, RouterReading] = {}
        failed: dict[str, ReachError] = dict(missing)
        with ThreadPoolExecutor(ROUTER_THREADS) as threads:
            for router_readings, wrong in threads.map(lambda part: ask_each(part, _read_router), parts):
                answers |= router_readings
                failed |= wrong
        if cluster is None and not answers:
            raise next(iter(failed.values()))
        silent = {name: str(error) for name, error in failed.items()}
        reading = DashboardReading(now(), clock(), cluster, answers, silent)
        if self._past is not None and self._looked_at:
            self._past.refresh(self._looked_at, reading.at, reading.clock)
        with self._lock:
            self._history.add(reading)
            self._since = reading.clock - self._reading.clock if self._reading is not None else 0.0
            self._routers = routers
            self._reading = reading
            self._number += 1
        return reading

    def _find_routers(self) -> tuple[Mapping[str, Router], dict[str, ReachError]]:
        if self._given is not None or self._cluster is None:
            return self._given or {}, {}
        try:
            routers = self._cluster.routers(self._namespace)
        except ReachError as error:
            return {}, {"": error}
        return {name: routers[name] for name in sorted(routers)[:MOST_ROUTERS]}, {}

    def view(self, chosen: str) -> bytes:
        """Return the page's content as JSON; `chosen` is the group that it shows in detail."""
        with self._lock:
            if self._reading is None:
                raise ReachError("nothing was read yet")
            frame = DashboardFrame(
                namespace=self._namespace,
                interval=self._interval,
                began=self._began,
                reading=self._reading,
                number=self._number,
                since=self._since,
                history=self._history,
                past=self._past,
            )
            shown = view(frame, chosen)
        self._looked_at = shown["group"]["label"] if shown["group"] is not None else ""
        return orjson.dumps(shown)

    def explain(self, body: str, headers: Mapping[str, str]) -> bytes:
        """Return where a request would be routed, as JSON: named texts, and a table of replicas with its heads.

        Raises:
            ReachError: no router answers.
        """
        routers = self._routers
        if not routers:
            raise ReachError("no router is ready to explain the request")
        # routers of a namespace agree; of several namespaces, that of the group that is shown is chosen
        space = "" if self._namespace else f"{self._looked_at.partition('/')[0]}/"
        name, request = min(routers.items(), key=lambda item: (not item[0].startswith(space), item[0]))
        explanation = parse_explanation(f"router {name}", request("/explain", explain_question(body, headers)))
        try:
            shown: dict[str, Any] = {
                "by": explanation["by"],
                "choice": explanation.get("choice"),
                "refused": explanation["refusal"] is not None,
                "facts": [list(fact) for fact in facts(explanation)],
                "rows": [list(candidate) for candidate in candidates(explanation)],
            }
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise ReachError(f"router {name} does not explain as a router of this version does") from None
        return orjson.dumps(cut(shown))

    def run(self, stopped: threading.Event, now: Callable[[], datetime], clock: Callable[[], float]) -> None:
        """Read at each interval until stopped. A failed reading is shown as a problem."""
        while not stopped.wait(self._interval):
            try:
                self.look(now, clock)
            except CommandError as error:
                self._fail(error, now, clock)

    def _fail(self, error: CommandError, now: Callable[[], datetime], clock: Callable[[], float]) -> None:
        """Keep the last reading of the cluster, with the error that makes it outdated."""
        with self._lock:
            last = self._reading
            if last is None:
                return
            cluster = last.cluster or ClusterReading()
            seen = ClusterReading(
                cluster.groups, cluster.routes, cluster.pods, cluster.deployments, cluster.events, unknown=(str(error),)
            )
            self._reading = DashboardReading(
                now(), clock(), seen if last.cluster is not None else None, {}, {"": str(error)}
            )
            self._since = 0.0
            self._number += 1


def _read_router(request: Router) -> RouterReading:
    return router_reading(request("/metrics", None), request("/table", None), ask_one(request))


def _read_cluster(cluster: ClusterConnection, namespace: str) -> ClusterReading:
    """Read the objects of a namespace; only groups must be readable.

    Raises:
        ReachError: the cluster does not answer.
    """
    groups = cluster.list("PromptGroup", namespace)
    unknown: list[str] = []

    def rest(kind: str, labels: str = "", fields: str = "") -> Sequence[Manifest]:
        try:
            return cluster.list(kind, namespace, labels=labels, fields=fields)
        except ReachError as error:
            unknown.append(str(error))
            return ()

    return ClusterReading(
        groups=groups,
        routes=rest("PromptRoute"),
        pods=rest("Pod", names.LABEL_GROUP),
        deployments=[
            *rest("Deployment", names.LABEL_GROUP),
            *(rest(LEADER_WORKER_SET, names.LABEL_GROUP) if any(map(_has_several_nodes, groups)) else ()),
        ],
        events=rest("Event", fields="involvedObject.kind=PromptGroup"),
        unknown=tuple(unknown),
        kubectl=cluster.kubectl,
    )


def _has_several_nodes(group: Manifest) -> bool:
    nodes = group.get("spec", {}).get("engine", {}).get("nodes", 1)
    return isinstance(nodes, int) and nodes > 1
