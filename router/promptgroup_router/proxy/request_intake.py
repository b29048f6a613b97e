"""Reads the requests of one client connection, within the memory that all connections share.

Bytes of later requests are buffered up to a bound, beyond which nothing is read from the client. A body counts from its
first byte, and is refused where there is no memory for what its head announces.
"""

import asyncio
from collections.abc import Callable

from promptgroup_router.base.errors import ApiError, HttpError
from promptgroup_router.http11.http1 import RequestHead
from promptgroup_router.http11.reader import HttpRequest, RequestReader
from promptgroup_router.proxy.body_budget import BodyBudget

PIPELINED_BYTES = 65536
"""Bytes of later requests that are buffered; beyond them nothing is read from the client. One read may exceed it."""
TURN_BYTES = 131_072
"""A read of so many bytes ends the turn of a connection. The event loop would go on reading up to 32 times as much from
a peer that sends fast, some milliseconds, before any other connection has its turn."""
FREE_BYTES = 4096
"""Bytes that a connection may buffer without being counted: with 10,000 connections 40 MiB."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestIntake:
    """The bytes that a client has sent, and the memory that they take."""

    __slots__ = ("_budget", "_buffered", "_buffers", "_call_soon", "_continued", "_held", "_max_body", "_paused",
                 "_reader", "_rests", "_transport", "began")  # fmt: skip

    def __init__(
        self,
        transport: asyncio.Transport,
        max_body: int,
        *,
        budget: BodyBudget,
        buffers: BodyBudget,
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """Begin without bytes.

        Args:
            transport: the connection's.
            max_body: most bytes of a body.
            budget: memory for bodies.
            buffers: memory for buffers of connections.
            call_soon: calls back after other connections had their turn.
        """
        self._transport = transport
        self._max_body = max_body
        self._budget = budget
        self._buffers = buffers
        self._call_soon = call_soon
        self._reader = RequestReader(max_body)
        self._continued = False
        """True if `100 Continue` was sent."""
        self.began = False
        """True once a part of a request has arrived that is not whole."""
        self._paused = False
        self._rests = False
        """True if nothing is read until other connections had their turn."""
        self._held = 0
        """Bytes of the body that were taken from the budget."""
        self._buffered = 0
        """Bytes that were taken from the budget of buffers."""

    @property
    def head(self) -> RequestHead | None:
        """The head of the request that is being read; None if it has not arrived."""
        return self._reader.head

    @property
    def has_bytes(self) -> bool:
        """True if a part of a request has arrived."""
        return self._reader.begun

    @property
    def buffered(self) -> int:
        """Number of bytes of later requests."""
        return self._reader.buffered

    # --- Requests --------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self._reader.feed(data)

    def next(self) -> HttpRequest | None:
        """Return the next request; None if it is not whole.

        Raises:
            ApiError: it cannot be read, or 503: there is no memory for its body.
        """
        try:
            request = self._reader.next()
        except HttpError as error:
            raise ApiError(error.status, str(error), code="bad_request") from None
        self._hold_body(request)
        if request is not None:
            self._continued = self.began = False
        return request

    def wait(self) -> bool:
        """Wait for more bytes of a request. Return True if its first ones are here, and were not before."""
        if self._reader.awaits_continue and not self._continued:
            self._continued = True
            self._transport.write(_CONTINUE)
        if not self._reader.begun or self.began:
            return False
        self.began = True
        return True

    def discard(self) -> None:
        """Drop all bytes: no further request is read."""
        self._reader = RequestReader(self._max_body)
        self.release_body()

    # --- Reading from the client -----------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Read nothing until other connections had their turn."""
        if not self._rests:
            self._rests = True
            self._call_soon(self._read_on)

    def regulate(self) -> None:
        """Read from the client unless it has sent too much ahead, or it is others' turn."""
        pause = self._rests or self._reader.buffered > PIPELINED_BYTES
        if pause != self._paused and not self._transport.is_closing():
            self._paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _read_on(self) -> None:
        self._rests = False
        self.regulate()

    # --- Memory ----------------------------------------------------------------------------------------------------

    def _hold_body(self, request: HttpRequest | None) -> None:
        """Take the received bytes of a body from the budget."""
        head = self._reader.head
        size = len(request.body) if request is not None else self._reader.body_bytes
        announced = head.length if head is not None else 0
        budget = self._budget
        if announced > size and not self._held and not budget.fits(announced, announced):
            raise _no_room(budget)
        if size != self._held:
            if not budget.take(size - self._held, max(size, announced)):
                raise _no_room(budget)
            self._held = size

    def hold_decoded(self, size: int) -> None:
        """Charge the bytes of a decoded body to the budget, beside those that were received.

        Raises:
            ApiError: 503: there is no memory.
        """
        budget = self._budget
        if not budget.take(size, self._held + size):
            raise _no_room(budget)
        self._held += size

    def release_body(self) -> None:
        """Give the memory of a body back."""
        held, self._held = self._held, 0
        if held:
            self._budget.give_back(held)

    def charge_buffers(self, unsent: bool, abort: Callable[[], None]) -> None:
        """Charge the buffers of this connection to the budget.

        Args:
            unsent: whether answers wait for the client.
            abort: resets the connection: called soon where there is no memory. An answer would be buffered, too.
        """
        size = self._reader.waiting + (self._transport.get_write_buffer_size() if unsent else 0)
        size = size if size > FREE_BYTES else 0
        if size < self._buffered:
            self._buffers.give_back(self._buffered - size)
        elif size > self._buffered and not self._buffers.take(size - self._buffered, size):
            self._call_soon(abort)  # later, since this may be within the handler's own write
            return
        self._buffered = size

    def return_buffers(self) -> None:
        """Give the memory of the buffers back."""
        held, self._buffered = self._buffered, 0
        if held:
            self._buffers.give_back(held)


def _no_room(budget: BodyBudget) -> ApiError:
    message = f"request bodies of {budget.limit} bytes are being processed, which is the limit: retry later"
    return ApiError(503, message, code="overloaded")
