"""List what is watched, now and then: every group gets a pass, and a watch that has gone silent is found."""

import logging
import random
import threading
from collections.abc import Mapping, Sequence

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube import watch_check
from promptgroup_operator.kube.api_server import KubeClient, collection_path, list_objects
from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.kube.watch_check import Gap, Name
from promptgroup_operator.kube.work_queue import WorkQueue
from promptgroup_operator.world.snapshot import Key

logger = logging.getLogger(__name__)

JITTER = 0.2
"""Share of the interval by which lists are spread, so that several operators do not list at the same time."""

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The server leaves out spec and status (KEP-2334)."""


class Resync:
    """Runs beside the watches, on the leader and on standbys.

    Args:
        client: client of the API server.
        queue: queue to which groups are added.
        stores: kind → store that its watch fills.
        namespaces: namespaces that are served; all of them if it is empty.
        seconds: time between two lists.
    """

    def __init__(
        self,
        client: KubeClient,
        queue: WorkQueue,
        stores: Mapping[str, Store],
        namespaces: Sequence[str],
        seconds: float,
    ) -> None:
        self._client = client
        self._queue = queue
        self._stores = stores
        self._namespaces = namespaces or ("",)
        self._seconds = seconds
        self._gaps: frozenset[Gap] = frozenset()
        self._silent: tuple[str, ...] = ()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resync", daemon=True)

    @property
    def silent(self) -> tuple[str, ...]:
        """Return the kinds whose watch missed something at the last two lists."""
        return self._silent

    def start(self) -> None:
        """Start to list. The first list comes after an interval, since watches begin with lists of their own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listing."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds * (1 + JITTER * (random.random() - 0.5))):  # noqa: S311 - spreads
            try:
                self.step()
            except ClusterError as error:
                logger.warning("resync: %s", error)

    def step(self) -> None:
        """List everything once.

        Raises:
            ClusterError: the API server did not answer or refused; the findings about the watches stay as they are.
        """
        found = frozenset[Gap]()
        for kind, store in self._stores.items():
            if store.refused() is not None:
                continue  # its watch asks by itself
            listed = self._list(kind, KINDS[kind])
            found |= watch_check.gaps(kind, store.versions(), listed)
            if kind == "PromptGroup":
                for namespace, name in listed:
                    self._queue.add(Key(namespace, name))
        self._silent = watch_check.silent(self._gaps, found)
        self._gaps = found
        if self._silent:
            logger.error("watches deliver no events: %s", ", ".join(self._silent))

    def _list(self, kind: str, selector: str) -> dict[Name, str]:
        query = {"labelSelector": selector} if selector else {}
        listed: dict[Name, str] = {}
        for namespace in self._namespaces:
            path = collection_path(kind, namespace)
            items, _ = list_objects(self._client, path, query, lambda each: each["metadata"], accept=METADATA_ONLY)
            try:
                listed |= {(each["namespace"], each["name"]): each["resourceVersion"] for each in items}
            except KeyError as error:
                raise ClusterError(f"GET {path}: an object of the list has no {error}") from error
        return listed
