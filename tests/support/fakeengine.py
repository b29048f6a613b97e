"""An engine that does what a test tells it, on a real socket, and remembers what it was asked."""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import orjson

from promptgroup_router.http11.reader import HttpRequest, RequestReader


@dataclass
class Call:
    """One connection to the engine, at the moment of a request."""

    request: HttpRequest
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def json(self) -> dict:
        return orjson.loads(self.request.body)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def answer(self, body: bytes = b'{"ok":true}', status: int = 200, *fields: str) -> None:
        """A whole answer."""
        lines = [
            f"HTTP/1.1 {status} Whatever",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *fields,
        ]
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def begin_stream(self) -> None:
        self.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def reset(self) -> None:
        """Close at once, without a word."""
        self.writer.transport.abort()

    def lose(self) -> None:
        """Reset the connection: what the other side has not read yet is lost."""
        with socket.socket(fileno=os.dup(self.writer.get_extra_info("socket").fileno())) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def client_gone(self) -> None:
        """Wait until the other side closes."""
        with contextlib.suppress(ConnectionError):
            assert await self.reader.read(1) == b""


Behaviour = Callable[[Call], Awaitable[None]]


async def well(call: Call) -> None:
    """Answers."""
    call.answer()


@dataclass
class FakeEngine:
    """Serves on loopback; `behave` may be replaced at any time."""

    behave: Behaviour = well
    address: str = ""
    requests: list[HttpRequest] = field(default_factory=list)
    connections: int = 0
    open: dict[asyncio.StreamWriter, asyncio.Task[None]] = field(default_factory=dict)
    """What serves each connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.open[writer] = task
        requests = RequestReader(max_body=2**30)
        try:
            while data := await reader.read(65536):
                requests.feed(data)
                while (request := requests.next()) is not None:
                    self.requests.append(request)
                    await self.behave(Call(request, reader, writer))
                    await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open.pop(writer, None)
            writer.transport.abort()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def engines(
    count: int, *behaviours: Behaviour, tls: ssl.SSLContext | None = None
) -> AsyncIterator[list[FakeEngine]]:
    """So many engines, the first ones with these behaviours; with TLS if there is a context."""
    found, servers = [], []
    for number in range(count):
        engine = FakeEngine(*behaviours[number : number + 1])
        server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, ssl=tls)
        engine.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        found.append(engine)
        servers.append(server)
    try:
        yield found
    finally:
        for server in servers:
            server.close()
        for engine in found:
            for writer, task in list(engine.open.items()):
                writer.transport.abort()
                # one that waits for what a failed test did not get to would hide the failure
                task.cancel()
        await until(lambda: not any(engine.open for engine in found), "the engines' connections to end")


async def until(condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    """Wait for a condition that nothing announces."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited {seconds} s for {what}") from None
