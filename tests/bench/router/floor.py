"""The least that a proxy in Python on uvloop can cost: it decides nothing, counts nothing, and checks nothing.

    python floor.py PORT FORM ENGINE_PORT...

| form  | what it does with a request and its answer                                                                |
|-------|-----------------------------------------------------------------------------------------------------------|
| copy  | each client has one connection to an engine, and bytes are copied without a look at them                   |
| bytes | finds both ends by `content-length`, without reading fields, and sends on a pooled connection              |
| heads | reads both heads by httptools, a binding of llhttp, hashes the session to an engine, and writes a new head |

Answers are those of the bench's engines: they have a `content-length`, or stream until their connection ends.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable

import uvloop

FORMS = ("copy", "bytes", "heads")
_LENGTH = b"content-length: "
_PASSED = frozenset((b"content-type", b"accept", b"authorization", b"user-agent"))


class Copier(asyncio.Protocol):
    """Copies what one side sends to the other one."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.other: asyncio.Transport | None = None
        self.waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self.port:
            self.task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop, back = asyncio.get_running_loop(), Copier()
        back.other = self.transport  # type: ignore[assignment]
        self.other, _ = await loop.create_connection(lambda: back, "127.0.0.1", self.port)
        for data in self.waiting:
            self.other.write(data)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.waiting.append(data)
        else:
            self.other.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None:
            self.other.close()


class Client(asyncio.Protocol):
    """A client's connection, which sends one request after the other."""

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received = message = self.received + data if self.received else data
        if whole(message):
            self.received = b""
            self.pool.send(self.pool.next(), [message], self.transport)  # type: ignore[arg-type]


class HeadsClient(asyncio.Protocol):
    """The same, with its heads read by httptools."""

    def __init__(self, pool: "Pool") -> None:
        from httptools import HttpRequestParser  # noqa: PLC0415

        self.pool = pool
        self.fields: dict[bytes, bytes] = {}
        self.body: list[bytes] = []
        self.parser = HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        fields, body = self.fields, b"".join(self.body)
        self.fields, self.body = {}, []
        lines = [b"%b: %b\r\n" % field for field in fields.items() if field[0] in _PASSED]
        head = b"POST %b HTTP/1.1\r\nhost: engine\r\n%bcontent-length: %d\r\n\r\n" % (
            self.url,
            b"".join(lines),
            len(body),
        )
        port = self.pool.ports[hash(fields.get(b"x-session-id", b"")) % len(self.pool.ports)]
        self.pool.send(port, [head, body], self.transport)  # type: ignore[arg-type]


class Engine(asyncio.Protocol):
    """A connection to an engine, which has one request at a time."""

    def __init__(self, pool: "Pool", port: int) -> None:
        self.pool, self.port = pool, port
        self.client: asyncio.Transport | None = None
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.client is None:
            return
        self.client.write(data)
        self.received = self.received + data if self.received else data
        if whole(self.received):
            self.received = b""
            self.end()

    def end(self) -> None:
        self.client = None
        self.pool.idle[self.port].append(self)

    def connection_lost(self, _: Exception | None) -> None:
        with contextlib.suppress(ValueError):
            self.pool.idle[self.port].remove(self)
        if self.client is not None:
            self.client.close()


class HeadsEngine(Engine):
    """The same, with its heads read by httptools."""

    def __init__(self, pool: "Pool", port: int) -> None:
        from httptools import HttpResponseParser  # noqa: PLC0415

        super().__init__(pool, port)
        self.make = HttpResponseParser
        self.lines: list[bytes] = []
        self.head = b""
        self.parser = self.make(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.lines.append(b"%b: %b\r\n" % (name, value))

    def on_headers_complete(self) -> None:
        lines, self.lines = self.lines, []
        self.head = b"HTTP/1.1 %d OK\r\n%bvia: floor\r\n\r\n" % (self.parser.get_status_code(), b"".join(lines))

    def on_body(self, body: bytes) -> None:
        if self.client is not None:
            self.client.write(self.head + body)
        self.head = b""

    def on_message_complete(self) -> None:
        self.end()


class Pool:
    """The engines, and the connections to them that have no request."""

    def __init__(self, ports: list[int], make: Callable[["Pool", int], Engine]) -> None:
        self.ports, self.make = ports, make
        self.idle: dict[int, list[Engine]] = {port: [] for port in ports}
        self.turn = 0
        self.opening: set[asyncio.Task[None]] = set()

    def next(self) -> int:
        self.turn += 1
        return self.ports[self.turn % len(self.ports)]

    def send(self, port: int, parts: list[bytes], client: asyncio.Transport) -> None:
        idle = self.idle[port]
        if idle:
            engine = idle.pop()
            engine.client = client
            engine.transport.writelines(parts)  # type: ignore[attr-defined]
            return
        task = asyncio.get_running_loop().create_task(self._open(port, parts, client))
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)

    async def _open(self, port: int, parts: list[bytes], client: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        transport, engine = await loop.create_connection(lambda: self.make(self, port), "127.0.0.1", port)
        engine.client = client
        transport.writelines(parts)


def whole(data: bytes) -> bool:
    """Return True if a message has ended, by its `content-length` in any spelling that this bench has."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = data[:end].lower()
    at = head.find(_LENGTH)
    if at < 0:
        return False
    stop = head.find(b"\r", at)
    length = int(head[at + len(_LENGTH) : stop if stop >= 0 else end])
    return len(data) >= end + 4 + length


async def serve(port: int, form: str, engines: list[int]) -> None:
    """Serve until the process is ended."""
    loop, number = asyncio.get_running_loop(), 0

    def copier() -> Copier:
        nonlocal number
        number += 1
        return Copier(engines[number % len(engines)])

    pool = Pool(engines, HeadsEngine if form == "heads" else Engine)
    factories: dict[str, Callable[[], asyncio.Protocol]] = {
        "copy": copier, "bytes": lambda: Client(pool), "heads": lambda: HeadsClient(pool)
    }  # fmt: skip
    server = await loop.create_server(factories[form], "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2], [int(number) for number in sys.argv[3:]]))
