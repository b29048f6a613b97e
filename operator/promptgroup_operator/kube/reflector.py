"""List, then watch, and again: what keeps a store like the API server.

The steps are those of client-go's reflector. A watch goes on from the version that it last told of; where the server
no longer knows that version (410, after an outage or a long silence) a new list shows what came and what went
meanwhile. Kopf's watch lists anew as well, but has no word for what is missing in the list.
"""

import logging
import random
import threading
from collections.abc import Callable

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.api_server import KubeClient, collection_path
from promptgroup_operator.kube.rate_limit import WATCH_SECONDS_APART, RateLimit
from promptgroup_operator.kube.store import KINDS, Store, normalized
from promptgroup_operator.kube.work_queue import backoff

logger = logging.getLogger(__name__)

WATCH_SECONDS = 300
"""A watch is begun anew after so long, whether it seems alive or not."""
SILENT_SECONDS = 90.0
"""A watch is begun anew when it tells nothing for so long: the API server sends a bookmark each minute (KEP-956)."""
LISTED_POLL = 0.5
"""Seconds between two looks at whether to stop, while the first lists are awaited."""
GONE = 410
"""The server does not know the version any more."""


class Failures:
    """How many failures of one kind came in a row.

    A server that was away and now refuses has begun to answer, and may not have read the roles yet: the waits begin
    anew, else half a minute of an outage's backoff would follow the outage.
    """

    def __init__(self) -> None:
        self._status: int | None = None
        self._count = 0

    def add(self, status: int | None) -> int:
        """Count a failure of this status of HTTP, None where nobody answered; how many of these it makes in a row."""
        self._count = self._count + 1 if status == self._status else 1
        self._status = status
        return self._count


class Reflector:
    """Keeps the objects of one kind, of one namespace or of all, in a store. Runs in a thread of its own."""

    def __init__(self, server: KubeClient, kind: str, namespace: str, store: Store) -> None:
        self._server = server
        self._kind = kind
        self._namespace = namespace
        self._store = store
        self._path = collection_path(kind, namespace)
        self._query = {"labelSelector": KINDS[kind]} if KINDS[kind] else {}
        self._version = ""
        """From where to watch on; empty: a list comes first."""
        self._limit = RateLimit(WATCH_SECONDS_APART)
        self._failures = Failures()
        self._stopping = threading.Event()
        self.listed = threading.Event()
        """The store has what the first list showed."""
        where = f"-{namespace}" if namespace else ""
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind}{where}", daemon=True)

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """Tell no more; the request that runs ends with the process or by its own limit."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if not self._version:
                    self.list()
                self.watch()
                self._failures = Failures()
                wait = self._limit.reserve()  # a server may end watches at once
            except ClusterError as error:
                if error.status is not None:
                    self._version = ""  # refused: the version is too old, or the right to watch came and went
                failures = self._failures.add(error.status)
                pause = backoff(failures, random.random()).total_seconds()  # noqa: S311 - spreads load
                wait = max(pause, error.retry_after or 0.0)
                level = logging.INFO if error.status == GONE else logging.WARNING
                logger.log(level, "%s; again in %.1f s", error, wait)
            self._stopping.wait(wait)

    def list(self) -> None:
        """Put what stands into the store.

        Raises:
            ClusterError: the API server could not be asked.
        """
        answer = self._server.request("GET", self._path, query=self._query)
        version = str(answer["metadata"]["resourceVersion"])
        self._store.replace(self._namespace, (normalized(each, self._kind) for each in answer["items"]), version)
        self._version = version
        self.listed.set()

    def watch(self) -> None:
        """Follow one watch to its end.

        Raises:
            ClusterError: the server refused, fell silent, or ended the watch with an error.
        """
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        for event in self._server.watch(self._path, query, SILENT_SECONDS):
            if self._stopping.is_set():
                break
            told = event["object"]
            if event["type"] == "ERROR":
                raise ClusterError(f"watch {self._path}: {told.get('message')}", status=told.get("code", GONE))
            self._store.handle_event(self._namespace, event["type"], normalized(told, self._kind))
            self._version = told["metadata"]["resourceVersion"]
            self._failures = Failures()


class Reflectors:
    """All watches of the operator and their stores."""

    def __init__(self, server: KubeClient, stores: dict[str, Store], namespaces: tuple[str, ...]) -> None:
        self._all = [
            Reflector(server, kind, namespace, store)
            for kind, store in stores.items()
            for namespace in namespaces or ("",)
        ]

    def start(self) -> None:
        """Begin to list and watch."""
        for each in self._all:
            each.start()

    def stop(self) -> None:
        """Tell no more."""
        for each in self._all:
            each.stop()

    def wait(self, stopped: Callable[[], bool]) -> bool:
        """Wait until every store has its first list; False when stopped before."""
        for each in self._all:
            while not each.listed.wait(LISTED_POLL):
                if stopped():
                    return False
        return True
