"""Connects to a server that is named in a table, unless its address is one to which no table may lead a router."""

import asyncio
import ssl
from collections.abc import Sequence

from promptgroup_router.feed.slot_address import Network, refused


async def connect(
    host: str, port: int, context: ssl.SSLContext | None, networks: Sequence[Network] | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of a server's addresses that takes the connection.

    The name is resolved once and its addresses are checked, so that connections are made only to checked addresses.

    Args:
        host: name or address of the server, by which its certificate is verified, too.
        port: of the server.
        context: how it is verified; None without TLS.
        networks: networks whose addresses are allowed although public servers do not have them; None where the author
            of the table may name any address.

    Raises:
        OSError: no address may be connected to, or none takes the connection.
        UnicodeError: the host is no name.
    """
    result = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)  # 1: SOCK_STREAM
    problem: OSError = OSError("has no address")
    for address in dict.fromkeys(str(item[4][0]) for item in result):
        reason = "" if networks is None else refused(f"{address}:{port}", networks)
        if reason:
            problem = OSError(f"its address {reason}")
            continue
        try:
            return await asyncio.open_connection(
                address, port, ssl=context, server_hostname=None if context is None else host
            )
        except OSError as error:
            problem = error
    raise problem
