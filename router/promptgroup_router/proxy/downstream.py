"""Client connections: requests in, in order, answers out. What an answer is, a handler decides.

The handler gets each whole request and either answers it at once (`answer`) or returns what runs for it, which then
writes (`write`, `finish`, `cut`) and is told when the client leaves or does not keep up.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from typing import Protocol

from promptgroup_router.base.errors import ApiError, HttpError
from promptgroup_router.http11.http1 import Headers
from promptgroup_router.http11.reader import HttpRequest, RequestReader
from promptgroup_router.proxy.response import own_answer

IDLE_SECONDS = 75.0
"""For the next request on a kept connection: above the 60 s of common load balancers, so that they let go first."""
READ_SECONDS = 60.0
"""From a request's first byte to its last: bounds what a client that trickles can hold."""
LINGER_SECONDS = 2.0
"""After an early refusal, for the client to read it: closing on unread bytes would reset the connection under it
(RFC 9112 section 9.6)."""
PIPELINED_BYTES = 65536
"""Bytes of later requests that are taken in while one runs; then the client has to wait."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ActiveRequest(Protocol):
    """What works on a request."""

    def client_left(self) -> None:
        """The client is gone: stop, write nothing more."""

    def pause(self) -> None:
        """The client does not keep up."""

    def resume(self) -> None:
        """It does again."""

    def tick(self, now: float) -> None:
        """Called every second, to keep deadlines."""


Handler = Callable[["ClientConnection", HttpRequest], ActiveRequest | None]


class ClientListener:
    """All connections of one port."""

    def __init__(self, handler: Handler, clock: Callable[[], float], max_body: int) -> None:
        self.clock = clock
        self.handler = handler
        self.max_body = max_body
        self.draining = False
        self.connections: set[ClientConnection] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def accept(self) -> "ClientConnection":
        """A protocol for a new connection."""
        return ClientConnection(self)

    def add(self, connection: "ClientConnection") -> None:
        """A client has come."""
        self.connections.add(connection)
        self._empty.clear()

    def remove(self, connection: "ClientConnection") -> None:
        """A client is gone."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    async def wait_closed(self) -> None:
        """Wait until there is no connection."""
        await self._empty.wait()

    def tick(self, now: float) -> None:
        """Keep deadlines; called every second."""
        for connection in list(self.connections):
            connection.tick(now)

    def drain(self) -> None:
        """Close what is idle, and every other connection after its answer."""
        self.draining = True
        for connection in list(self.connections):
            connection.close_if_idle()

    def abort(self) -> None:
        """Close everything at once."""
        for connection in list(self.connections):
            connection.abort()


class ClientConnection(asyncio.Protocol):
    """One connection."""

    __slots__ = (
        "_advancing", "_busy", "_clients", "_deadline", "_lingering", "_reader", "_reading", "_request", "_running",
        "_told_to_go_on", "_transport",
    )  # fmt: skip

    def __init__(self, clients: ClientListener) -> None:
        self._clients = clients
        self._reader = RequestReader(clients.max_body)
        self._transport: asyncio.Transport
        self._request: HttpRequest | None = None
        self._running: ActiveRequest | None = None
        self._busy = False
        self._advancing = False
        self._lingering = False
        self._told_to_go_on = False
        self._reading = False
        self._deadline = 0.0

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection may carry another request after this one."""
        return self._request is not None and self._request.head.keep_alive and not self._clients.draining

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer and go on."""
        keep = self.keeps_alive
        minor = self._request.head.minor if self._request is not None else 1
        self.write(own_answer(status, headers, body, minor=minor, keep=keep))
        self.finish(keep=keep)

    def refuse(self, error: ApiError) -> None:
        """Send an error and go on."""
        self.answer(error.status, error.headers(), error.body())

    def write(self, data: bytes) -> None:
        """Send bytes of an answer."""
        self._transport.write(data)

    def finish(self, *, keep: bool) -> None:
        """The answer is whole."""
        self._busy = False
        self._running = None
        self._request = None
        if not keep or (self._clients.draining and not self._reader.begun):
            self._transport.close()
            return
        self._deadline = self._clients.clock() + IDLE_SECONDS
        if not self._advancing:
            self._transport.resume_reading()
            self._advance()

    def cut(self, *, visibly: bool) -> None:
        """End an answer that is not whole; `visibly` by a reset, where its framing would not show it."""
        self._running = None
        if visibly:
            _reset(self._transport)
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever runs."""
        self._leave()
        _reset(self._transport)

    def close_if_idle(self) -> None:
        """Close, unless a request is here or on its way."""
        if not self._busy and not self._reader.begun:
            self._transport.close()

    def tick(self, now: float) -> None:
        """Keep deadlines."""
        if self._busy:
            if self._running is not None:
                self._running.tick(now)
        elif now >= self._deadline:
            if self._reader.begun and not self._lingering:
                self._refuse_and_close(408, f"the request did not end within {READ_SECONDS:.0f} s: send it faster")
            else:
                self._transport.abort()

    # --- Events of the transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream has no other
        """A client has come."""
        self._transport = transport
        self._deadline = self._clients.clock() + IDLE_SECONDS
        self._clients.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of this request, or of one behind it."""
        if self._lingering:
            return
        self._reader.feed(data)
        if not self._busy:
            self._advance()
        elif self._reader.buffered > PIPELINED_BYTES:
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """The client sends no more: it has left, as far as a request that runs is concerned."""
        if self._busy:
            self._leave()
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed, by whichever side."""
        self._clients.remove(self)
        self._leave()

    def pause_writing(self) -> None:
        """More is waiting to be sent than is good."""
        if self._running is not None:
            self._running.pause()

    def resume_writing(self) -> None:
        """It was sent."""
        if self._running is not None:
            self._running.resume()

    # --- Requests in order ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Handle requests as long as they are whole and answered at once."""
        self._advancing = True
        while not self._busy and not self._transport.is_closing():
            try:
                request = self._reader.next()
            except HttpError as error:
                self._refuse_and_close(error.status, str(error))
                break
            if request is None:
                self._wait()
                break
            self._told_to_go_on = self._reading = False
            self._request = request
            self._busy = True
            running = self._clients.handler(self, request)
            if self._busy:
                self._running = running
        self._advancing = False

    def _wait(self) -> None:
        """More bytes are needed."""
        if self._reader.awaits_continue and not self._told_to_go_on:
            self._told_to_go_on = True
            self._transport.write(_CONTINUE)
        if self._reader.begun and not self._reading:
            self._reading = True
            self._deadline = self._clients.clock() + READ_SECONDS

    def _refuse_and_close(self, status: int, message: str) -> None:
        error = ApiError(status, message, code="bad_request")
        self._transport.write(own_answer(status, error.headers(), error.body(), minor=1, keep=False))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._lingering = True
        self._deadline = self._clients.clock() + LINGER_SECONDS

    def _leave(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.client_left()


def _reset(transport: asyncio.Transport) -> None:
    """Close with a TCP reset: `abort` alone sends an ordinary end."""
    # on a copy of the descriptor, since uvloop lends no socket object; options belong to the socket itself
    descriptor = transport.get_extra_info("socket").fileno()
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
