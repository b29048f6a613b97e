"""An in-memory store of watched objects, like client-go's, which passes read instead of the API server.

A store is behind the API server by the latency of an event, but never behind this process's own writes, whose responses
are stored as well. Within a resource, resourceVersions are whole numbers that only grow (KEP-5504), so the newest
version of an object is stored, and no event or late response from before its deletion restores it. An object that loses
the label is deleted for a watch, and may be added again with the same uid.

Most changes of a cluster's objects are of fields that no pass reads: a probe's time, the counts of a
PodDisruptionBudget, another client's annotation. Such a version is stored, and its group gets no pass.

The cached fields of an object and its index keys are defined elsewhere (`world.trimmed`, `world.lookup`).
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import TypeAlias

from promptgroup_operator.world.lookup import group_of, places
from promptgroup_operator.world.snapshot import Key, Manifest

ObjectName: TypeAlias = tuple[str, str]
"""Namespace and name."""

Listed: TypeAlias = tuple[str, int]
"""uid and resourceVersion of an object in a list."""

DELETED = 10_000
"""Maximum number of deleted objects of a kind whose last versions are stored."""


class Store:
    """The objects of one kind. Safe to use from many threads; objects that it returns must not be changed.

    Args:
        kind: kind of the objects.
        changed: called with the group of each object of which a stored field other than its version changes, and of
            each that is deleted.
    """

    def __init__(self, kind: str, changed: Callable[[Key], None]) -> None:
        self._kind = kind
        self._changed = changed
        self._objects: dict[ObjectName, Manifest] = {}
        self._index: dict[Hashable, dict[ObjectName, Manifest]] = {}
        """Index key (`world.lookup`) → objects."""
        self._deleted: OrderedDict[str, int] = OrderedDict()
        """uid of a deleted object → resourceVersion of its deletion or later; the latest last."""
        self._lock = threading.Lock()

    def put(self, manifest: Manifest) -> None:
        """Store an object from an event, a list or the response to a write."""
        with self._lock:
            touched = self._put(manifest)
        self._notify(touched)

    def delete(self, manifest: Manifest) -> None:
        """Delete an object, given its last version. A newer object of the same name is not deleted."""
        with self._lock:
            touched = self._delete(_name(manifest), manifest["metadata"]["uid"], _version(manifest))
        self._notify(touched)

    def keep_only(self, namespace: str, listed: Collection[ObjectName], version: int) -> None:
        """Delete the objects that are not in a list.

        Args:
            namespace: the listed namespace; all namespaces if it is empty.
            listed: names of the listed objects.
            version: resourceVersion of the list; newer objects are not deleted.
        """
        touched: set[Key] = set()
        with self._lock:
            for name, cached in list(self._objects.items()):
                if namespace in ("", name[0]) and name not in listed and _version(cached) <= version:
                    touched |= self._delete(name, cached["metadata"]["uid"], version)
        self._notify(touched)

    def get(self, namespace: str, name: str) -> Manifest | None:
        """Return an object; None if there is none."""
        with self._lock:
            return self._objects.get((namespace, name))

    def list_at(self, place: Hashable) -> list[Manifest]:
        """Return the objects of a group, of a namespace, or of another index key of `world.lookup`, by name."""
        with self._lock:
            return [manifest for _, manifest in sorted(self._index.get(place, {}).items())]

    def list_all(self) -> list[Manifest]:
        """Return every object."""
        with self._lock:
            return list(self._objects.values())

    def versions(self) -> dict[ObjectName, int]:
        """Return the resourceVersion of every object."""
        with self._lock:
            return {name: _version(manifest) for name, manifest in self._objects.items()}

    def knows(self, manifest: Manifest) -> bool:
        """Return True if an object is stored in this version, or in a newer one."""
        with self._lock:
            item = self._objects.get(_name(manifest))
            return item is not None and _version(manifest) <= _version(item)

    def has(self, listed: Mapping[ObjectName, Listed]) -> bool:
        """Return True if the store has all objects of a list, or their deletions, in these or newer versions."""
        with self._lock:
            return all(
                version <= (_version(self._objects[name]) if name in self._objects else self._deleted.get(uid, -1))
                for name, (uid, version) in listed.items()
            )

    def _put(self, fresh: Manifest) -> set[Key]:
        """Store the object unless it is stored in this or a newer version; return the groups that must have a pass."""
        name, key, version = _name(fresh), group_of(self._kind, fresh), _version(fresh)
        item = self._objects.get(name)
        newest = self._deleted.get(fresh["metadata"]["uid"], -1) if item is None else _version(item)
        if version <= newest:
            return set()
        differs = item is None or not _is_same(item, fresh)
        touched = {self._drop(name)} if item is not None else set()
        if key is None:
            return touched  # its label was removed
        self._objects[name] = fresh
        for place in places(self._kind, key, fresh):
            self._index.setdefault(place, {})[name] = fresh
        return touched | {key} if differs else set()

    def _delete(self, name: ObjectName, uid: str, version: int) -> set[Key]:
        item = self._objects.get(name)
        if item is not None and item["metadata"]["uid"] == uid and _version(item) > version:
            return set()  # it has lost the label, and has it again
        self._deleted.pop(uid, None)
        self._deleted[uid] = version
        if len(self._deleted) > DELETED:
            self._deleted.popitem(last=False)
        return {self._drop(name)} if item is not None and item["metadata"]["uid"] == uid else set()

    def _drop(self, name: ObjectName) -> Key:
        item = self._objects.pop(name)
        key = group_of(self._kind, item)
        assert key is not None  # noqa: S101 - objects without a group are not stored
        for place in places(self._kind, key, item):
            members = self._index[place]
            del members[name]
            if not members:
                del self._index[place]
        return key

    def _notify(self, touched: Iterable[Key]) -> None:
        for key in touched:
            self._changed(key)


def _name(manifest: Manifest) -> ObjectName:
    metadata = manifest["metadata"]
    return metadata["namespace"], metadata["name"]


def _is_same(left: Manifest, right: Manifest) -> bool:
    """Return True if two versions of an object differ in nothing but the version."""
    return {**right, "metadata": None} == {**left, "metadata": None} and right["metadata"] == {
        **left["metadata"],
        "resourceVersion": right["metadata"]["resourceVersion"],
    }


def _version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])
