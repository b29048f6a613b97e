"""Connections to engines: one request at a time each, kept for the next one.

A connection is lent at once and sends when it is open; `abort` closes it at any time. What happens is told to a
listener by plain method calls; after `answer_ended` or `failed` it hears nothing more.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from promptgroup_router.base.errors import Failure, HttpError
from promptgroup_router.http11.http1 import ResponseHead
from promptgroup_router.http11.reader import ResponseReader

IDLE_SECONDS = 4.0
"""Below uvicorn's keep-alive of 5 s, vLLM's default: the router lets go first, so that few requests meet a connection
that is just being closed."""
MAX_IDLE = 256
"""Kept connections an engine: as many as it decodes at the same time."""


class AnswerListener(Protocol):
    """Who is told of an answer."""

    def answer_began(self, head: ResponseHead) -> None:
        """The head is whole; `abort` on the connection drops the rest."""

    def answer_data(self, data: bytes) -> None:
        """Bytes of the body, as received."""

    def answer_ended(self) -> None:
        """The answer is whole."""

    def failed(self, failure: Failure) -> None:
        """There will be no (whole) answer."""


class EngineConnection(asyncio.Protocol):
    """One connection to one engine."""

    __slots__ = ("_connections", "_listener", "_reader", "_request", "_transport", "address", "idle_since", "used")

    def __init__(self, connections: "EngineConnections", address: str) -> None:
        self.address = address
        self.used = False
        """Whether it has carried an answer: the engine may have closed it since."""
        self.idle_since = 0.0
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._listener: AnswerListener | None = None
        self._reader = ResponseReader()
        self._request = b""

    def send(self, request: bytes, listener: AnswerListener) -> None:
        """Send a request, as soon as the connection is open."""
        self._listener = listener
        self._reader = ResponseReader()
        if self._transport is None:
            self._request = request
        else:
            self._transport.write(request)

    def abort(self) -> None:
        """Close at once; the listener hears nothing more."""
        self._listener = None
        self._request = b""
        if self._transport is not None:
            self._transport.abort()
        else:
            self._connections.cancel(self)

    def pause(self) -> None:
        """Read no more until `resume`: the client does not keep up."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- Events of the transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream has no other
        """Open: send what waits."""
        self._transport = transport
        if self._listener is None:
            transport.abort()  # the client has left meanwhile
            return
        transport.write(self._request)
        self._request = b""

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer."""
        listener, reader = self._listener, self._reader
        if listener is None:
            self.close()  # an answer that nobody asked for
            return
        begun = reader.head is not None
        try:
            body = reader.feed(data)
        except HttpError:
            self._fail(Failure.MALFORMED)
            return
        if not begun:
            if reader.head is None:
                return
            listener.answer_began(reader.head)
            if self._listener is not listener:
                return  # aborted by the listener
        if body:
            listener.answer_data(body)
            if self._listener is not listener:
                return
        if reader.done:
            self._end(listener)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed, by whichever side."""
        self._connections.remove(self)
        listener = self._listener
        if listener is None:
            return
        if self._reader.ends_by_close and exc is None:
            self._listener = None
            listener.answer_ended()
            return
        untouched = not self._reader.begun
        self._fail(Failure.STALE if self.used and untouched else Failure.RESET)

    def connect_failed(self, failure: Failure) -> None:
        """It could not be opened."""
        self._fail(failure)

    def close(self) -> None:
        """Close an idle connection."""
        if self._transport is not None:
            self._transport.close()

    def _end(self, listener: AnswerListener) -> None:
        self._listener = None
        self.used = True
        if self._reader.reusable and self._transport is not None and not self._transport.is_closing():
            self._connections.put_back(self)
        else:
            self.close()
        listener.answer_ended()

    def _fail(self, failure: Failure) -> None:
        listener, self._listener = self._listener, None
        if self._transport is not None:
            self._transport.abort()
        if listener is not None:
            listener.failed(failure)


class EngineConnections:
    """All connections to engines, and those that are idle by address."""

    def __init__(self, clock: Callable[[], float], connect_timeout: float) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._connect_timeout = connect_timeout
        self._idle: dict[str, list[EngineConnection]] = {}
        self._connecting: dict[EngineConnection, asyncio.Task[None]] = {}

    def acquire(self, address: str, *, fresh: bool) -> EngineConnection:
        """A connection to `host:port`, kept or new; `fresh` asks for a new one."""
        idle = self._idle.get(address)
        if idle and not fresh:
            # the one used last: the others grow old and are closed
            connection = idle.pop()
            if not idle:
                del self._idle[address]
            return connection
        connection = EngineConnection(self, address)
        self._connecting[connection] = self._loop.create_task(self._connect(connection))
        return connection

    def put_back(self, connection: EngineConnection) -> None:
        """Keep a connection for the next request."""
        idle = self._idle.setdefault(connection.address, [])
        if len(idle) >= MAX_IDLE:
            connection.close()
            return
        connection.idle_since = self._clock()
        idle.append(connection)

    def remove(self, connection: EngineConnection) -> None:
        """A connection is closed."""
        idle = self._idle.get(connection.address)
        if idle and connection in idle:
            idle.remove(connection)
            if not idle:
                del self._idle[connection.address]

    def cancel(self, connection: EngineConnection) -> None:
        """Give up opening a connection."""
        task = self._connecting.pop(connection, None)
        if task is not None:
            task.cancel()

    def tick(self, now: float) -> None:
        """Close connections that were idle for too long; called every second."""
        for idle in list(self._idle.values()):
            for connection in [each for each in idle if now - each.idle_since > IDLE_SECONDS]:
                self.remove(connection)
                connection.close()

    def close(self) -> None:
        """Close all idle connections and give up all that are being opened."""
        for idle in list(self._idle.values()):
            for connection in idle:
                connection.close()
        self._idle.clear()
        for connection in list(self._connecting):
            self.cancel(connection)

    async def _connect(self, connection: EngineConnection) -> None:
        host, _, port = connection.address.rpartition(":")
        failure: Failure | None = None
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._loop.create_connection(lambda: connection, host.strip("[]"), int(port))
        except TimeoutError:
            failure = Failure.CONNECT_TIMEOUT
        except (OSError, UnicodeError):  # UnicodeError: a host name that cannot be one
            failure = Failure.REFUSED
        finally:
            self._connecting.pop(connection, None)
        if failure is not None:
            connection.connect_failed(failure)
