"""List watched kinds periodically: every group gets a pass, missed deletions are applied, silent watches are detected.

Kopf informs no handler that it has listed again, as it does after 410, nor which objects are missing from the list. So
each list of Kopf is followed by one of this module, with metadata only: an object that it lacks has been deleted.

A watch may also become silent while its connection stays open. An object whose version differs from the delivered one
is recorded; if the watch delivers no event of it before the next list, the watch has missed it. One list alone is no
proof, since an event may still arrive.
"""

import contextlib
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.api_server import KubeClient, collection_path, list_objects
from promptgroup_operator.kube.store import Listed, ObjectName, Store
from promptgroup_operator.world.lookup import KINDS
from promptgroup_operator.world.snapshot import Key, Manifest

logger = logging.getLogger(__name__)

JITTER = 0.2
"""Share of the interval by which lists are spread, so that several operators do not list at the same time."""
RETRY_SECONDS = 5.0
"""Pause after a list that failed, so that deleted objects do not stay in the store for a whole interval."""

POLL_SECONDS = 0.02
"""Time between two checks of a store that fills."""

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The server leaves out spec and status (KEP-2334)."""


class Resync:
    """Runs beside the watches, on the leader and on standbys.

    Args:
        client: client of the API server.
        changed: called with each group, to queue a pass.
        stores: kind → store that its watch fills.
        namespaces: namespaces that are served; all of them if it is empty.
        seconds: time between two lists.
    """

    def __init__(
        self,
        client: KubeClient,
        changed: Callable[[Key], None],
        stores: Mapping[str, Store],
        namespaces: Sequence[str],
        seconds: float,
    ) -> None:
        self._client = client
        self._changed = changed
        self._stores = stores
        self._seconds = seconds
        self._gaps = set[tuple[str, ObjectName, int | None]]()
        """Kind and name of objects whose latest version no watch has delivered, and the version that was delivered."""
        self._relisted: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        """Kinds and namespaces that Kopf has listed."""
        self.silent: tuple[str, ...] = ()
        """Kinds whose watch missed something at the last two lists."""
        self._places = [(kind, namespace) for kind in stores for namespace in namespaces or ("",)]
        self._unfilled = set(self._places)
        """Kinds and namespaces whose objects of the start have not all been handled yet."""
        self._filled = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="resync", daemon=True)

    def start(self) -> None:
        """Start to list. The first list is one interval later, since watches begin with lists of their own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listing."""
        self._stopped = True
        self._relisted.put(None)  # which wakes the thread
        self._filled.set()

    def relisted(self, kind: str, namespace: str) -> None:
        """Note that Kopf has listed a kind in a namespace, or in all of them."""
        self._relisted.put((kind, namespace))

    def wait_until_filled(self) -> bool:
        """Wait until the stores have all objects that existed at the start; return False if it is stopped before."""
        self._filled.wait()
        return not self._stopped

    def _run(self) -> None:
        due = self._next()
        behind: list[tuple[str, str]] = []
        """Kinds and namespaces that Kopf has listed, and this process has not since."""
        while True:
            with contextlib.suppress(queue.Empty):
                place = self._relisted.get(timeout=max(0.0, due - time.monotonic()))
                behind += [place] if place is not None and place not in behind else []
            if self._stopped:
                return
            try:
                while behind:
                    self._after_list(*behind[0])
                    del behind[0]
                if time.monotonic() >= due:
                    due = self._next()
                    self.step()
            except ClusterError as error:
                logger.warning("resync: %s", error)
                due = min(due, time.monotonic() + RETRY_SECONDS)

    def _after_list(self, kind: str, namespace: str) -> None:
        """Delete the objects that a list of Kopf lacks; wait until all objects of the first list were handled."""
        listed = self._list(kind, namespace)
        while (kind, namespace) in self._unfilled and not self._stopped:
            if self._stores[kind].has(listed):
                self._unfilled.discard((kind, namespace))
            else:
                time.sleep(POLL_SECONDS)
        if not self._unfilled:
            self._filled.set()

    def _next(self) -> float:
        return time.monotonic() + self._seconds * (1 + JITTER * (random.random() - 0.5))  # noqa: S311 - spreads load

    def step(self) -> None:
        """List everything once.

        Raises:
            ClusterError: the API server did not answer or refused; the findings about the watches stay as they are.
        """
        gaps = set[tuple[str, ObjectName, int | None]]()
        for kind, namespace in self._places:
            listed, delivered = self._list(kind, namespace), self._stores[kind].versions()
            gaps |= {(kind, name, delivered.get(name)) for name, (_, at) in listed.items() if delivered.get(name) != at}
        for namespace, name in self._stores["PromptGroup"].versions():
            self._changed(Key(namespace, name))
        self.silent = tuple(sorted({kind for kind, _, _ in gaps & self._gaps}))
        self._gaps = gaps
        if self.silent:
            logger.error("watches deliver no events: %s", ", ".join(self.silent))

    def _list(self, kind: str, namespace: str) -> dict[ObjectName, Listed]:
        """Return the objects of a kind in a namespace, or in all, and delete all others from the store.

        Raises:
            ClusterError: the API server did not answer or refused.
        """
        path = collection_path(kind, namespace)
        query = {"labelSelector": KINDS[kind]} if KINDS[kind] else {}
        items, version = list_objects(self._client, path, query, _listed, accept=METADATA_ONLY)
        listed: dict[ObjectName, Listed] = dict(items)
        self._stores[kind].keep_only(namespace, listed, int(version))
        return listed


def _listed(item: Manifest) -> tuple[ObjectName, Listed]:
    metadata = item["metadata"]
    return (metadata["namespace"], metadata["name"]), (metadata["uid"], int(metadata["resourceVersion"]))
