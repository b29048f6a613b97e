"""Unload the adapters of a host's engines that no revision has any more, beside the passes.

Its memory is the process's own: losing it delays an unloading.
"""

import logging
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial

from promptgroup_operator.adapters.unloading import to_unload, unwanted_since
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.base.fair_pool import FairPool
from promptgroup_operator.engines.adapter_requests import loaded_models, unload
from promptgroup_operator.engines.dialects.dialect import AdapterForm
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.world.snapshot import ContainerId, GroupObject, Pod, World

logger = logging.getLogger(__name__)

WORKERS = 4
"""Engines whose lists are read at the same time."""
EVERY = timedelta(seconds=5)
"""Shortest time between two readings of an engine's list."""
FORGOTTEN = timedelta(minutes=10)
"""Time after which the memory of an engine that is not read any more is dropped."""


class AdapterUnloader:
    """Reads which adapters engines have, and unloads those that nothing refers to. Safe to use from many threads.

    Args:
        engines: clients of the engines.
    """

    def __init__(self, engines: GroupEngines) -> None:
        self._engines = engines
        self._pool = FairPool(WORKERS, "adapters")
        self._unwanted: dict[ContainerId, dict[str, datetime]] = {}
        """Container → adapter → since when it is loaded and unwanted."""
        self._read: dict[ContainerId, datetime] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Read no more."""
        self._pool.close()

    def check(self, world: World, now: datetime) -> None:
        """Read the lists of a group's engines that load adapters while they run, and unload what is not wanted."""
        engine = world.group.spec.engine
        form = DIALECTS[engine.type].adapters
        if world.host is not None or engine.adapters is None or form is None:
            return
        pods = (pod for revision in world.revisions for pod in revision.pods)
        for pod in self._due((pod for pod in pods if pod.containers_ready and not pod.deleting), now):
            job = partial(self._unload, world.group, pod, form, world.adapters)
            self._pool.submit(world.group.key.namespace, job)

    def _due(self, pods: Iterable[Pod], now: datetime) -> list[Pod]:
        with self._lock:
            self._read = {container: at for container, at in self._read.items() if now - at < FORGOTTEN}
            self._unwanted = {item: since for item, since in self._unwanted.items() if item in self._read}
            due = [pod for pod in pods if now - self._read.get(pod.container_id, now - EVERY) >= EVERY]
            self._read |= {pod.container_id: now for pod in due}
        return due

    def _unload(self, group: GroupObject, pod: Pod, form: AdapterForm, models: frozenset[str]) -> None:
        key = group.key
        try:
            engine = self._engines.of(key, pod.container_id)
            now, listed = datetime.now(UTC), loaded_models(engine, pod.address)
            names = (item.name for item in listed)
            wanted = {name for name in names if form.model.format(model=group.spec.model, adapter=name) in models}
            with self._lock:
                since = unwanted_since(listed, wanted, self._unwanted.get(pod.container_id, {}), now)
                self._unwanted[pod.container_id] = since
        except EngineError as error:
            logger.info("pod %s/%s: its adapters were not checked: %s", key.namespace, pod.name, error)
            return
        for name in to_unload(since, now):
            try:
                unload(engine, pod.address, form, name)
            except EngineError as error:
                logger.info("pod %s/%s: adapter %s was not unloaded: %s", key.namespace, pod.name, name, error)
                continue
            logger.info("pod %s/%s: adapter %s is unloaded: no revision has it", key.namespace, pod.name, name)
