"""Connections to engines: each carries one request at a time, and is pooled for the next one if it is clean.

A connection is acquired at once and sends when it is open; `abort` closes it in any phase. A listener learns what
happens by plain method calls; after `answer_ended` or `failed` it hears nothing more.

| event                  | CONNECTING | SENT (no answer)             | ANSWERING                    | IDLE   |
|------------------------|------------|------------------------------|------------------------------|--------|
| open                   | send       | -                            | -                            | -      |
| bytes                  | -          | a whole head: ANSWERING      | relay                        | close  |
| pause, resume          | remember   | stop reading, read           | stop reading, read           | -      |
| answer ends, clean     | -          | IDLE, reading                | IDLE, reading                | -      |
| answer ends, not clean | -          | abort                        | abort                        | -      |
| engine closes          | -          | RESET; STALE if used before  | RESET, or the answer's end   | remove |
| abort                  | give up    | abort                        | abort                        | abort  |

An answer leaves its connection clean if its framing allows another request, nothing follows it, and the engine has
read the whole request. The last cannot be seen beyond this machine's buffers, so that after an error to a large
request the connection is not clean either.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from promptgroup_router.base.errors import Failure, HttpError
from promptgroup_router.http11.http1 import ResponseHead
from promptgroup_router.http11.reader import ResponseReader

IDLE_SECONDS = 4.0
"""Time limit for a pooled connection, below uvicorn's keep-alive of 5 s, vLLM's default: the router closes first, so
that few requests meet a connection that is just being closed."""
MAX_IDLE = 256
"""Most pooled connections of one engine: as many requests as it decodes at the same time."""
STALE_SECONDS = 1.0
"""An engine that closes a pooled connection within this time has not seen the request; later it may have died of
it."""
UNREAD_BYTES = 16384
"""Bytes of a request that an engine has surely read when it answers with an error."""


class AnswerListener(Protocol):
    """The receiver of an answer."""

    def interim_answer(self, head: ResponseHead) -> None:
        """Take an interim answer (1xx); the final one follows."""

    def answer_began(self, head: ResponseHead) -> None:
        """Take the head; `abort` on the connection drops the rest."""

    def answer_data(self, data: bytes) -> None:
        """Take bytes of the body, as received."""

    def answer_ended(self) -> None:
        """Finish: the answer is whole."""

    def failed(self, failure: Failure) -> None:
        """Give up: there will be no whole answer."""


class EngineConnection(asyncio.Protocol):
    """One connection to one engine."""

    __slots__ = (
        "_connections", "_listener", "_paused", "_reader", "_request", "_sent", "_sent_at", "_transport", "address",
        "idle_since", "used",
    )  # fmt: skip

    def __init__(self, connections: "EngineConnections", address: str) -> None:
        self.address = address
        self.used = False
        """True if it has carried an answer, so that the engine may have closed it since."""
        self.idle_since = 0.0
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._listener: AnswerListener | None = None
        self._reader = ResponseReader()
        self._request: tuple[bytes, bytes] = (b"", b"")
        """Head and body, until they are written."""
        self._sent = 0
        """Bytes of the request."""
        self._sent_at = 0.0
        self._paused = False

    def send(self, head: bytes, body: bytes, listener: AnswerListener) -> None:
        """Send a request as soon as the connection is open."""
        self._listener = listener
        self._reader = ResponseReader()
        self._sent = len(head) + len(body)
        self._sent_at = self._connections.now()
        self._request = head, body
        if self._transport is not None:
            self._write(self._transport)

    def abort(self) -> None:
        """Close at once; the listener hears nothing more."""
        self._listener = None
        self._request = (b"", b"")
        if self._transport is not None:
            self._transport.abort()
        else:
            self._connections.cancel(self)

    @property
    def is_open(self) -> bool:
        """True if a request can be sent; one that the engine has closed is lost with the next turn of the loop."""
        return self._transport is not None and not self._transport.is_closing()

    def pause(self) -> None:
        """Read nothing until `resume`: the client does not read as fast."""
        self._set_paused(paused=True)

    def resume(self) -> None:
        """Read again."""
        self._set_paused(paused=False)

    # --- Events of the transport ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream has no other
        """Send the request that waits."""
        self._transport = transport
        self._connections.opened(self)
        if self._listener is None:
            transport.abort()  # the client has left meanwhile
            return
        self._write(transport)
        if self._paused:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the answer."""
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
            for interim in reader.take_interim():
                listener.interim_answer(interim)
            if reader.head is None or self._listener is not listener:
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

    def eof_received(self) -> None:
        """Close at once: to flush the rest of a request first could take for ever."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer, or fail."""
        self._connections.remove(self)
        listener = self._listener
        if listener is None:
            return
        if self._reader.ends_by_close and exc is None:
            self._listener = None
            listener.answer_ended()
            return
        stale = self.used and not self._reader.begun and self._connections.now() - self._sent_at < STALE_SECONDS
        self._fail(Failure.STALE if stale else Failure.RESET)

    def connect_failed(self, failure: Failure) -> None:
        """Fail: the connection could not be opened."""
        self._fail(failure)

    def close(self) -> None:
        """Close an idle connection."""
        if self._transport is not None:
            self._transport.close()

    def _write(self, transport: asyncio.Transport) -> None:
        (head, body), self._request = self._request, (b"", b"")
        # two writes, since joining them would copy a large body
        transport.writelines([head, body] if body else [head])

    def _set_paused(self, *, paused: bool) -> None:
        changed, self._paused = paused != self._paused, paused
        if changed and self._transport is not None and not self._transport.is_closing():
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _end(self, listener: AnswerListener) -> None:
        self._listener = None
        self.used = True
        if self._is_clean():
            self.resume()
            self._connections.put_back(self)
        elif self._transport is not None:
            self._transport.abort()
        listener.answer_ended()

    def _is_clean(self) -> bool:
        """Return True if the connection may carry another request."""
        head, transport = self._reader.head, self._transport
        if head is None or transport is None or transport.is_closing() or not self._reader.reusable:
            return False
        if transport.get_write_buffer_size():
            return False
        return head.status < 400 or self._sent <= UNREAD_BYTES

    def _fail(self, failure: Failure) -> None:
        listener, self._listener = self._listener, None
        if self._transport is not None:
            self._transport.abort()
        if listener is not None:
            listener.failed(failure)


class EngineConnections:
    """All connections to engines; those that are idle are pooled by address."""

    def __init__(self, clock: Callable[[], float], connect_timeout: float) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._connect_timeout = connect_timeout
        self._idle: dict[str, list[EngineConnection]] = {}
        self._connecting: dict[EngineConnection, asyncio.Task[None]] = {}
        self._limits: dict[EngineConnection, asyncio.Timeout] = {}
        """The time limits of those that are being opened."""

    def now(self) -> float:
        """Return the time by the clock of all connections."""
        return self._clock()

    def acquire(self, address: str, *, fresh: bool) -> EngineConnection:
        """Return a connection to `host:port`, pooled or new; `fresh` asks for a new one."""
        idle = self._idle.get(address)
        while idle and not fresh:
            # the one used last, so that the others grow old and are closed
            connection = idle.pop()
            if not idle:
                del self._idle[address]
            if connection.is_open:
                return connection
        connection = EngineConnection(self, address)
        self._connecting[connection] = self._loop.create_task(self._connect(connection))
        return connection

    def put_back(self, connection: EngineConnection) -> None:
        """Pool a connection for the next request."""
        idle = self._idle.setdefault(connection.address, [])
        if len(idle) >= MAX_IDLE:
            connection.close()
            return
        connection.idle_since = self._clock()
        idle.append(connection)

    def remove(self, connection: EngineConnection) -> None:
        """Remove a connection that was closed."""
        idle = self._idle.get(connection.address)
        if idle and connection in idle:
            idle.remove(connection)
            if not idle:
                del self._idle[connection.address]

    def opened(self, connection: EngineConnection) -> None:
        """End the time limit of opening a connection.

        The task that opens it may go on much later, where the loop is busy: the limit would then close a connection
        that has carried an answer meanwhile, and nobody would hear of it.
        """
        limit = self._limits.pop(connection, None)
        if limit is not None and not limit.expired():
            limit.reschedule(None)

    def cancel(self, connection: EngineConnection) -> None:
        """Give up opening a connection."""
        task = self._connecting.pop(connection, None)
        if task is not None:
            task.cancel()

    def tick(self, now: float) -> None:
        """Close connections that have been idle for too long; called every second."""
        for idle in list(self._idle.values()):
            for connection in [each for each in idle if now - each.idle_since > IDLE_SECONDS]:
                self.remove(connection)
                connection.close()

    def close(self) -> None:
        """Close all idle connections, and give up those that are being opened."""
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
            async with asyncio.timeout(self._connect_timeout) as self._limits[connection]:
                await self._loop.create_connection(lambda: connection, host.strip("[]"), int(port))
        except TimeoutError:
            failure = Failure.CONNECT_TIMEOUT
        except (OSError, UnicodeError):  # UnicodeError: a host name that cannot be one
            failure = Failure.REFUSED
        finally:
            self._connecting.pop(connection, None)
            self._limits.pop(connection, None)
        if failure is not None:
            connection.connect_failed(failure)
