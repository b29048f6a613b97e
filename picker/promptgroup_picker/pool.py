"""Follows one InferencePool and its pods, for the conformance tests: read from the API server every second."""

import asyncio
import logging
from collections.abc import Callable
from urllib.parse import quote

from promptgroup_contract.names import INFERENCE_GROUP
from promptgroup_picker.extproc.conformance import Pool, PoolError, labels, members
from promptgroup_router.base.logs import fields
from promptgroup_router.feed.kube_api import KubeApi, KubeError, object_path

log = logging.getLogger("promptgroup.picker")

SECONDS = 1.0
"""Time between two readings: the tests wait for much longer before they fail."""


class PoolFeed:
    """Keeps the endpoints of a pool as they were when it was last read."""

    def __init__(self, api: KubeApi, namespace: str, name: str, pool: Pool, on_read: Callable[[], None]) -> None:
        self._namespace, self._name = namespace, name
        self._pods = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        self._api = api
        self._pool = pool
        self._on_read = on_read

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                path = object_path(f"/apis/{INFERENCE_GROUP}/v1", self._namespace, "inferencepools", self._name)
                result = await self._api.get(path)
                pods = await self._api.get(f"{self._pods}?labelSelector={quote(labels(result))}")
                self._pool.members = members(result, pods)
                self._on_read()
            except (KubeError, PoolError) as error:
                log.warning("the pool cannot be read: its last endpoints stay in use", extra=fields(problem=error))
            await asyncio.sleep(SECONDS)
