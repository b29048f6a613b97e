"""Client connections: reads requests in order, writes answers. A handler decides the content of an answer.

The handler gets each whole request. It answers at once (`answer`), or returns an active request, which writes (`write`,
`finish`, `cut`) and is notified when the client disconnects or reads too slowly.

A connection is in one of three phases, and its transport takes more bytes (writable) or does not (paused):

| event                 | OPEN                         | ANSWERING                  | CLOSING                     |
|-----------------------|------------------------------|----------------------------|-----------------------------|
| bytes, writable       | begin the next request       | keep PIPELINED_BYTES       | discard                     |
| bytes, paused         | keep PIPELINED_BYTES         | keep PIPELINED_BYTES       | discard                     |
| paused                | begin no request             | pause the active request   | -                           |
| writable again        | begin the next request       | resume the active request  | -                           |
| client sends no more  | CLOSING                      | it left: stop, reset       | close                       |
| ended, persistent     | -                            | OPEN                       | -                           |
| ended, not persistent | -                            | CLOSING                    | -                           |
| answer cut            | -                            | CLOSING, or a reset        | -                           |
| time, all bytes sent  | close; 408 for half a request| as the active request says | close after LINGER_SECONDS  |
| time, bytes not sent  | reset after STALL_SECONDS    | as the active request says | reset after STALL_SECONDS   |

CLOSING shuts the sending side once all bytes are sent and discards received bytes: closing on unread bytes would reset
the connection and destroy the end of the answer (RFC 9112 section 9.6).
"""

import asyncio
import enum
import fcntl
import os
import socket
import struct
import termios
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from promptgroup_router.apis.endpoints import form_of
from promptgroup_router.apis.errors import OPENAI
from promptgroup_router.base.errors import ApiError
from promptgroup_router.http11.http1 import Headers, RequestHead
from promptgroup_router.http11.http_date import HttpDate
from promptgroup_router.http11.lines import HeaderField
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.proxy.making_room import PAUSE_SECONDS, Standing, Use, network_of, who_gives_way
from promptgroup_router.proxy.request_intake import TURN_BYTES, RequestIntake
from promptgroup_router.proxy.response import own_answer

IDLE_SECONDS = 75.0
"""Time limit for the next request on an idle connection: above the 60 s of common load balancers, so that they close
first."""
READ_SECONDS = 60.0
"""Time limit from a request's first byte to its last: bounds the memory that a slow sender can hold."""
LAST_REQUEST_SECONDS = 2.0
"""Time for the next request of a client whose answer began before the drain, and so did not announce the close. The
answer to that request does."""
LINGER_SECONDS = 2.0
"""Time for the client to close after the last answer was sent."""
STALL_SECONDS = 60.0
"""Time limit for a client that reads nothing, after the end of an answer or its cut."""
ANSWERS_AT_ONCE = 32
"""Pipelined requests that are handled before other connections have their turn."""
REFUSED_AT_ONCE = 8
"""Requests of connections whose last one was refused that are handled before all others have their turn: less than a
millisecond. A client beyond its limit may send hundreds at once."""
REFUSED_CONNECTIONS = 256
"""Connections beyond the limit that are answered with 503; more are reset."""

_INTERIM = b"HTTP/1.1 1"


class ActiveRequest(Protocol):
    """A request that is being answered."""

    def client_left(self) -> None:
        """Stop: the client has disconnected. Nothing may be written."""

    def pause(self) -> None:
        """Stop writing until `resume`."""

    def resume(self) -> None:
        """Write again."""

    def tick(self, now: float) -> None:
        """Enforce deadlines; called every second."""


Handler = Callable[["ClientConnection", HttpRequest], ActiveRequest | None]
Refusal = Callable[[ApiError, RequestHead | None], tuple[int, Headers, bytes]]
"""Returns status, fields and body for a request that is refused before it is whole, with its head if that could be
read."""


def plain_refusal(error: ApiError, head: RequestHead | None) -> tuple[int, Headers, bytes]:
    """Return the error alone, in the form of its API."""
    form = form_of(head.path, head.fields) if head is not None else OPENAI
    status, body = form.refuse(error, b"")
    return status, error.headers(), body


class ClientPhase(enum.Enum):
    """The phases of a client's connection."""

    OPEN = "waits for a request, or reads one"
    ANSWERING = "has a request that is not answered"
    CLOSING = "has had its last answer"


class OpeningPlace:
    """A place among the connections of a port, for one that is accepted and not open: within its TLS handshake.

    There is no callback for a failed handshake. Its connection is then garbage-collected, which releases its place.
    """

    __slots__ = ("_clients",)

    def __init__(self, clients: "ClientListener") -> None:
        self._clients = clients
        clients.opening += 1

    def __del__(self) -> None:
        """Give the place back."""
        self._clients.opening -= 1


def _ignore(_use: str) -> None:
    """Count nothing."""


class ClientListener:
    """All connections of one port."""

    def __init__(
        self,
        handler: Handler,
        clock: Callable[[], float],
        max_body: int,
        *,
        refusal: Refusal = plain_refusal,
        budget: BodyBudget | None = None,
        buffers: BodyBudget | None = None,
        max_connections: int = 2**31,
        gave_way: Callable[[str], None] = _ignore,
    ) -> None:
        self.date = HttpDate(time.time)  # noqa: TID251 - the clock that machines share
        self.refusal = refusal
        self.clock = clock
        self.handler = handler
        self.max_body = max_body
        self.max_connections = max_connections
        self.gave_way = gave_way
        """Called for each connection that gives way, with the name of its stage."""
        self.budget = budget or BodyBudget(2**62)
        self.buffers = buffers or BodyBudget(2**62)
        """Memory for buffers of connections: partial heads, pipelined requests, answers that the client has not
        read."""
        self.draining = False
        """True once each answer tells its client that the connection will be closed."""
        self.leaving = False
        """True once connections without a request are closed, whether or not their answers announced it."""
        self.connections: set[ClientConnection] = set()
        self.opening = 0
        """Number of connections that are accepted and not open, within their TLS handshake."""
        self.refused: set[ClientConnection] = set()
        """Connections beyond the limit, which get an error."""
        self._behind: deque[Callable[[], None]] = deque()
        """The next steps of connections whose last request was refused."""
        self._calls_some = False
        """True while some of them are about to be called."""
        self._vain: set[str] = set()
        """Networks for which no connection has lately given way."""
        self._vain_until = 0.0
        self._empty = asyncio.Event()
        self._empty.set()

    def accept(self) -> "ClientConnection":
        """Return a protocol for a new connection."""
        return ClientConnection(self)

    def add(self, connection: "ClientConnection") -> None:
        """Add a connection that was opened."""
        self.connections.add(connection)
        self._empty.clear()

    def remove(self, connection: "ClientConnection") -> None:
        """Remove a connection that was closed."""
        self.connections.discard(connection)
        self.refused.discard(connection)
        if not self.connections:
            self._empty.set()

    def excess(self, newcomer: "ClientConnection") -> int:
        """Return how many connections there are beyond the limit, a new one aside, once others have given way to it."""
        excess, now = len(self.connections) - len(self.refused) + self.opening - self.max_connections, self.clock()
        if excess < 0:
            return excess
        if now >= self._vain_until:
            self._vain.clear()
            self._vain_until = now + PAUSE_SECONDS
        if newcomer.network in self._vain:
            return excess
        yielding = [
            (connection, standing) for connection in self.connections if (standing := connection.standing()) is not None
        ]
        leaving = who_gives_way([standing for _, standing in yielding], newcomer.network, now)
        if not leaving:
            self._vain.add(newcomer.network)
        for place in leaving:
            connection, standing = yielding[place]
            connection.give_way()
            self.gave_way(standing.use.name.lower())
        return excess - len(leaving)

    async def wait_closed(self) -> None:
        """Wait until there is no connection."""
        await self._empty.wait()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back after other connections had their turn."""
        asyncio.get_running_loop().call_soon(callback)

    def call_behind(self, callback: Callable[[], None]) -> None:
        """Call back after connections had their turn whose requests are served, and a few of those that are refused."""
        self._behind.append(callback)
        self._call_rest()

    def _call_some(self) -> None:
        try:
            for _ in range(min(REFUSED_AT_ONCE, len(self._behind))):
                self._behind.popleft()()
        finally:
            self._calls_some = False
            self._call_rest()

    def _call_rest(self) -> None:
        if self._behind and not self._calls_some:
            self._calls_some = True
            self.call_soon(self._call_some)

    def tick(self, now: float) -> None:
        """Enforce deadlines; called every second."""
        for connection in list(self.connections):
            connection.tick(now)

    def drain(self) -> None:
        """Close idle connections at once, and the others after their answers."""
        self.draining = self.leaving = True
        for connection in list(self.connections):
            connection.close_if_idle()

    def abort(self) -> None:
        """Reset all connections."""
        for connection in list(self.connections):
            connection.abort()


class ClientSender:
    """The sender of the requests of a connection."""

    __slots__ = ("_headers", "_key", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._headers: list[HeaderField] = []
        """Those of the current request."""
        self._key: object = None
        """The API key of the last request that had one, cached until the connection ends."""

    def begin(self, request: HttpRequest) -> None:
        """Take the next request."""
        self._headers = request.head.headers

    def peer_address(self) -> str:
        """Return the client's IP address, or that of the last proxy before the router; empty if it is not available."""
        peer = self._transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) and peer else ""

    def repeats(self, name: bytes) -> bool:
        """Return True if the current request has a header field more than once."""
        return sum(field.name == name for field in self._headers) > 1

    def known_key(self) -> object:
        """Return the API key of an earlier request; None if there is none."""
        return self._key

    def remember(self, key: object) -> None:
        """Keep an API key in place of the one before."""
        self._key = key

    def forget(self) -> None:
        """Forget the API key: the connection has ended."""
        self._key = None


class ClientConnection(asyncio.Protocol):
    """One connection of a client."""

    __slots__ = (
        "_active", "_added", "_advancing", "_clients", "_deadline", "_deferred", "_phase", "_place", "_received",
        "_refused", "_request", "_served", "_transport", "_unsent", "_writing_paused", "intake", "network", "sender",
    )  # fmt: skip

    def __init__(self, clients: ClientListener) -> None:
        self._clients = clients
        self._place: OpeningPlace | None = OpeningPlace(clients)
        self._transport: asyncio.Transport
        self.intake: RequestIntake
        """The requests that it has sent."""
        self.sender: ClientSender
        """The sender of these requests."""
        self._phase = ClientPhase.OPEN
        self._request: HttpRequest | None = None
        self._active: ActiveRequest | None = None
        self._added = b""
        """Lines of fields that the head of the next answer gets, with their ends."""
        self._advancing = False
        self._deferred = False
        self._writing_paused = False
        self._deadline = 0.0
        self._received = False
        """True if the client had all of its answers when the connection was closed: nothing is lost if the client has
        disconnected."""
        self._refused = False
        """True if its last request was refused by the router itself: the next one is served after those of others."""
        self._served = False
        """True once it has sent a whole request."""
        self.network = ""
        """The client's network, empty if it is not available."""
        self._unsent = 0
        """Bytes that were unsent at the last `tick`."""

    @property
    def keeps_alive(self) -> bool:
        """True if the connection may carry another request after this one."""
        return self._request is not None and self._request.head.keep_alive and not self._clients.draining

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer, without its body if the request is HEAD."""
        self._refused = status >= 400
        keep, head = self.keeps_alive, self._request.head if self._request is not None else None
        self.write(
            own_answer(
                status,
                headers,
                body,
                minor=head.minor if head is not None else 1,
                keep=keep,
                date=self._clients.date(),
                head_only=head is not None and head.method == b"HEAD",
            )
        )
        self.finish(keep=keep)

    def write(self, data: bytes) -> None:
        """Send bytes of an answer; those of a head begin with it."""
        if self._added and not data.startswith(_INTERIM):
            line, end, rest = data.partition(b"\r\n")
            data, self._added = line + end + self._added + rest, b""
        self._transport.write(data)

    def add_fields(self, headers: Headers) -> None:
        """Add header fields to the answer, from an engine or the router."""
        self._added = b"".join(b"%b: %b\r\n" % field for field in headers)

    def finish(self, *, keep: bool) -> None:
        """End an answer that is whole."""
        self._active = None
        self._request = None
        self.intake.release_body()
        if not keep:
            self._close()
            return
        self._phase = ClientPhase.OPEN
        # the head announced a persistent connection: the client may have sent its next request already
        self._deadline = self._clients.clock() + (LAST_REQUEST_SECONDS if self._clients.leaving else IDLE_SECONDS)
        if not self._advancing:
            self._advance()

    def cut(self, *, visibly: bool) -> None:
        """End an answer that is not whole; `visibly` by a reset, where its framing would not show it."""
        self._active = None
        if visibly:
            self._phase = ClientPhase.CLOSING
            self.intake.release_body()
            _reset(self._transport)
        else:
            self._close()

    def abort(self) -> None:
        """Reset the connection in any phase."""
        self._leave()
        self._phase = ClientPhase.CLOSING
        _reset(self._transport)

    def standing(self) -> Standing | None:
        """Return its stage and age; None if it never gives way."""
        if self._phase is not ClientPhase.OPEN or self._transport.get_write_buffer_size():
            return None
        if self.intake.began:
            use = Use.BEGUN if self.intake.head is None else Use.UPLOADING
            return Standing(use, self.network, self._deadline - READ_SECONDS)
        return Standing(Use.KEPT if self._served else Use.SILENT, self.network, self._deadline - IDLE_SECONDS)

    def give_way(self) -> None:
        """Close at once, for another connection."""
        self._clients.remove(self)
        self._phase = ClientPhase.CLOSING
        self.intake.release_body()
        self._transport.abort()

    def close_if_idle(self) -> None:
        """Close, unless a request or part of one was received."""
        if self._phase is ClientPhase.OPEN and not self.intake.has_bytes:
            self._received = not _unacknowledged(self._transport)
            self._close()

    def tick(self, now: float) -> None:
        """Enforce deadlines."""
        if self._phase is ClientPhase.ANSWERING:
            if self._active is not None:
                self._active.tick(now)
            return
        if self._received and now >= self._deadline:
            self._transport.abort()
            return
        unsent = self._transport.get_write_buffer_size()
        if not unsent and (self._unsent or self._phase is ClientPhase.CLOSING or now >= self._deadline):
            unsent = _unacknowledged(self._transport)
        if unsent:
            if unsent != self._unsent:
                self._unsent, self._deadline = unsent, now + STALL_SECONDS
            elif now >= self._deadline:
                # a reset, since an ordinary end could make the answer appear whole
                _reset(self._transport)
        elif self._unsent:
            self._unsent = 0
            self._deadline = now + (LINGER_SECONDS if self._phase is ClientPhase.CLOSING else IDLE_SECONDS)
        elif now >= self._deadline:
            if self._phase is ClientPhase.OPEN and self.intake.has_bytes:
                message = f"the request did not end within {READ_SECONDS:.0f} s: send it faster"
                self._refuse_and_close(ApiError(408, message, code="bad_request"))
            elif self._clients.leaving and self._phase is ClientPhase.OPEN:
                self._close()
            else:
                self._transport.abort()

    # --- Events of the transport ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream has no other
        """Start a connection, or refuse it where there are too many."""
        self._transport = transport
        clients = self._clients
        self._deadline = clients.clock() + IDLE_SECONDS
        self._place = None
        self.intake = RequestIntake(
            transport, clients.max_body, budget=clients.budget, buffers=clients.buffers, call_soon=clients.call_soon
        )
        self.sender = ClientSender(transport)
        self.network = network_of(self.sender.peer_address())
        excess = clients.excess(self)
        if excess >= 0 and len(clients.refused) >= REFUSED_CONNECTIONS:
            self._phase = ClientPhase.CLOSING
            transport.abort()
            return
        clients.add(self)
        if excess >= 0:
            clients.refused.add(self)
            message = f"this router has {clients.max_connections} connections already: retry"
            self._refuse_and_close(ApiError(503, message, code="overloaded"))

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        intake = self.intake
        if len(data) >= TURN_BYTES:
            intake.end_turn()
        if self._phase is ClientPhase.CLOSING:
            intake.regulate()
            return
        intake.feed(data)
        if self._refused and self._phase is ClientPhase.OPEN:
            self._defer()
            intake.regulate()
        else:
            self._advance()
        self.intake.charge_buffers(self._writing_paused, self.abort)

    def eof_received(self) -> None:
        """Close: a client that sends no more has left, as far as its request is concerned."""
        if self._phase is ClientPhase.ANSWERING:
            self._leave()
            # a reset, since a client that still reads must not take what it has for a whole answer
            _reset(self._transport)
        self._phase = ClientPhase.CLOSING

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the active request."""
        self._clients.remove(self)
        self._leave()
        self._phase = ClientPhase.CLOSING
        self.sender.forget()
        self.intake.return_buffers()

    def pause_writing(self) -> None:
        """Pause the active request, or begin no other: the client does not read as fast."""
        self._writing_paused = True
        if self._active is not None:
            self._active.pause()
        self.intake.charge_buffers(self._writing_paused, self.abort)

    def resume_writing(self) -> None:
        """Resume the active request, or begin the next one."""
        self._writing_paused = False
        if self._active is not None:
            self._active.resume()
        elif not self._advancing:
            self._advance()
        self.intake.charge_buffers(self._writing_paused, self.abort)

    # --- Requests in order ---------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Handle requests as long as they are whole, answered at once, and read by the client."""
        self._advancing = True
        left = ANSWERS_AT_ONCE
        while self._phase is ClientPhase.OPEN and not self._writing_paused:
            if not left:
                self._defer()
                break
            left -= 1
            try:
                request = self.intake.next()
            except ApiError as error:
                self._refuse_and_close(error)
                break
            if request is None:
                if self.intake.wait():
                    self._deadline = self._clients.clock() + READ_SECONDS
                break
            self._begin(request)
            if self._refused and self.intake.buffered:
                left = 0
        self._advancing = False
        self.intake.regulate()

    def _begin(self, request: HttpRequest) -> None:
        self._served = True
        self._request = request
        self.sender.begin(request)
        self._phase = ClientPhase.ANSWERING
        self._refused = False
        active = self._clients.handler(self, request)
        # the handler may have answered, or lost the client
        if self._phase is ClientPhase.ANSWERING:
            self._active = active
            if self._writing_paused and active is not None:
                active.pause()

    def _defer(self) -> None:
        """Go on after other connections had their turn."""
        if not self._deferred:
            self._deferred = True
            (self._clients.call_behind if self._refused else self._clients.call_soon)(self._go_on)

    def _go_on(self) -> None:
        self._deferred = False
        if not self._transport.is_closing():
            self._advance()

    def _refuse_and_close(self, error: ApiError) -> None:
        status, headers, body = self._clients.refusal(error, self.intake.head)
        date = self._clients.date()
        self._transport.write(own_answer(status, headers, body, minor=1, keep=False, date=date))
        self._close()

    def _close(self) -> None:
        """Shut the sending side once all is sent, and discard what the client sends."""
        self._phase = ClientPhase.CLOSING
        self.intake.discard()
        self._deadline = self._clients.clock() + LINGER_SECONDS
        if not self._transport.is_closing():
            self.intake.regulate()
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()  # TLS ends both ways at once; it sends what is left first

    def _leave(self) -> None:
        active, self._active = self._active, None
        self._request = None
        self.intake.release_body()
        if active is not None:
            active.client_left()


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Return the bytes in the kernel's send queue, 0 where it cannot be queried."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return 0
    try:
        size: int = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0]
    except OSError:
        return 0
    return size


def _reset(transport: asyncio.Transport) -> None:
    """Close with a TCP reset: `abort` alone sends an ordinary end."""
    # on a copy of the descriptor, since uvloop lends no socket object; options belong to the socket itself
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        with socket.socket(fileno=os.dup(connection.fileno())) as copy:
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
