"""Lists what is watched, now and then: every group gets a pass, and a watch that has gone silent is found out."""

import logging
import random
import threading
from collections.abc import Mapping, Sequence

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube import watch_check
from promptgroup_operator.kube.api_server import KubeClient, collection_path
from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.kube.watch_check import Gap, Name
from promptgroup_operator.kube.work_queue import WorkQueue
from promptgroup_operator.world.snapshot import Key

logger = logging.getLogger(__name__)

JITTER = 0.2
"""Share of the interval by which lists are spread, so that several operators do not ask in step."""

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The server leaves out spec and status (KEP-2334)."""


class Resync:
    """Runs beside the watches, on the process that leads and on those that wait.

    Args:
        server: the API server.
        queue: where groups are added.
        stores: kind → what the watches told.
        namespaces: those that are served; empty: all of them.
        seconds: time between two lists.
    """

    def __init__(
        self,
        server: KubeClient,
        queue: WorkQueue,
        stores: Mapping[str, Store],
        namespaces: Sequence[str],
        seconds: float,
    ) -> None:
        self._server = server
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
        """Kinds whose watch missed something at the last two lists."""
        return self._silent

    def start(self) -> None:
        """Begin to list; the watches begin with lists of their own, so the first comes after an interval."""
        self._thread.start()

    def stop(self) -> None:
        """List no more."""
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
            ClusterError: the API server could not be asked; what was known of the watches stands.
        """
        found = frozenset[Gap]()
        for kind, store in self._stores.items():
            listed = self._list(kind, KINDS[kind])
            found |= watch_check.gaps(kind, store.versions(), listed)
            if kind == "PromptGroup":
                for namespace, name in listed:
                    self._queue.add(Key(namespace, name))
        self._silent = watch_check.silent(self._gaps, found)
        self._gaps = found
        if self._silent:
            logger.error("watches have gone silent: %s", ", ".join(self._silent))

    def _list(self, kind: str, selector: str) -> dict[Name, str]:
        query = {"labelSelector": selector} if selector else {}
        listed = {}
        for namespace in self._namespaces:
            answer = self._server.request("GET", collection_path(kind, namespace), query=query, accept=METADATA_ONLY)
            for each in answer["items"]:
                metadata = each["metadata"]
                listed[metadata["namespace"], metadata["name"]] = metadata["resourceVersion"]
        return listed
