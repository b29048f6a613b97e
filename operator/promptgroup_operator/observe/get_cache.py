"""Copies of objects that are read by name and are not watched: an operator should not need the right to list Secrets.

A copy is used again while it is young, and while users have not changed the group that asks since it was read. That
there is no such object is never remembered. One that cannot be read is used as it was read last, however old that is,
is tried again after a back-off, and is told by `problem`: it stops nothing of its group. The copies hold prompts and
templates, so their size together is bounded: they are kept as JSON, whose size no structure hides.
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

KEPT_SECONDS = 3600.0
"""Time after which a copy that nobody has asked for is dropped: it belongs to a group that is gone."""
MAX_BYTES = 64 << 20
"""Most bytes of all copies: seventy prompts of the largest size, or thousands of common ones. Beyond it the copies that
were used least recently are dropped, and read again when they are needed."""
SLOWEST = 4
"""Reads that may go unanswered in one pass; what else is to be read is left to later ones. Each takes
`api_server.REQUEST_SECONDS`, and a pass must end within handlers.STUCK."""


@dataclass(slots=True)
class _Copy:
    found: bytes
    """The object as JSON."""
    read: float
    """Time at which it was requested."""
    used: float
    """Time at which it was asked for last."""


@dataclass(frozen=True, slots=True)
class _FailedRead:
    error: ClusterError
    tries: int
    not_before: float
    """Time of the next try."""


@dataclass(slots=True)
class _Group:
    """The answers that passes over one group have read."""

    written: str = ""
    """Hash of what users wrote of it."""
    since: float = 0.0
    """Time at which a pass first saw it so."""
    known: dict[tuple[str, str], _FailedRead] = field(default_factory=dict)
    """Kind and name of what could not be read in the pass before."""
    failed: dict[tuple[str, str], _FailedRead] = field(default_factory=dict)
    """The same of this pass."""
    unanswered: int = 0


class GetCache:
    """Copies for one operator process. Safe to use from many threads; passes over one group follow each other.

    Args:
        read: reads an object.
        clock: monotonic seconds.
        is_away: asks the API server for the group; True if that is not answered either.
    """

    def __init__(
        self, read: Read, clock: Callable[[], float] = monotonic, is_away: Callable[[Key], bool] = lambda _: False
    ) -> None:
        self._read = read
        self._is_away = is_away
        self._clock = clock
        self._copies: OrderedDict[tuple[str, str, str], _Copy] = OrderedDict()
        """The copy that was used least recently comes first."""
        self._size = 0
        self._groups: dict[Key, _Group] = {}
        self._lock = threading.Lock()

    def begin_pass(self, key: Key, written: str) -> None:
        """Note that a pass begins on the group as it is, by a digest of what users wrote of it."""
        with self._lock:
            group = self._groups.setdefault(key, _Group())
            if group.written != written:
                group.written, group.since = written, self._clock()
            group.known, group.failed, group.unanswered = group.failed, {}, 0

    def forget(self, key: Key) -> None:
        """Drop a group that is gone."""
        with self._lock:
            self._groups.pop(key, None)

    def get(self, key: Key, kind: str, name: str, seconds: float) -> Manifest | None:
        """Return the object as it was at most `seconds` ago, and after the group's last change; None if there is none.

        One that cannot be read is returned as it was read last.

        Raises:
            UnreadError: it cannot be read, and never was.
            ClusterError: the whole API server does not answer.
        """
        now = self._clock()
        with self._lock:
            copy = self._copies.get((kind, key.namespace, name))
            if copy is not None:
                copy.used = now
                self._copies.move_to_end((kind, key.namespace, name))
            group = self._groups.get(key) or _Group(since=now)
        manifest: Manifest | None = json.loads(copy.found) if copy is not None else None
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
        """Read an object, unless that failed lately.

        Raises:
            UnreadError: it cannot be read.
            ClusterError: the whole API server does not answer.
        """
        began, before = self._clock(), group.failed.get((kind, name)) or group.known.get((kind, name))
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
        """Return what this pass could not read of a group, in the API server's words; empty if it read all."""
        with self._lock:
            failed = list(self._groups[key].failed.values()) if key in self._groups else []
        if not failed:
            return ""
        more = f"; {len(failed) - 1} more objects cannot be read" if len(failed) > 1 else ""
        return f"{max(failed, key=lambda failure: failure.error.is_refusal).error}{more}"

    def due(self, key: Key) -> timedelta:
        """Return the time until the next of the failed reads is tried again; without end if none failed."""
        with self._lock:
            times = [failure.not_before for failure in self._groups[key].failed.values()] if key in self._groups else []
        return timedelta(seconds=max(0.0, min(times) - self._clock())) if times else timedelta.max

    def record_write(self, kind: str, answer: Manifest) -> None:
        """Keep the API server's answer to a write of this process."""
        self._keep(kind, answer, self._clock())

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """Drop an object that is gone, or may be."""
        with self._lock:
            self._remove((kind, namespace, name))

    def _keep(self, kind: str, manifest: Manifest, now: float) -> None:
        metadata, copy = manifest["metadata"], _Copy(json.dumps(manifest, separators=(",", ":")).encode(), now, now)
        with self._lock:
            name = kind, metadata["namespace"], metadata["name"]
            self._remove(name)
            self._copies[name] = copy
            self._size += len(copy.found)
            while self._copies:
                oldest, least_used = next(iter(self._copies.items()))
                if self._size <= MAX_BYTES and now - least_used.used <= KEPT_SECONDS:
                    break
                self._remove(oldest)

    def _remove(self, name: tuple[str, str, str]) -> None:
        """Drop a copy; the lock is held."""
        copy = self._copies.pop(name, None)
        if copy is not None:
            self._size -= len(copy.found)
