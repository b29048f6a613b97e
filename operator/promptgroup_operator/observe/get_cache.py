"""Cache of objects that are read by name and not watched, so that the operator needs no permission to list Secrets.

A copy is used until its maximum age, and only if users have not changed the requesting group since it was read. The
absence of an object is never cached. If an object cannot be read, its last copy is used regardless of its age; the read
is retried after a back-off, and `problem` reports it, so that the group's pass can continue. Copies hold prompts and
templates, so their total size is limited: they are stored as JSON, whose size can be measured exactly.
"""

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from promptgroup_operator.base.backoff import retry_seconds
from promptgroup_operator.base.errors import ClusterError, UnreadError
from promptgroup_operator.world.snapshot import Key, Manifest

logger = logging.getLogger(__name__)

Read = Callable[[str, str, str], Manifest | None]
"""Kind, namespace, name → the object; None if there is none."""

UNUSED_SECONDS = 3600.0
"""Time in seconds after which an unused copy is evicted: its group does not exist any more."""
MAX_BYTES = 64 << 20
"""Maximum size of all copies in bytes: seventy prompts of the largest size, or thousands of common ones. Beyond it the
least recently used copies are evicted, and read again when they are needed."""
SLOWEST = 4
"""Maximum number of reads without a response in one pass; further reads are left to later passes. Each of them takes
`api_server.REQUEST_SECONDS`, and a pass must end within handlers.STUCK."""


@dataclass(slots=True)
class _Copy:
    content: bytes
    """The object as JSON."""
    read: float
    """Time at which the read was sent."""
    used: float
    """Time of the last use."""


@dataclass(frozen=True, slots=True)
class _FailedRead:
    error: ClusterError
    tries: int
    not_before: float
    """Time of the next attempt."""


@dataclass(slots=True)
class _Group:
    """The state of reads by passes over one group."""

    written: str = ""
    """Hash of the parts of the group that users write."""
    since: float = 0.0
    """Time at which a pass first observed this hash."""
    before: dict[tuple[str, str], _FailedRead] = field(default_factory=dict)
    """Kind and name → failed read in the previous pass."""
    failed: dict[tuple[str, str], _FailedRead] = field(default_factory=dict)
    """Kind and name → failed read in this pass."""
    unanswered: int = 0


class GetCache:
    """The cache of one operator process. Safe to use from many threads; passes over one group are sequential.

    Args:
        read: reads an object.
        clock: monotonic seconds.
        is_away: reads the group from the API server; True if that read has no response either.
    """

    def __init__(
        self, read: Read, clock: Callable[[], float] = monotonic, is_away: Callable[[Key], bool] = lambda _: False
    ) -> None:
        self._read = read
        self._is_away = is_away
        self._clock = clock
        self._copies: OrderedDict[tuple[str, str, str], _Copy] = OrderedDict()
        """Copies in order of their last use, the least recently used first."""
        self._size = 0
        self._groups: dict[Key, _Group] = {}
        self._lock = threading.Lock()

    def begin_pass(self, key: Key, written: str) -> None:
        """Record that a pass begins over the group, with a digest of the parts that users write."""
        with self._lock:
            group = self._groups.setdefault(key, _Group())
            if group.written != written:
                group.written, group.since = written, self._clock()
            group.before, group.failed, group.unanswered = group.failed, {}, 0

    def forget(self, key: Key) -> None:
        """Delete the state of a group that does not exist any more."""
        with self._lock:
            self._groups.pop(key, None)

    def get(self, key: Key, kind: str, name: str, seconds: float) -> Manifest | None:
        """Return the object, read at most `seconds` ago and after the group's last change; None if there is none.

        If it cannot be read, the last copy is returned.

        Raises:
            UnreadError: it cannot be read, and there is no copy.
            ClusterError: the API server as a whole does not respond.
        """
        now = self._clock()
        with self._lock:
            copy = self._copies.get((kind, key.namespace, name))
            if copy is not None:
                copy.used = now
                self._copies.move_to_end((kind, key.namespace, name))
            group = self._groups.get(key) or _Group(since=now)
        manifest: Manifest | None = json.loads(copy.content) if copy is not None else None
        if copy is not None and copy.read >= group.since and now - copy.read < seconds:
            return manifest
        try:
            fresh = self._fresh(key, group, kind, name)
        except UnreadError:
            if manifest is None:
                raise
            return manifest
        if fresh is None:
            self.drop(kind, key.namespace, name)
        else:
            self._keep(kind, fresh, now)
        return fresh

    def _fresh(self, key: Key, group: _Group, kind: str, name: str) -> Manifest | None:
        """Read an object, unless a read failed and its back-off has not ended.

        Raises:
            UnreadError: it cannot be read.
            ClusterError: the API server as a whole does not respond.
        """
        began, before = self._clock(), group.failed.get((kind, name)) or group.before.get((kind, name))
        if before is not None and began < before.not_before:
            group.failed[kind, name] = before
            raise UnreadError(str(before.error), status=before.error.status)
        if group.unanswered >= SLOWEST:
            slow = UnreadError(f"{kind} {name}: other objects could not be read in time")
            group.failed[kind, name] = _FailedRead(slow, 0, began)
            raise slow
        try:
            return self._read(kind, key.namespace, name)
        except ClusterError as error:
            took = self._clock() - began
            if error.may_be_outage and self._is_away(key):
                raise
            group.unanswered += error.status is None
            tries = before.tries + 1 if before is not None else 1
            wait = retry_seconds(error, tries, took)
            group.failed[kind, name] = _FailedRead(error, tries, self._clock() + wait)
            logger.warning("%s/%s: %s; trying again in %.1f s", key.namespace, key.name, error, wait)
            raise UnreadError(str(error), status=error.status) from error

    def problem(self, key: Key) -> str:
        """Return the API server's message about failed reads of this pass; empty if there were none."""
        with self._lock:
            failed = list(self._groups[key].failed.values()) if key in self._groups else []
        if not failed:
            return ""
        more = f"; {len(failed) - 1} more objects cannot be read" if len(failed) > 1 else ""
        return f"{max(failed, key=lambda failure: failure.error.is_refusal).error}{more}"

    def due(self, key: Key) -> timedelta:
        """Return the time until the next failed read is retried; `timedelta.max` if none failed."""
        with self._lock:
            times = [failure.not_before for failure in self._groups[key].failed.values()] if key in self._groups else []
        return timedelta(seconds=max(0.0, min(times) - self._clock())) if times else timedelta.max

    def record_write(self, kind: str, answer: Manifest) -> None:
        """Cache the API server's response to a write of this process."""
        self._keep(kind, answer, self._clock())

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """Evict an object that does not exist any more, or may not."""
        with self._lock:
            self._remove((kind, namespace, name))

    def _keep(self, kind: str, manifest: Manifest, now: float) -> None:
        metadata, copy = manifest["metadata"], _Copy(json.dumps(manifest, separators=(",", ":")).encode(), now, now)
        with self._lock:
            name = kind, metadata["namespace"], metadata["name"]
            self._remove(name)
            self._copies[name] = copy
            self._size += len(copy.content)
            while self._copies:
                oldest, least_used = next(iter(self._copies.items()))
                if self._size <= MAX_BYTES and now - least_used.used <= UNUSED_SECONDS:
                    break
                self._remove(oldest)

    def _remove(self, name: tuple[str, str, str]) -> None:
        """Evict a copy; the lock must be held."""
        copy = self._copies.pop(name, None)
        if copy is not None:
            self._size -= len(copy.content)
