"""An API server that holds Leases, in memory: optimistic locking as the real one's, and outages when a test asks."""

import threading
from typing import Any

from promptgroup_operator.base.errors import ClusterError


class FakeLeases:
    """Stands for `ApiServer` where only Leases are asked for."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.down = False
        self.lose_answers = False
        """Writes are carried out, but their answers do not arrive."""
        self.writes = 0
        self._version = 0
        self._lock = threading.Lock()

    def request(self, method: str, path: str, body: Any = None, *_: Any, limit: float | None = None) -> dict[str, Any]:
        assert limit is not None, "a request about the lease has a limit of its own"
        with self._lock:
            if self.down:
                raise ClusterError("down")
            if method == "GET":
                if path not in self.objects:
                    raise ClusterError("none", status=404)
                return self.objects[path]
            name = path if method == "PUT" else f"{path}/{body['metadata']['name']}"
            standing = self.objects.get(name)
            if method == "POST" and standing is not None:
                raise ClusterError("exists", status=409)
            if method == "PUT" and standing is None:
                raise ClusterError("none", status=404)
            if standing and standing["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                raise ClusterError("conflict", status=409)
            self._version += 1
            self.writes += 1
            metadata = body["metadata"] | {"resourceVersion": str(self._version)}
            self.objects[name] = body | {"metadata": metadata}
            if self.lose_answers:
                raise ClusterError("timed out")
            return self.objects[name]
