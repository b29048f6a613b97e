"""Scrape the metrics of the routers that serve a group, no more often than a group needs it.

The operator seldom lists routers at the API server: the number of peers that routers report shows that one was added.
"""

import logging
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from promptgroup_operator.base.errors import ClusterError, EngineError
from promptgroup_operator.base.fair_pool import FairPool
from promptgroup_operator.load.router_metrics import RouterCounts, parse
from promptgroup_operator.world.snapshot import ContainerId, Key

logger = logging.getLogger(__name__)

LISTED = timedelta(minutes=5)
"""Time between two list requests for a namespace's routers: the time between two resyncs."""
LISTS = 20
"""Readings between two list requests where readings are frequent: 40 s during a release."""
LISTED_AGAIN = timedelta(seconds=10)
"""Time between two list requests while a router does not respond, or routers report more peers than before."""
MAX_ROUTERS = 32
"""Maximum number of routers that are read per namespace: of more, those whose containers were listed first."""
PAGE = 4 << 20
"""Maximum size of a router's page in bytes: 30 revisions with 130 KB each, whose clients send all kinds of requests."""
SECONDS = 5.0
"""Time limit in seconds for all routers of a namespace; a router that responds later counts as not read."""
FORGOTTEN = timedelta(minutes=10)
"""Time without a read after which the record of a router is deleted."""

_PEERS = re.compile(r"^promptgroup_router_peers ([0-9]{1,6})$", re.MULTILINE | re.ASCII)


class _Answer(NamedTuple):
    """The part of a router's page that is used."""

    peers: int | None
    """Number of peers that the router reports; None if it reports none."""
    counts: Mapping[Key, RouterCounts]


class RouterScraper:
    """Reads the routers of all namespaces. Safe to use from many threads.

    Args:
        listed: lists a namespace's routers: container → address of its admin port.
        text: returns the metrics page at an address, up to a limit in bytes.
        is_group: returns True for a group that exists.
        trusted: namespaces whose routers serve groups of other namespaces (`--router-namespaces`).
        pool: the threads in which routers are read.
    """

    def __init__(
        self,
        listed: Callable[[str], Mapping[ContainerId, str]],
        text: Callable[[str, int], str],
        is_group: Callable[[Key], bool],
        trusted: Collection[str],
        pool: FairPool,
    ) -> None:
        self._listed = listed
        self._text = text
        self._is_group = is_group
        self._trusted = frozenset(trusted)
        self._pool = pool
        self._cached: dict[str, tuple[datetime, Mapping[ContainerId, str]]] = {}
        """Namespace → time of the last list request, and the routers that it returned."""
        self._peers: dict[str, int] = {}
        """Namespace → highest number of peers that its routers report."""
        self._doubtful: set[str] = set()
        """Namespaces whose list may be out of date."""
        self._claimed: dict[ContainerId, datetime] = {}
        """Container of a router → time at which a pass last began to read it."""
        self._lock = threading.Lock()

    def read(self, namespace: str, now: datetime, period: timedelta) -> dict[ContainerId, Mapping[Key, RouterCounts]]:
        """Read the routers that serve a namespace's groups, except those that were read within the period.

        Returns:
            Container of a router → its counters for each group.
        """
        result: dict[ContainerId, Mapping[Key, RouterCounts]] = {}
        for item in sorted({namespace, *self._trusted}):
            result |= self._read(item, now, period)
        return result

    def _read(self, namespace: str, now: datetime, period: timedelta) -> dict[ContainerId, Mapping[Key, RouterCounts]]:
        routers = self._routers(namespace, now, min(LISTED, LISTS * period))
        due = [router for router in routers if self._claim(router, now, period)]

        def serves(key: Key) -> bool:
            return (key.namespace == namespace or namespace in self._trusted) and self._is_group(key)

        def ask(router: ContainerId) -> _Answer | None:
            return self._ask(routers[router], serves)

        answers = self._pool.map(namespace, ask, due, SECONDS)
        self._doubt(namespace, answers)
        return {router: item.counts for router, item in zip(due, answers, strict=True) if item is not None}

    def _claim(self, router: ContainerId, now: datetime, period: timedelta) -> bool:
        """Return True if the router is due, and mark it as read, so that no other pass reads it as well."""
        with self._lock:
            last = self._claimed.get(router)
            if last is not None and now - last < period:
                return False
            self._claimed = {container_id: at for container_id, at in self._claimed.items() if now - at <= FORGOTTEN}
            self._claimed[router] = now
            return True

    def _doubt(self, namespace: str, answers: Sequence[_Answer | None]) -> None:
        peerses = [answer.peers for answer in answers if answer is not None]
        peers = max((item for item in peerses if item is not None), default=None)
        with self._lock:
            grown = peers is not None and peers > self._peers.get(namespace, 0)
            if peers is not None:
                self._peers[namespace] = peers
            if grown or None in answers:
                self._doubtful.add(namespace)

    def _routers(self, namespace: str, now: datetime, listed: timedelta) -> Mapping[ContainerId, str]:
        with self._lock:
            at, routers = self._cached.get(namespace, (None, {}))
            if at is not None and now - at < (min(LISTED_AGAIN, listed) if namespace in self._doubtful else listed):
                return routers
            self._cached[namespace] = now, routers  # used by other passes meanwhile
            self._doubtful.discard(namespace)
        try:
            result = self._listed(namespace)
        except ClusterError as error:  # the pass continues without the routers' figures
            logger.warning("%s: routers cannot be listed: %s", namespace, error)
            with self._lock:
                self._doubtful.add(namespace)
            return routers
        if len(result) > MAX_ROUTERS:
            logger.warning("%s: %d routers; %d of them are read", namespace, len(result), MAX_ROUTERS)
            result = dict(islice(result.items(), MAX_ROUTERS))
        with self._lock:
            self._cached[namespace] = now, result
        return result

    def _ask(self, address: str, serves: Callable[[Key], bool]) -> _Answer | None:
        """Fetch and parse a router's page in the same thread, so that memory holds one page per thread at most."""
        try:
            page = self._text(address, PAGE)
        except EngineError as error:
            logger.debug("router at %s: %s", address, error)
            return None
        peers = _PEERS.search(page)
        return _Answer(int(peers[1]) if peers is not None else None, parse(page, serves))
