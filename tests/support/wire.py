"""A client on a raw socket, and a router in this process for it to talk to."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import orjson
import uvloop

from promptgroup_contract.access import ANYBODY
from promptgroup_contract.table import RoutingTable
from promptgroup_router.base.core_settings import PORT_PEERS
from promptgroup_router.base.settings import Settings
from promptgroup_router.feed import table_file
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import Framing
from promptgroup_router.http11.reader import ResponseReader
from promptgroup_router.server import Router
from support.tables import SYSTEM, group, revision, slot, table

LIMIT = 60.0
"""Seconds that a whole test may take, on a machine that has much else to do: one that hangs fails."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes
    """Chunks decoded."""

    @property
    def json(self) -> dict:
        return orjson.loads(self.body)

    @property
    def served_by(self) -> str:
        return self.headers.get(b"x-promptgroup-served-by", b"").decode()


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._rest = b""

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Answer:
        """Read one whole answer; EOFError when the connection ends before it does."""
        answer, raw = ResponseReader(), b""
        data, self._rest = self._rest, b""
        while True:
            if data:
                before = len(raw)
                raw += answer.feed(data)
                if answer.done:
                    # what the reader left alone belongs to the next answer
                    self._rest = _behind(data, raw[before:])
                    break
            data = await self.reader.read(65536)
            if not data:
                if answer.ends_by_close:
                    break
                raise EOFError(f"the connection ended within an answer, after {raw!r}")
        body = raw
        if answer.head.framing is Framing.CHUNKED:
            content = bytearray()
            Chunked().feed(raw, content)
            body = bytes(content)
        return Answer(answer.head.status, {field.name: field.value for field in answer.head.headers}, body)

    async def ask(self, data: bytes) -> Answer:
        self.send(data)
        return await self.answer()

    async def closed(self) -> bytes:
        """What still comes until the other side closes."""
        try:
            return self._rest + await self.reader.read()
        except ConnectionError:
            return self._rest

    def leave(self) -> None:
        self.writer.transport.abort()


def _behind(data: bytes, used: bytes) -> bytes:
    at = data.rfind(used) + len(used) if used else data.rfind(b"\r\n\r\n") + 4
    return data[at:]


@contextlib.asynccontextmanager
async def connected(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ask(port: int, data: bytes, tls: ssl.SSLContext | None = None) -> Answer:
    """One request on a connection of its own."""
    async with connected(port, tls) as client:
        return await client.ask(data)


def get(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: router", *fields, "", ""]).encode()


def post(body: bytes | dict, *fields: str, path: str = "/v1/chat/completions", version: str = "1.1") -> bytes:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    lines = [f"POST {path} HTTP/{version}", "Host: router", f"Content-Length: {len(data)}", *fields]
    return "\r\n".join([*lines, "", ""]).encode() + data


def chat(user: str = "Hi", *, system: str = SYSTEM, model: str = "llama", **fields: object) -> dict:
    messages = [{"role": "system", "content": system}] if system else []
    return {"model": model, "messages": [*messages, {"role": "user", "content": user}], **fields}


def table_of(*addresses: str) -> RoutingTable:
    """One group whose slots are at these addresses."""
    slots = tuple(slot(index, address=address) for index, address in enumerate(addresses))
    return table(group("support", revision(slots=slots)))


def settings_for(path: Path, **fields: object) -> Settings:
    plain = Settings(
        source=path,
        host="127.0.0.1",
        port=0,
        admin_port=0,
        admin_hosts=(),
        admin_token_file=None,
        reuse_port=False,
        tls_cert=None,
        tls_key=None,
        tls_client_ca=None,
        cache_file=None,
        access=ANYBODY,
        secrets_dir=None,
        issuer_ca=None,
        peers=(),
        peer_port=PORT_PEERS,
        peer_ports=8,
        peer_key_file=None,
        peer_tick=0.02,
        max_body_bytes=2**20,
        body_memory_bytes=2**26,
        max_connections=1000,
        responses_memory_bytes=2**24,
        responses_store=None,
        request_timeout=30.0,
        connect_timeout=1.0,
        drain_delay=0.0,
        drain_timeout=5.0,
        log_level="INFO",
        log_format="plain",
        access_log=False,
        keep_samples=0,
        pass_paths=(),
    )
    return replace(plain, **fields)


class Startable(Protocol):
    """A router or a picker."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


StartableT = TypeVar("StartableT", bound=Startable)


@contextlib.asynccontextmanager
async def started(server: StartableT) -> AsyncIterator[StartableT]:
    """A server, while it runs."""
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def routing(folder: Path, served: RoutingTable, **fields: object) -> AsyncIterator[Router]:
    """A router with this table."""
    path = folder / "table.json"
    table_file.write(path, served)
    async with started(Router(settings_for(path, **fields))) as router:
        yield router


def run(test) -> None:
    """Run a coroutine as the router runs: on uvloop, within a limit."""

    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await test

    uvloop.run(limited())
