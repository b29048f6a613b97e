"""Objects as the API server's watches tell of them, kept at hand for passes.

A store is behind the API server by the time that an event takes, but never behind this process's own writes: their
answers are put in as well. Which of two is newer their resourceVersions say: within a resource they are whole numbers
that only grow (KEP-5504). So of an object the newest version known stands; an answer that the watch has already passed
is dropped, since what the watch told of the object then, or of its end, is as new or newer.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from promptgroup_operator.world.snapshot import Key, Manifest
from promptgroup_router.contract import names

ObjectName: TypeAlias = tuple[str, str]
"""Namespace and name."""

KINDS: Mapping[str, str] = {
    "PromptGroup": "",
    "PromptRoute": "",
    "Deployment": names.LABEL_GROUP,
    "PodDisruptionBudget": names.LABEL_GROUP,
    "Pod": names.LABEL_GROUP,
}
"""Kind that is watched → label selector. The selector goes to the server: no foreign pod is ever listed."""


class Store:
    """The objects of one kind. Safe to use from many threads; what it returns is not to be changed.

    Args:
        kind: of the objects.
        changed: told of the group of each object that changes or goes.
    """

    def __init__(self, kind: str, changed: Callable[[Key], None]) -> None:
        self._kind = kind
        self._changed = changed
        self._objects: dict[ObjectName, Manifest] = {}
        self._of_group: dict[Key, dict[ObjectName, Manifest]] = {}
        self._watched_to: dict[str, int] = {}
        """Namespace that is watched, empty for all → resourceVersion up to which its watch has told."""
        self._lock = threading.Lock()

    # --- what the watch tells ------------------------------------------------------------------------------------

    def replace(self, namespace: str, objects: Iterable[Manifest], version: str) -> None:
        """A list of a namespace, or of all when it is empty: what it does not show is gone."""
        listed = {_name(each): each for each in objects}
        touched: set[Key] = set()
        with self._lock:
            self._watched_to[namespace] = int(version)
            for name, known in list(self._objects.items()):
                inside = namespace in ("", name[0])
                if inside and name not in listed and _version(known) <= int(version):
                    touched.add(self._drop(name))
            touched.update(key for each in listed.values() for key in self._put(each))
        self._notify(touched)

    def handle_event(self, namespace: str, event: str, told: Manifest) -> None:
        """An event of the watch of a namespace, or of all; a BOOKMARK has a version alone."""
        touched: set[Key] = set()
        with self._lock:
            self._watched_to[namespace] = _version(told)
            if event == "DELETED":
                known = self._objects.get(_name(told))
                if known is not None and _version(known) <= _version(told):
                    touched.add(self._drop(_name(told)))
            elif event != "BOOKMARK":
                touched.update(self._put(told))
        self._notify(touched)

    # --- what this process wrote ---------------------------------------------------------------------------------

    def record_write(self, answer: Manifest) -> None:
        """The API server's answer to a write: the object as it stands after it."""
        touched: set[Key] = set()
        namespace = answer["metadata"]["namespace"]
        with self._lock:
            told = self._watched_to.get(namespace, self._watched_to.get("", 0))
            if _version(answer) > told:
                touched.update(self._put(answer))
        self._notify(touched)

    # --- what passes read ----------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> Manifest | None:
        """One object; None when there is none."""
        with self._lock:
            return self._objects.get((namespace, name))

    def list_group(self, key: Key) -> list[Manifest]:
        """The objects of a group, by name."""
        with self._lock:
            return [each for _, each in sorted(self._of_group.get(key, {}).items())]

    def list_namespace(self, namespace: str) -> list[Manifest]:
        """The objects of a namespace."""
        with self._lock:
            return [each for (where, _), each in self._objects.items() if where == namespace]

    def list_all(self) -> list[Manifest]:
        """Every object."""
        with self._lock:
            return list(self._objects.values())

    def versions(self) -> dict[ObjectName, str]:
        """Every object's resourceVersion."""
        with self._lock:
            return {name: each["metadata"]["resourceVersion"] for name, each in self._objects.items()}

    # --- inside --------------------------------------------------------------------------------------------------

    def _put(self, fresh: Manifest) -> set[Key]:
        """Keep the object unless a version as new is known; the groups that this touches."""
        name, key = _name(fresh), _group(self._kind, fresh)
        known = self._objects.get(name)
        if known is not None and _version(known) >= _version(fresh):
            return set()
        touched = {self._drop(name)} if known is not None else set()
        if key is None:
            return touched  # somebody took its label off
        self._objects[name] = fresh
        self._of_group.setdefault(key, {})[name] = fresh
        return touched | {key}

    def _drop(self, name: ObjectName) -> Key:
        key = _group(self._kind, self._objects.pop(name))
        assert key is not None  # noqa: S101 - what has none is not kept
        members = self._of_group[key]
        del members[name]
        if not members:
            del self._of_group[key]
        return key

    def _notify(self, touched: Iterable[Key]) -> None:
        for key in touched:
            self._changed(key)


def normalized(found: Manifest, kind: str) -> Manifest:
    """The object with its kind, which items of lists lack, and without `managedFields`: half of it, read by nobody."""
    metadata = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    return {**found, "kind": kind, "metadata": metadata}


def _name(found: Manifest) -> ObjectName:
    metadata = found["metadata"]
    return metadata["namespace"], metadata["name"]


def _version(found: Manifest) -> int:
    return int(found["metadata"]["resourceVersion"])


def _group(kind: str, found: Manifest) -> Key | None:
    """The group that an object belongs to: a PromptGroup and a PromptRoute by name, anything else by label."""
    metadata = found["metadata"]
    name = metadata.get("labels", {}).get(KINDS[kind]) if KINDS[kind] else metadata["name"]
    return Key(metadata["namespace"], name) if name else None
