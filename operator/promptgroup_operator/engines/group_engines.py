"""Decides what is sent to an engine beside the request: the credential and the trust of its own container.

An address proves nothing: the pod that had it may be gone, and the next one be another group's. So what an engine asks
for is known by its group and its container, and what is not a group's engine, or is one no more, is never sent any of
it. Servers of KV pools and routers are asked by `plain`.
"""

from collections.abc import Mapping

from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines.connections import EngineAccess, EnginePools
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.world.snapshot import ContainerId, Key


class GroupEngines:
    """Clients of the engines of all groups, which share their connections. Safe to use from many threads."""

    def __init__(self) -> None:
        self._pools = EnginePools()
        self.plain = EngineClient(pools=self._pools)
        """A client that sends no credential and verifies nobody."""
        self._accesses: dict[Key, Mapping[ContainerId, EngineAccess]] = {}
        """Group → container of each of its engines that may be asked → what it asks for."""

    def close(self) -> None:
        """Close the idle connections."""
        self._pools.close()

    def authorize(self, group: Key, accesses: Mapping[ContainerId, EngineAccess]) -> None:
        """Replace the engines of a group that may be asked, and what each asks for; empty for a group that is gone."""
        before = self._accesses.get(group, {})
        if accesses:
            self._accesses[group] = accesses
        else:
            self._accesses.pop(group, None)
        if not {engine_access.trust for engine_access in before.values()} <= {
            access.trust for access in accesses.values()
        }:
            self._pools.keep(
                {engine_access.trust for access in list(self._accesses.values()) for engine_access in access.values()}
            )

    def of(self, group: Key, container: ContainerId) -> EngineClient:
        """Return a client for one engine of a group.

        Raises:
            EngineError: the container is gone, or ends, or is not the group's.
        """
        access = self._accesses.get(group, {}).get(container)
        if access is None:
            raise EngineError("the engine's container is gone")
        return EngineClient(access, self._pools)
