"""Connections to engines: each carries one request at a time, and is pooled for the next one if it is clean.

A connection is acquired at once and sends when it is open; `abort` closes it in any phase. A listener is notified by
plain method calls; after `answer_ended` or `failed` it is not called again.

| event                  | CONNECTING | SENT (no answer)             | ANSWERING                    | IDLE   |
|------------------------|------------|------------------------------|------------------------------|--------|
| open                   | send       | -                            | -                            | -      |
| bytes                  | -          | a whole head: ANSWERING      | relay                        | close  |
| pause, resume          | remember   | stop reading, read           | stop reading, read           | -      |
| answer ends, clean     | -          | IDLE, reading                | IDLE, reading                | -      |
| answer ends, not clean | -          | abort                        | abort                        | -      |
| engine closes          | -          | RESET; STALE if used before  | RESET, or the answer's end   | remove |
| abort                  | give up    | abort                        | abort                        | abort  |

Towards an engine that serves TLS a connection is open once the engine is verified. There an answer that ends with its
connection is whole only if the engine sends a close alert (RFC 8446 section 6.1): any party on the network path can end
a connection.

An answer leaves its connection clean if its framing allows another request, nothing follows it, and the engine has
read the whole request. The last cannot be seen beyond this machine's buffers, so that after an error to a large
request the connection is not clean either.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import NamedTuple, Protocol

from promptgroup_router.base.authorities import Authorities, BundleRef, bundle_of
from promptgroup_router.base.errors import Failure, HttpError
from promptgroup_router.http11.http1 import ResponseHead
from promptgroup_router.http11.reader import ResponseReader
from promptgroup_router.proxy.request_intake import TURN_BYTES
from promptgroup_router.rings.index import Member

IDLE_SECONDS = 4.0
"""Time limit for a pooled connection, below uvicorn's keep-alive of 5 s, vLLM's default: the router closes first, so
that few requests are sent on a connection that is just being closed."""
MAX_IDLE = 256
"""Most pooled connections of one engine: as many requests as it decodes at the same time."""
STALE_SECONDS = 1.0
"""An engine that closes a pooled connection within this time has not seen the request; later it may have died of
it."""
UNREAD_BYTES = 16384
"""Bytes of a request that an engine has surely read when it answers with an error."""

HANDSHAKE_SECONDS = 5.0
"""Time limit for the TLS handshake with an engine, whose one thread may be busy with a large request."""
SHUTDOWN_SECONDS = 1.0
"""Time that an engine has to confirm the end of a TLS connection that is not used any more."""

PIECE_BYTES = 65_536
"""Bytes of a request that are handed to the kernel at a time: it copies them while all other requests wait."""

_NOTHING = memoryview(b"")


class Verification(NamedTuple):
    """The rule by which an engine is verified."""

    bundle: BundleRef
    """The authorities."""
    server_name: str
    """The name that its certificate must have; empty for its address."""


_PoolKey = str | tuple[str, Verification]
"""Address of an engine, and how it is verified if it serves TLS."""


def verification_of(member: Member) -> Verification | None:
    """Return how a member's engine is verified; None for plain HTTP."""
    tls = member.tls
    if tls is None:
        return None
    return Verification(bundle_of(member.group.partition("/")[0], tls), tls.server_name)


class Contexts(Protocol):
    """The source of the TLS settings."""

    def context(self, ref: BundleRef, /) -> ssl.SSLContext | None:
        """Return how engines are verified by a bundle; None while none was read."""


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
        "_connections", "_deferred", "_full", "_listener", "_paused", "_reader", "_reading_paused", "_request",
        "_rests", "_saw_end", "_sent", "_sent_at", "_transport", "_unwritten", "address", "context", "idle_since",
        "used", "verification",
    )  # fmt: skip

    def __init__(
        self,
        connections: "EngineConnections",
        address: str,
        verification: Verification | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self.verification = verification
        """The rule by which the engine is verified; None for plain HTTP."""
        self.context = context
        """The TLS settings that the connection was opened with; once they are replaced it gets no further requests."""
        self._saw_end = verification is None
        """True if the end of the connection counts as the engine's own."""
        self.used = False
        """True if it has carried an answer, so that the engine may have closed it since."""
        self.idle_since = 0.0
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._listener: AnswerListener | None = None
        self._reader = ResponseReader()
        self._request: tuple[bytes, bytes | bytearray] = (b"", b"")
        """Head and body, while the connection is being opened."""
        self._unwritten = _NOTHING
        """The rest of a body of several pieces."""
        self._full = False
        """True while the transport wants no more."""
        self._deferred = False
        self._sent = 0
        """Bytes of the request."""
        self._sent_at = 0.0
        self._paused = False
        """True while the client does not read as fast."""
        self._rests = False
        """True if nothing is read until other connections had their turn."""
        self._reading_paused = False

    def send(self, head: bytes, body: bytes | bytearray, listener: AnswerListener) -> None:
        """Send a request as soon as the connection is open."""
        self._listener = listener
        if self._reader.begun:
            self._reader.restart()
        self._sent = len(head) + len(body)
        self._sent_at = self._connections.now()
        if self._transport is not None:
            self._write(self._transport, head, body)
        else:
            self._request = head, body

    def abort(self) -> None:
        """Close at once; the listener is not called again."""
        self._listener = None
        self._request = (b"", b"")
        self._unwritten = _NOTHING
        if self._transport is not None:
            self._transport.abort()
        else:
            self._connections.cancel(self)

    @property
    def is_open(self) -> bool:
        """True if a request can be sent; one that the engine has closed is lost with the next turn of the loop."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def has_ended(self) -> bool:
        """True if the answer has arrived whole."""
        return self._reader.done

    @property
    def between_chunks(self) -> bool:
        """True if the received part of the answer does not end within a chunk."""
        return self._reader.between_chunks

    def pause(self) -> None:
        """Read nothing until `resume`: the client does not read as fast."""
        self._paused = True
        self._regulate_reading()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        self._regulate_reading()

    # --- Events of the transport ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream has no other
        """Send the request that waits."""
        self._transport = transport
        self._connections.opened(self)
        if self._listener is None:
            transport.abort()  # the client has left meanwhile
            return
        (head, body), self._request = self._request, (b"", b"")
        self._write(transport, head, body)
        self._regulate_reading()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the answer."""
        listener, reader = self._listener, self._reader
        if listener is None:
            self.close()  # an answer that nobody asked for
            return
        if len(data) >= TURN_BYTES and not self._rests:
            self._rests = True
            self._connections.call_soon(self._read_on)
            self._regulate_reading()
        started = reader.head is not None
        try:
            body = reader.feed(data)
        except HttpError:
            self._fail(Failure.MALFORMED)
            return
        if not started:
            if reader.has_interim:
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

    def pause_writing(self) -> None:
        """Write no other piece: the engine does not read as fast."""
        self._full = True

    def resume_writing(self) -> None:
        """Write the next piece."""
        self._full = False
        self._write_piece()

    def eof_received(self) -> None:
        """Close at once: to flush the rest of a request first could take for ever."""
        self._saw_end = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer, or fail."""
        self._connections.remove(self)
        listener = self._listener
        if listener is None:
            return
        if self._reader.ends_by_close and exc is None and self._saw_end:
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

    def _write(self, transport: asyncio.Transport, head: bytes, body: bytes | bytearray) -> None:
        if len(body) <= PIECE_BYTES:
            # two writes, since joining them would copy the body
            transport.writelines([head, body] if body else [head])
            return
        transport.write(head)
        self._unwritten = memoryview(body)
        self._write_piece()

    def _write_piece(self) -> None:
        """Write a piece of a large body, and the next one after other connections had their turn."""
        transport = self._transport
        if self._full or self._deferred or not self._unwritten or transport is None or transport.is_closing():
            return
        transport.write(self._unwritten[:PIECE_BYTES])
        self._unwritten = self._unwritten[PIECE_BYTES:] or _NOTHING  # an empty view would keep the body
        if self._unwritten:
            self._deferred = True
            self._connections.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._deferred = False
        self._write_piece()

    def _read_on(self) -> None:
        self._rests = False
        self._regulate_reading()

    def _regulate_reading(self) -> None:
        """Read unless the client does not read as fast, or it is others' turn."""
        pause, transport = self._paused or self._rests, self._transport
        if pause != self._reading_paused and transport is not None and not transport.is_closing():
            self._reading_paused = pause
            if pause:
                transport.pause_reading()
            else:
                transport.resume_reading()

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
        if self._unwritten or transport.get_write_buffer_size():
            return False
        return head.status < 400 or self._sent <= UNREAD_BYTES

    def _fail(self, failure: Failure) -> None:
        listener, self._listener = self._listener, None
        if self._transport is not None:
            self._transport.abort()
        if listener is not None:
            listener.failed(failure)


class EngineConnections:
    """All connections to engines; those that are idle are pooled by address, and by how the engine is verified."""

    def __init__(
        self,
        clock: Callable[[], float],
        connect_timeout: float,
        authorities: Contexts | None = None,
        handshake_timeout: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._clock = clock
        self._authorities: Contexts = authorities or Authorities()
        self._handshake_timeout = handshake_timeout
        self._loop = asyncio.get_running_loop()
        self._connect_timeout = connect_timeout
        self._idle: dict[_PoolKey, list[EngineConnection]] = {}
        self._connecting: dict[EngineConnection, asyncio.Task[None]] = {}
        self._limits: dict[EngineConnection, asyncio.Timeout] = {}
        """The time limits of those that are being opened."""

    def now(self) -> float:
        """Return the time by the clock of all connections."""
        return self._clock()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back after other connections had their turn."""
        self._loop.call_soon(callback)

    def acquire(self, address: str, *, fresh: bool, verification: Verification | None = None) -> EngineConnection:
        """Return a connection to `host:port`, pooled or new.

        Args:
            address: of the engine.
            fresh: True for a new one.
            verification: how the engine is verified; None for plain HTTP.
        """
        context = self._authorities.context(verification.bundle) if verification is not None else None
        key: _PoolKey = address if verification is None else (address, verification)
        idle = self._idle.get(key)
        while idle and not fresh:
            # the one used last, so that the others grow old and are closed
            connection = idle.pop()
            if not idle:
                del self._idle[key]
            if connection.context is not context:
                connection.close()  # verified by authorities that have been replaced
            elif connection.is_open:
                return connection
        connection = EngineConnection(self, address, verification, context)
        self._connecting[connection] = self._loop.create_task(self._connect(connection))
        return connection

    def put_back(self, connection: EngineConnection) -> None:
        """Pool a connection for the next request."""
        idle = self._idle.setdefault(_pool_key(connection), [])
        if len(idle) >= MAX_IDLE:
            connection.close()
            return
        connection.idle_since = self._clock()
        idle.append(connection)

    def remove(self, connection: EngineConnection) -> None:
        """Remove a connection that was closed."""
        key = _pool_key(connection)
        idle = self._idle.get(key)
        if idle and connection in idle:
            idle.remove(connection)
            if not idle:
                del self._idle[key]

    def opened(self, connection: EngineConnection) -> None:
        """End the time limit of opening a connection.

        The task that opens it may go on much later, where the loop is busy: the limit would then close a connection
        that has carried an answer meanwhile, without a call of the listener.
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
            for connection in [
                engine_connection for engine_connection in idle if now - engine_connection.idle_since > IDLE_SECONDS
            ]:
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
            if connection.verification is None:
                async with asyncio.timeout(self._connect_timeout) as self._limits[connection]:
                    await self._loop.create_connection(lambda: connection, host.strip("[]"), int(port))
            else:
                failure = await self._connect_securely(connection, connection.verification, host.strip("[]"), int(port))
        except TimeoutError:
            failure = Failure.CONNECT_TIMEOUT
        except (OSError, UnicodeError):  # UnicodeError: a host name that cannot be one
            failure = Failure.REFUSED
        finally:
            self._connecting.pop(connection, None)
            self._limits.pop(connection, None)
        if failure is not None:
            connection.connect_failed(failure)

    async def _connect_securely(
        self, connection: EngineConnection, verification: Verification, host: str, port: int
    ) -> Failure | None:
        """Open a connection with TLS. Return the failure if the other side was reached.

        Raises:
            OSError: the other side is not reached; TimeoutError if it is not reached in time.
            UnicodeError: the host's name cannot be one.
        """
        if connection.context is None:
            return Failure.UNTRUSTED  # its authorities have not been read
        async with asyncio.timeout(self._connect_timeout):
            opened = await self._reach(host, port)
        try:
            await self._loop.create_connection(
                lambda: connection,
                sock=opened,
                ssl=connection.context,
                server_hostname=verification.server_name or host,
                ssl_handshake_timeout=self._handshake_timeout,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except ssl.SSLError as error:
            opened.close()
            return Failure.UNTRUSTED if isinstance(error, ssl.SSLCertVerificationError) else Failure.NO_TLS
        except ConnectionAbortedError:  # the end of the handshake's time
            opened.close()
            return Failure.CONNECT_TIMEOUT
        except BaseException:
            opened.close()
            raise
        return None

    async def _reach(self, host: str, port: int) -> socket.socket:
        """Open a connection on which TLS begins: a removed engine fails sooner than a busy one."""
        result = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = result[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(opened, address)
        except BaseException:
            opened.close()
            raise
        return opened


def _pool_key(connection: EngineConnection) -> _PoolKey:
    return connection.address if connection.verification is None else (connection.address, connection.verification)
