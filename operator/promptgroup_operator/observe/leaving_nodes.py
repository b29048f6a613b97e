"""Store the names of the nodes that are about to leave. Nothing else of a node is stored."""

import threading
from collections.abc import Container

from promptgroup_operator.leaving_nodes.taints import leaving_taint
from promptgroup_operator.world.snapshot import Manifest


class LeavingNodes:
    """The nodes that are about to go. Safe to use from many threads.

    Args:
        keys: keys of the taints that announce it.
    """

    def __init__(self, keys: Container[str]) -> None:
        self._keys = keys
        self._taints: dict[str, str] = {}
        """Node → key of the taint."""
        self._lock = threading.Lock()

    def put(self, node: Manifest, *, deleted: bool = False) -> bool:
        """Take a node from a list or an event; return True if it begins or ceases to be about to go.

        A deleted node is no longer about to go: its pods are deleted, too.
        """
        name, taint = node["metadata"]["name"], "" if deleted else leaving_taint(node, self._keys)
        with self._lock:
            before = self._taints.pop(name, "")
            if taint:
                self._taints[name] = taint
        return before != taint

    def taint(self, node: str) -> str:
        """Return the key of the taint that announces the end of a node; empty without one."""
        with self._lock:
            return self._taints.get(node, "")
