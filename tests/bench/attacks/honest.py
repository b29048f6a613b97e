"""Honest clients, and the engine that answers them: open loop, each wait counted from when its request was due."""

import asyncio
import contextlib
import time

from bench.answering import AnsweringEngine
from bench.attacks.report import Window

ANSWER_SECONDS = 0.05
"""Time that the engine takes for an answer: less than real ones take to their first token. It is the floor of all
waits, so that ratios do not tell of the milliseconds by which the machine is late now and then."""
RATE = 100.0
"""Requests a second."""
NEW_CONNECTION = 4
"""One request in so many comes on a connection of its own, as of a client that begins."""
PATIENCE_SECONDS = 20.0


class Engine(AnsweringEngine):
    """Answers each request after a while."""

    def answer(self, body: bytes) -> None:
        asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._answer_late, body)

    def _answer_late(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().answer(body)


class _Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self) -> None:
        self._received = b""
        self._answered: asyncio.Future[bool | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if not blank:
            return
        good = head.startswith(b"HTTP/1.1 200")
        # Envoy relays an answer that the picker rewrites in chunks
        if not good or body.endswith((b"0\r\n\r\n", b"}}")):
            self._received = b""
            self._end(good)

    def connection_lost(self, _: Exception | None) -> None:
        self._end(None)

    @property
    def is_open(self) -> bool:
        """True unless the server has closed it: idle connections may, and clients begin another one."""
        return not self.transport.is_closing()

    async def ask(self, request: bytes) -> bool | None:
        """Send a request. Return whether its answer has status 200; None if the connection ends without any."""
        self._answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answered

    def _end(self, good: bool | None) -> None:
        answered, self._answered = self._answered, None
        if answered is not None and not answered.done():
            answered.set_result(good)


class Clients:
    """Sends requests to one port, at a rate."""

    def __init__(self, port: int, request: bytes) -> None:
        self._port = port
        self._request = request
        self._idle: list[_Connection] = []

    async def window(self, seconds: float) -> Window:
        """Send requests for so long, and wait for their answers."""
        waits: list[float] = []
        results: list[bool] = []

        async def send(number: int, due: float) -> None:
            try:
                good = await asyncio.wait_for(self._one(fresh=number % NEW_CONNECTION == 0), PATIENCE_SECONDS)
            except (OSError, TimeoutError):
                good = False
            waits.append(time.perf_counter() - due)
            results.append(good)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(int(RATE * seconds)):
                due = began + number / RATE
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                tasks.create_task(send(number, due))
        return Window(sorted(waits), results.count(False))

    async def _one(self, *, fresh: bool) -> bool:
        while not fresh and self._idle:
            connection = self._idle.pop()
            if connection.is_open and (answered := await self._ask(connection, keep=True)) is not None:
                return answered
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", self._port)
        return await self._ask(connection, keep=not fresh) is True

    async def _ask(self, connection: _Connection, *, keep: bool) -> bool | None:
        good = await connection.ask(self._request)
        if good and keep:
            self._idle.append(connection)
        else:
            connection.transport.abort()
        return good

    def leave(self) -> None:
        """Close what is open."""
        for connection in self._idle:
            with contextlib.suppress(OSError):
                connection.transport.abort()
        self._idle.clear()
