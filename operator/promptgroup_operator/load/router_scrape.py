"""Reads the routers that serve a group, no more often than somebody needs it.

Which routers there are is asked of the API server seldom: their own count of each other shows that one has come.
"""

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta

from promptgroup_operator.base.errors import ClusterError, EngineError
from promptgroup_operator.load.router_history import RouterHistory
from promptgroup_operator.load.router_metrics import parse

logger = logging.getLogger(__name__)

LISTED = timedelta(minutes=5)
"""Time between two lists of a namespace's routers: as seldom as a resync."""
LISTS = 20
"""Readings for one list of them where readings are frequent: 40 s in a release."""
LISTED_AGAIN = timedelta(seconds=10)
"""The same while one does not answer, or others that are not known are said to be there."""

_PEERS = re.compile(r"^promptgroup_router_peers (\d+)$", re.MULTILINE)


class RouterScraper:
    """The routers of all namespaces.

    Args:
        listed: namespace → container and address of the admin port of each router there.
        text: address → its metrics, as they are.
        readings: where they go.
        pool: where they are read.
    """

    def __init__(
        self,
        listed: Callable[[str], Mapping[str, str]],
        text: Callable[[str], str],
        readings: RouterHistory,
        pool: Executor,
    ) -> None:
        self._listed = listed
        self._text = text
        self._readings = readings
        self._pool = pool
        self._known: dict[str, tuple[datetime, Mapping[str, str]]] = {}
        """Namespace → when its routers were listed, and they."""
        self._crowd: dict[str, int] = {}
        """Namespace → other routers that the ones there know of."""
        self._doubtful: set[str] = set()
        """Namespaces whose list may be out of date."""
        self._lock = threading.Lock()

    def read(self, namespaces: Iterable[str], now: datetime, period: timedelta) -> None:
        """Read every router of these namespaces that was not read for so long; their list may be older."""
        for namespace in namespaces:
            routers = self._of(namespace, now, min(LISTED, LISTS * period))
            due = [router for router in routers if self._readings.take(router, now, period)]
            pages = list(self._pool.map(self._page, (routers[each] for each in due)))
            for router, text in zip(due, pages, strict=True):
                if text is not None:
                    self._readings.add(router, parse(text), now)
            self._doubt(namespace, pages)

    def _doubt(self, namespace: str, pages: Sequence[str | None]) -> None:
        found = [_PEERS.search(text) for text in pages if text is not None]
        crowd = max((int(peers[1]) for peers in found if peers is not None), default=None)
        with self._lock:
            grown = crowd is not None and crowd > self._crowd.get(namespace, 0)
            if crowd is not None:
                self._crowd[namespace] = crowd
            if grown or None in pages:
                self._doubtful.add(namespace)

    def _of(self, namespace: str, now: datetime, listed: timedelta) -> Mapping[str, str]:
        with self._lock:
            at, routers = self._known.get(namespace, (None, {}))
            if at is not None and now - at < (min(LISTED_AGAIN, listed) if namespace in self._doubtful else listed):
                return routers
            self._known[namespace] = now, routers  # others use these meanwhile
            self._doubtful.discard(namespace)
        try:
            found = self._listed(namespace)
        except ClusterError as error:  # figures of clients can wait; what serves does not
            logger.warning("%s: routers cannot be found: %s", namespace, error)
            with self._lock:
                self._doubtful.add(namespace)
            return routers
        with self._lock:
            self._known[namespace] = now, found
        return found

    def _page(self, address: str) -> str | None:
        try:
            return self._text(address)
        except EngineError as error:
            logger.debug("router at %s: %s", address, error)
            return None
