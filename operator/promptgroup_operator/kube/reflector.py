"""List, then watch: keep a store equal to the API server.

The steps are those of client-go's reflector. A watch continues from the version of its last event. If the server no
longer has that version (410, after an outage or a long silence), a new list shows what came and what went meanwhile.
"""

import logging
import random
import threading
from collections.abc import Callable
from time import monotonic

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.api_server import GONE, KubeClient, collection_path, list_objects
from promptgroup_operator.kube.store import KINDS, OPTIONAL, REFUSED, Store
from promptgroup_operator.kube.work_queue import backoff
from promptgroup_operator.world.kept import kept

logger = logging.getLogger(__name__)

WATCH_SECONDS = 300
"""Time after which a watch is begun anew, alive or not."""
SILENT_SECONDS = 90.0
"""Time without any event after which a watch is begun anew; the API server sends a bookmark each minute (KEP-956)."""
LISTED_POLL = 0.5
"""Seconds between two checks of the stop flag while the first lists are awaited."""
LAST_PAUSE = 5.0
"""Longest time in seconds between two tries after failures: a kind has one watch, and nobody waits long for a server
that is back."""
WATCH_SECONDS_APART = 1.0
"""Least time between two beginnings of one watch: a server may end watches at once. Nothing is lost meanwhile, since a
watch continues from a version."""


class RateLimit:
    """Lets something begin once in `seconds`. A caller that comes sooner is told how long to wait."""

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")

    def reserve(self) -> float:
        """Reserve the next turn.

        Returns:
            Seconds to wait until then.
        """
        now = self._clock()
        turn = max(now, self._next)
        self._next = turn + self._seconds
        return turn - now


class Failures:
    """A count of failures of one kind in a row.

    A server that was away and now refuses has begun to answer, and may not have read the roles yet: the back-off begins
    anew, so that half a minute of an outage's back-off does not follow the outage.
    """

    def __init__(self) -> None:
        self._status: int | None = None
        self._count = 0

    def add(self, status: int | None) -> int:
        """Count a failure by its HTTP status, None for no answer, and return how many of them came in a row."""
        self._count = self._count + 1 if status == self._status else 1
        self._status = status
        return self._count


class Reflector:
    """Keeps the objects of one kind, of one namespace or of all, in a store; runs in its own thread."""

    def __init__(self, client: KubeClient, kind: str, namespace: str, store: Store) -> None:
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._store = store
        self._path = collection_path(kind, namespace)
        self._query = {"labelSelector": KINDS[kind]} if KINDS[kind] else {}
        self._version = ""
        """Version from which to watch; if it is empty, a list comes first."""
        self._limit = RateLimit(WATCH_SECONDS_APART)
        self._failures = Failures()
        self._stopping = threading.Event()
        self.listed = threading.Event()
        """Set once the store has the objects of the first list."""
        where = f"-{namespace}" if namespace else ""
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind}{where}", daemon=True)

    def start(self) -> None:
        """Start to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """Deliver no more events; a running request ends with the process, or by its own deadline."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if not self._version:
                    self.list()
                self.watch()
                self._failures = Failures()
                wait = self._limit.reserve()
            except ClusterError as error:
                if error.status is not None:
                    self._version = ""  # the version is too old, or the right to watch was missing for a while
                failures = self._failures.add(error.status)
                pause = min(LAST_PAUSE, backoff(failures, random.random()).total_seconds())  # noqa: S311 - spreads load
                wait = max(pause, error.retry_after or 0.0)
                logger.log(self._level(error, failures), "%s; retrying in %.1f s", error, wait)
            self._stopping.wait(wait)
            # a kind that nobody installs, and no group wants, is not asked for: at rest there are watches alone
            while self._store.refused(self._namespace) is not None and not self._stopping.is_set():
                if self._store.wanted.wait(LISTED_POLL):
                    break

    def _level(self, error: ClusterError, failures: int) -> int:
        if error.status in REFUSED and self._kind in OPTIONAL:
            return logging.INFO if failures == 1 else logging.DEBUG  # for as long as nobody installs it
        return logging.INFO if error.status == GONE else logging.WARNING

    def list(self) -> None:
        """List the objects and replace the store's with them. An optional kind that is refused has none.

        Raises:
            ClusterError: the API server did not answer or refused, or its answer is not a list of objects.
        """
        try:
            objects, version = list_objects(self._client, self._path, self._query, lambda each: kept(each, self._kind))
        except ClusterError as error:
            if self._kind in OPTIONAL and error.status in REFUSED:
                self._store.refuse(self._namespace, error.status)
                self.listed.set()
            raise
        try:
            self._store.replace(self._namespace, objects, version)
        except (KeyError, TypeError, ValueError) as error:
            raise ClusterError(f"GET {self._path}: an object of the list has no name or version") from error
        self._version = version
        self.listed.set()

    def watch(self) -> None:
        """Follow one watch until it ends.

        Raises:
            ClusterError: the server refused, fell silent, ended the watch with an error, or sent something else.
        """
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        for event in self._client.watch(self._path, query, SILENT_SECONDS):
            if self._stopping.is_set():
                break
            try:
                found = event["object"]
                if event["type"] == "ERROR":
                    raise ClusterError(f"watch {self._path}: {found.get('message')}", status=found.get("code", GONE))
                self._store.handle_event(self._namespace, event["type"], kept(found, self._kind))
                self._version = found["metadata"]["resourceVersion"]
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ClusterError(f"watch {self._path}: an event is not one of Kubernetes", status=GONE) from error
            self._failures = Failures()


class Reflectors:
    """All watches of the operator."""

    def __init__(self, client: KubeClient, stores: dict[str, Store], namespaces: tuple[str, ...]) -> None:
        self._all = [
            Reflector(client, kind, namespace, store)
            for kind, store in stores.items()
            for namespace in namespaces or ("",)
        ]

    def start(self) -> None:
        """Start to list and watch."""
        for each in self._all:
            each.start()

    def stop(self) -> None:
        """Deliver no more events."""
        for each in self._all:
            each.stop()

    def wait(self, stopped: Callable[[], bool]) -> bool:
        """Wait until every store has its first list; return False if `stopped` returns True before."""
        for each in self._all:
            while not each.listed.wait(LISTED_POLL):
                if stopped():
                    return False
        return True
