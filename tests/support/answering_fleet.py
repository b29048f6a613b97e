"""Routers that know each other, before engines that count their inferences."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

from promptgroup_contract.table import RoutingTable
from promptgroup_local.ports import free_ports
from promptgroup_router import server
from promptgroup_router.base.core_settings import PeerName
from promptgroup_router.flights import peer_port
from promptgroup_router.server import Router
from support.fakeengine import until
from support.wire import routing

PATIENCE = 10.0
"""Seconds in which routers of one busy process answer each other: a router that waited in vain computes itself."""


@contextlib.asynccontextmanager
async def knowing_each_other(
    folder: Path, served: RoutingTable, count: int = 3, **fields
) -> AsyncIterator[list[Router]]:
    """So many routers in this process, each of which has heard of all others."""
    key = folder / "key"
    key.write_bytes(b"k" * 32)
    ports = free_ports(count)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(patch.object(server, "PEER_CONNECT_SECONDS", PATIENCE))
        stack.enter_context(patch.object(peer_port, "HANDSHAKE_SECONDS", PATIENCE))
        routers = []
        for number, port in enumerate(ports):
            own = folder / f"router-{number}"
            own.mkdir(exist_ok=True)
            peers = tuple(PeerName("127.0.0.1", each) for each in ports)
            of = {"peers": peers, "peer_port": port, "peer_ports": 1, "peer_key_file": key, **fields}
            routers.append(await stack.enter_async_context(routing(own, served, **of)))
        await until(lambda: all(len(router.core.peering.others()) == count - 1 for router in routers), "peers")
        await until(lambda: all(router._peer_port.is_open for router in routers), "their ports")
        yield routers
