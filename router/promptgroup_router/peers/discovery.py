"""Resolves the names of routers to the addresses at which they may listen."""

import asyncio
import socket
from collections.abc import Iterable

from promptgroup_router.base.core_settings import PeerName
from promptgroup_router.peers.members import Address

LOOKUP_SECONDS = 30.0
"""Seconds for a lookup, above a resolver's own limit with its defaults and a usual search list."""


async def resolve(name: PeerName, ports: Iterable[int], family: socket.AddressFamily) -> list[Address]:
    """Return every address of a name with every port of the range, or with the name's own port.

    Raises:
        OSError: the name has no address, or no resolver answers.
    """
    loop = asyncio.get_running_loop()
    # an IPv6 socket reaches routers with IPv4 only by mapped addresses (RFC 4291, section 2.5.5.2)
    flags = socket.AI_V4MAPPED | socket.AI_ALL if family is socket.AF_INET6 else 0
    async with asyncio.timeout(LOOKUP_SECONDS):  # a TimeoutError is an OSError
        result = await loop.getaddrinfo(name.host, None, family=family, type=socket.SOCK_DGRAM, flags=flags)
    at = range(name.port, name.port + 1) if name.port is not None else ports
    return [_with_port(address, port) for *_, address in result for port in at]


def _with_port(address: tuple[object, ...], port: int) -> Address:
    match address:
        case (str(host), int()):
            return host, port
        case (str(host), int(), int(flow), int(scope)):
            return host, port, flow, scope
        case _:
            raise OSError(f"{address!r} is no address of this socket's family")
