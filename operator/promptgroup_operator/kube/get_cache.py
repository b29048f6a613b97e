"""Copies of objects that are read by name and are not watched: an operator should not need the right to list Secrets.

A copy is used again while it is young, and while users have not changed the group that asks since it was read. That
there is no such object is never remembered. The copies hold prompts and templates, so their size together is bounded:
they are kept as JSON, whose size no structure hides.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from promptgroup_operator.world.snapshot import Key, Manifest

Read = Callable[[str, str, str], Manifest | None]
"""Kind, namespace, name → the object; None if there is none."""

KEPT_SECONDS = 3600.0
"""Age beyond which a copy is dropped: it belongs to a group that is gone."""
MAX_BYTES = 64 << 20
"""Most bytes of all copies: seventy prompts of the largest size, or thousands of common ones. Beyond it the copies that
were used least recently are dropped, and read again when they are needed."""


@dataclass(frozen=True, slots=True)
class _Copy:
    found: bytes
    """The object as JSON."""
    read: float
    """Time at which it was requested."""


class GetCache:
    """Copies for one operator process. Safe to use from many threads."""

    def __init__(self, read: Read, clock: Callable[[], float] = monotonic) -> None:
        self._read = read
        self._clock = clock
        self._copies: OrderedDict[tuple[str, str, str], _Copy] = OrderedDict()
        """The copy that was used least recently comes first."""
        self._size = 0
        self._groups: dict[Key, tuple[str, float]] = {}
        """Group → hash of what users wrote of it, and when a pass first saw it so."""
        self._lock = threading.Lock()

    def begin_pass(self, key: Key, written: str) -> None:
        """Note that a pass begins on the group as it is, by a digest of what users wrote of it."""
        with self._lock:
            if self._groups.get(key, ("", 0.0))[0] != written:
                self._groups[key] = written, self._clock()

    def forget_group(self, key: Key) -> None:
        """Drop a group that is gone."""
        with self._lock:
            self._groups.pop(key, None)

    def get(self, key: Key, kind: str, name: str, seconds: float) -> Manifest | None:
        """Return the object as it was at most `seconds` ago, and after the group's last change; None if there is none.

        Raises:
            ClusterError: the API server did not answer or refused.
        """
        now = self._clock()
        with self._lock:
            copy = self._copies.get((kind, key.namespace, name))
            if copy is not None:
                self._copies.move_to_end((kind, key.namespace, name))
            since = self._groups.get(key, ("", now))[1]
        if copy is not None and copy.read >= since and now - copy.read < seconds:
            found: Manifest = json.loads(copy.found)
            return found
        fresh = self._read(kind, key.namespace, name)
        if fresh is None:
            self.drop(kind, key.namespace, name)
        else:
            self._keep(kind, fresh, now)
        return fresh

    def record_write(self, kind: str, answer: Manifest) -> None:
        """Keep the API server's answer to a write of this process."""
        self._keep(kind, answer, self._clock())

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """Drop an object that is gone, or may be."""
        with self._lock:
            self._remove((kind, namespace, name))

    def _keep(self, kind: str, found: Manifest, now: float) -> None:
        metadata, copy = found["metadata"], _Copy(json.dumps(found, separators=(",", ":")).encode(), now)
        with self._lock:
            for known, each in list(self._copies.items()):
                if now - each.read > KEPT_SECONDS:
                    self._remove(known)
            name = kind, metadata["namespace"], metadata["name"]
            self._remove(name)
            self._copies[name] = copy
            self._size += len(copy.found)
            while self._size > MAX_BYTES:
                self._remove(next(iter(self._copies)))

    def _remove(self, name: tuple[str, str, str]) -> None:
        """Drop a copy; the lock is held."""
        copy = self._copies.pop(name, None)
        if copy is not None:
            self._size -= len(copy.found)
