"""Objects that are read by name and may not be watched: to list Secrets is a right that an operator should not need.

A copy is used again while it is young, and while the group that asks has not been changed by its users since it was
read; a status is nobody's change. That there is no such object is never remembered.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from promptgroup_operator.world.snapshot import Key, Manifest

Read = Callable[[str, str, str], Manifest | None]
"""Kind, namespace, name → the object as it stands."""

KEPT_SECONDS = 3600.0
"""A copy that was not read anew for so long belongs to a group that is gone."""


@dataclass(frozen=True, slots=True)
class _Copy:
    found: Manifest
    read: float
    """When the reading began."""


class GetCache:
    """Copies for one operator process. Safe to use from many threads."""

    def __init__(self, read: Read, clock: Callable[[], float] = monotonic) -> None:
        self._read = read
        self._clock = clock
        self._cache: dict[tuple[str, str, str], _Copy] = {}
        self._groups: dict[Key, tuple[str, float]] = {}
        """What users said of a group, and since when it was seen so."""
        self._lock = threading.Lock()

    def turn(self, key: Key, group: Manifest) -> None:
        """A pass begins on the group as it stands."""
        said = _said(group)
        with self._lock:
            if self._groups.get(key, ("", 0.0))[0] != said:
                self._groups[key] = said, self._clock()

    def forget(self, key: Key) -> None:
        """The group is gone."""
        with self._lock:
            self._groups.pop(key, None)

    def get(self, key: Key, kind: str, name: str, seconds: float) -> Manifest | None:
        """The object, as it stood no longer ago than `seconds` and no earlier than the group's last change.

        Raises:
            ClusterError: the API server could not be asked.
        """
        now = self._clock()
        with self._lock:
            copy = self._cache.get((kind, key.namespace, name))
            since = self._groups.get(key, ("", now))[1]
        if copy is not None and copy.read >= since and now - copy.read < seconds:
            return copy.found
        found = self._read(kind, key.namespace, name)
        if found is None:
            self.drop(kind, key.namespace, name)
        else:
            self._keep(kind, found, now)
        return found

    def record_write(self, kind: str, answer: Manifest) -> None:
        """This process wrote the object, and the API server answered with how it stands."""
        self._keep(kind, answer, self._clock())

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """The object is gone, or may be."""
        with self._lock:
            self._cache.pop((kind, namespace, name), None)

    def _keep(self, kind: str, found: Manifest, now: float) -> None:
        metadata = found["metadata"]
        with self._lock:
            for known, copy in list(self._cache.items()):
                if now - copy.read > KEPT_SECONDS:
                    del self._cache[known]
            self._cache[kind, metadata["namespace"], metadata["name"]] = _Copy(found, now)


def _said(group: Manifest) -> str:
    metadata = group["metadata"]
    return json.dumps(
        [metadata["uid"], metadata["generation"], metadata.get("labels"), metadata.get("annotations")], sort_keys=True
    )
