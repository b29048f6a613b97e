"""Hold the Lease, and say for how long this process may write.

The term ends by itself: a process that cannot renew stops writing RENEW_DEADLINE after it sent its last renewal, long
before another may take the lease. A lease is no fence, since a request that was sent in time may arrive late. Writes
are level-triggered, applied by one field manager and bound to the uid that was seen, so a late one does no harm.
"""

import logging
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic

from promptgroup_operator.base.errors import ClusterError, NotLeadingError
from promptgroup_operator.kube import lease
from promptgroup_operator.kube.api_server import KubeClient, collection_path, object_path
from promptgroup_operator.kube.lease import LeaseRecord

logger = logging.getLogger(__name__)

JITTER = 0.2
"""Share of RETRY by which reads of the lease are spread, so that two standbys do not stay in step."""


class Term:
    """The time in which this process may write. Without a lease it has no end."""

    def __init__(self, until: float, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until = until
        self._closed = False
        self._changed = threading.Condition()

    def seconds_left(self) -> float:
        """Return the seconds left for a write, above 0.

        Raises:
            NotLeadingError: the term is over.
        """
        left = self._until - self._clock()
        if left <= 0:
            raise NotLeadingError
        return left

    @property
    def is_leader(self) -> bool:
        """Return True while this process may write."""
        return self._until > self._clock()

    def extend(self, until: float) -> None:
        """Extend the term, because the lease was renewed."""
        with self._changed:
            if not self._closed:
                self._until = until
                self._changed.notify_all()

    def end(self) -> None:
        """End the term, because the lease is lost or given up."""
        self._until = float("-inf")

    def close(self) -> None:
        """End the term for good, and wake the threads that wait for it."""
        with self._changed:
            self._closed = True
            self.end()
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait until this process may write; return False once the term is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self.is_leader)
            return not self._closed


class LeaderElector:
    """Keeps a term extended while this process holds the lease.

    Args:
        server: client of the API server.
        namespace: namespace of the Lease.
        name: name of the Lease.
        identity: name of this process, which differs from every other's, also from earlier ones of the same pod.
        term: the term to extend.
    """

    def __init__(
        self, server: KubeClient, namespace: str, name: str, *, identity: str, term: Term,
        clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        self._server = server
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._term = term
        self._clock = clock
        self._record: LeaseRecord | None = None
        self._since = 0.0
        """Time at which the record was first seen."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def holder(self) -> str:
        """Return the holder of the lease by the last read; empty if it has none."""
        record = self._record
        return record.holder if record is not None else ""

    def start(self) -> None:
        """Start to read and renew the lease."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and release the lease if this process holds it, so that another takes it at once.

        The term must be closed before, and passes must have ended: nothing may be written after this.
        """
        self._stopping.set()
        self._thread.join(timeout=lease.REQUEST + 1)
        record = self._record
        if record is None or record.holder != self._identity:
            return
        try:
            self._write(lease.released_record(record, datetime.now(UTC)))
        except ClusterError as error:
            logger.warning("the lease is not released; others wait until it expires: %s", error)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.step()
            except ClusterError as error:
                logger.warning("lease %s/%s: %s", self._namespace, self._name, error)
            self._stopping.wait(lease.RETRY * (1 + JITTER * random.random()))  # noqa: S311 - spreads load

    def step(self) -> None:
        """Read the lease, and take or renew it if that is due.

        Raises:
            ClusterError: the API server did not answer, or refused.
        """
        mine = self.holder == self._identity
        if not mine:
            self._look()
        sent = self._clock()
        if not lease.is_free(self._identity, self._record, sent - self._since):
            return
        try:
            written = self._write(lease.renewed_record(self._identity, self._record, datetime.now(UTC)))
        except ClusterError as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise
            self._look()  # written since it was read: by another, or by a renewal of ours whose answer was lost
            if mine and self.holder != self._identity:
                self._term.end()
                logger.warning("no longer the leader: %r holds lease %s/%s", self.holder, self._namespace, self._name)
            return
        self._record, self._since = written, sent
        self._term.extend(sent + lease.RENEW_DEADLINE)
        if not mine:
            logger.info("leader: %s holds lease %s/%s", self._identity, self._namespace, self._name)

    def _look(self) -> None:
        path, record = object_path("Lease", self._namespace, self._name), None
        try:
            record = lease.decode(self._server.request("GET", path, limit=lease.REQUEST))
        except ClusterError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        if record != self._record:
            self._record, self._since = record, self._clock()

    def _write(self, record: LeaseRecord) -> LeaseRecord:
        body, path = lease.encode(record, self._namespace, self._name), collection_path("Lease", self._namespace)
        method, path = ("PUT", f"{path}/{self._name}") if record.version else ("POST", path)
        return lease.decode(self._server.request(method, path, body, "application/json", limit=lease.REQUEST))
