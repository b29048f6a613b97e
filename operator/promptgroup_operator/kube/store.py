"""An in-memory store of watched objects, as client-go's, which passes read instead of the API server.

A store is behind the API server by the time that an event takes, but never behind this process's own writes: their
answers are stored as well. Within a resource, resourceVersions are whole numbers that only grow (KEP-5504), so the
newest known version of an object is kept. An answer that the watch has already passed is dropped: what the watch told
of the object, or of its deletion, is as new or newer.

What is kept of an object is decided elsewhere (`world.kept`).
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
    "InferencePool": names.LABEL_GROUP,
}
"""Watched kind → label selector. The server applies it, so no foreign pod is ever listed."""
OPTIONAL = frozenset({"InferencePool"})
"""Kinds without which groups are served all the same: their CRDs come from others, or a role may leave them out."""
REFUSED = frozenset({403, 404})
"""Statuses of a list of a kind that the API server does not know, or does not let the operator see."""


class Store:
    """The objects of one kind. Safe to use from many threads; objects that it returns must not be changed.

    Args:
        kind: kind of the objects.
        changed: called with the group of each object that changes or goes.
    """

    def __init__(self, kind: str, changed: Callable[[Key], None]) -> None:
        self._kind = kind
        self._changed = changed
        self._objects: dict[ObjectName, Manifest] = {}
        self._of_group: dict[Key, dict[ObjectName, Manifest]] = {}
        self._watched_to: dict[str, int] = {}
        """Watched namespace, empty for all → resourceVersion of its last event."""
        self._refused: dict[str, int] = {}
        """Watched namespace, empty for all → HTTP status by which its list was refused."""
        self._missing: set[Key] = set()
        """Groups that would have objects of the kind if it were not refused."""
        self.wanted = threading.Event()
        """Set while there are such groups."""
        self._lock = threading.Lock()

    # --- written by watches --------------------------------------------------------------------------------------

    def replace(self, namespace: str, objects: Iterable[Manifest], version: str) -> None:
        """Store a list of a namespace, or of all if it is empty; objects that it does not show are gone.

        Raises:
            KeyError, ValueError: an object has no name or version; nothing was stored.
        """
        listed = {_name(each): each for each in objects}
        for each in listed.values():
            _version(each)
        touched: set[Key] = set()
        with self._lock:
            self._watched_to[namespace] = int(version)
            if self._refused.pop(namespace, None) is not None:
                touched |= self._missing
            for name, known in list(self._objects.items()):
                inside = namespace in ("", name[0])
                if inside and name not in listed and _version(known) <= int(version):
                    touched.add(self._drop(name))
            touched.update(key for each in listed.values() for key in self._put(each))
        self._notify(touched)

    def refuse(self, namespace: str, status: int) -> None:
        """Note that the API server refuses to list the kind in a namespace, or in all: it shows no objects."""
        with self._lock:
            self._refused[namespace] = status
            touched = {self._drop(name) for name in list(self._objects) if namespace in ("", name[0])}
        self._notify(touched)

    def handle_event(self, namespace: str, event: str, told: Manifest) -> None:
        """Store an event of the watch of a namespace, or of all; a BOOKMARK carries a version only."""
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

    # --- written by this process ---------------------------------------------------------------------------------

    def record_write(self, answer: Manifest) -> None:
        """Store the API server's answer to a write, which is the object after it."""
        touched: set[Key] = set()
        namespace = answer["metadata"]["namespace"]
        with self._lock:
            told = self._watched_to.get(namespace, self._watched_to.get("", 0))
            if _version(answer) > told:
                touched.update(self._put(answer))
        self._notify(touched)

    def refused(self, namespace: str = "") -> int | None:
        """Return the status by which the kind is refused in a namespace, or anywhere; None if it is listed."""
        with self._lock:
            if namespace:
                return self._refused.get(namespace, self._refused.get(""))
            return next(iter(self._refused.values()), None)

    def miss(self, key: Key, *, missed: bool) -> None:
        """Note whether a group would have objects of the kind if it were not refused: then it is asked for again."""
        with self._lock:
            (self._missing.add if missed else self._missing.discard)(key)
            (self.wanted.set if self._missing else self.wanted.clear)()

    # --- read by passes ------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> Manifest | None:
        """Return an object; None if there is none."""
        with self._lock:
            return self._objects.get((namespace, name))

    def list_group(self, key: Key) -> list[Manifest]:
        """Return the objects of a group, by name."""
        with self._lock:
            return [each for _, each in sorted(self._of_group.get(key, {}).items())]

    def list_namespace(self, namespace: str) -> list[Manifest]:
        """Return the objects of a namespace."""
        with self._lock:
            return [each for (where, _), each in self._objects.items() if where == namespace]

    def list_all(self) -> list[Manifest]:
        """Return every object."""
        with self._lock:
            return list(self._objects.values())

    def versions(self) -> dict[ObjectName, str]:
        """Return the resourceVersion of every object."""
        with self._lock:
            return {name: each["metadata"]["resourceVersion"] for name, each in self._objects.items()}

    # --- inside --------------------------------------------------------------------------------------------------

    def _put(self, fresh: Manifest) -> set[Key]:
        """Keep the object unless a version as new is known, and return the groups that this changes."""
        name, key = _name(fresh), _group(self._kind, fresh)
        known = self._objects.get(name)
        if known is not None and _version(known) >= _version(fresh):
            return set()
        touched = {self._drop(name)} if known is not None else set()
        if key is None:
            return touched  # its label was removed
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


def _name(found: Manifest) -> ObjectName:
    metadata = found["metadata"]
    return metadata["namespace"], metadata["name"]


def _version(found: Manifest) -> int:
    return int(found["metadata"]["resourceVersion"])


def _group(kind: str, found: Manifest) -> Key | None:
    """Return the group that an object belongs to: a PromptGroup's and a PromptRoute's by name, any other's by label."""
    metadata = found["metadata"]
    name = metadata.get("labels", {}).get(KINDS[kind]) if KINDS[kind] else metadata["name"]
    return Key(metadata["namespace"], name) if name else None
