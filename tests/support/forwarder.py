"""A port that leads to another one, as a Service leads to a pod: a connection stays where it is, new ones follow."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Forwarder:
    """Where new connections go."""

    def __init__(self, target: int) -> None:
        self.target = target
        """Port on loopback."""
        self.port = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Move bytes both ways until both sides have ended."""
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_move(reader, forth), _move(back, writer))


async def _move(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def forwarding(target: int) -> AsyncIterator[Forwarder]:
    """A port that leads to another one of loopback."""
    found = Forwarder(target)
    server = await asyncio.start_server(found.accept, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
