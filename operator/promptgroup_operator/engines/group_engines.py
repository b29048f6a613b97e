"""Selects the credential and the TLS trust of a request to an engine, by the engine's container.

An address is no identity: its pod may have been deleted, and the next pod with it may belong to another group. So the
access data of an engine are stored by group and container, and are never sent to a process that is not, or no longer,
an engine of the group. Servers of KV pools and routers are read through `plain`.
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
        """A client that sends no credential and verifies no server."""
        self._accesses: dict[Key, Mapping[ContainerId, EngineAccess]] = {}
        """Group → container of each of its engines that may get requests → credential and trust."""

    def close(self) -> None:
        """Close the idle connections."""
        self._pools.close()

    def authorize(self, group: Key, accesses: Mapping[ContainerId, EngineAccess]) -> None:
        """Replace the engines of a group that may get requests, with their access data; empty for a deleted group."""
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
            EngineError: the container does not exist any more, terminates, or belongs to another group.
        """
        access = self._accesses.get(group, {}).get(container)
        if access is None:
            raise EngineError("the engine's container is gone")
        return EngineClient(access, self._pools)
