"""One call of a gateway: what it has received, what it is to send, and the window that its peer has."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from promptgroup_picker.http2 import fields
from promptgroup_picker.http2.budget import ANSWER, Budget
from promptgroup_picker.http2.frames import ErrorCode, Http2Error
from promptgroup_picker.http2.grpc_messages import GrpcStatus, MessageReader, framed

WINDOW = 2**20
"""Bytes that a peer may send on a stream before it must wait."""
UNSENT = 2**18
"""Bytes that may wait to be sent on a stream before its window stays closed."""


class Call(Protocol):
    """The handler of a stream."""

    def begun(self, size: int) -> None:
        """Handle the length of a message above `LARGE` before the message arrives.

        Raises:
            GrpcError: the call accepts no message of that size.
        """

    def message(self, data: bytes) -> None:
        """Take a message.

        Raises:
            GrpcError: the call cannot go on.
        """

    def half_closed(self) -> None:
        """Handle the end of the peer's messages."""

    def lost(self) -> None:
        """Handle a stream that ended before its answer did."""


class StreamOwner(Protocol):
    """The connection of a stream, which sends for it."""

    budget: Budget
    """The account of its costs."""
    peer: str
    """Address of the peer; empty if it is not available."""

    def send(self, stream: "Stream", data: bytes) -> None:
        """Send data, as far as the windows allow; the rest waits."""

    def flush(self, stream: "Stream") -> None:
        """Send what waits, as far as the windows allow."""

    def wake(self) -> None:
        """Have the output taken."""


Opener = Callable[[str, "Stream"], "Call | None"]
"""Returns the handler for a call of a path (`/package.Service/Method`); None if there is none."""


class Stream:
    """One call."""

    __slots__ = (
        "_owner", "_unread", "allowed", "answered", "buffered", "call", "ended", "half_closed", "heard", "id",
        "opening", "output", "pays", "quiet", "reader", "served", "trailers", "waiting", "window",
    )  # fmt: skip

    def __init__(self, owner: StreamOwner, number: int, window: int, most: int) -> None:
        self._owner = owner
        self.id = number
        self.call: Call | None = None
        self.window = window
        """Bytes that may be sent."""
        self.reader = MessageReader(most, self._begun)
        self.buffered = 0
        """Bytes of a message that is not whole."""
        self.heard = False
        """True once a message has arrived."""
        self.opening = 0.0
        """Units that the fields cost which opened it, until its first answer pays for them."""
        self.pays = True
        """False for a call whose answers reduce no debt, since it chooses no endpoint."""
        self.quiet = 0
        """Seconds without a first message, or without progress of its output."""
        self.output: deque[bytes | memoryview] = deque()
        """Data that waits for a window."""
        self.waiting = 0
        """Bytes of it."""
        self.trailers: bytes | None = None
        """Set once the call has ended: fields that follow the data."""
        self.answered = False
        """True once the fields of the answer are sent."""
        self.served = False
        """True once the call has ended well, behind an answer."""
        self.ended = False
        self.half_closed = False
        self._unread = 0
        """Bytes received for which the peer got no window yet."""
        self.allowed = WINDOW
        """Bytes that the peer may send more."""

    @property
    def peer(self) -> str:
        """The address of the connection's peer; empty if it is not available."""
        return self._owner.peer

    def _begun(self, size: int) -> None:
        if self.call is not None:
            self.call.begun(size)

    def send(self, message: bytes) -> None:
        """Send a message."""
        if not self.ended and self.trailers is None:
            if self.pays:
                self._owner.budget.pay(ANSWER + self.opening)
                self.opening = 0.0
            self._owner.send(self, framed(message))
            self._owner.wake()

    def finish(self, status: GrpcStatus = GrpcStatus.OK, message: str = "") -> None:
        """End the call, behind all messages."""
        if not self.ended and self.trailers is None:
            self.trailers = fields.trailers(status, message)
            self.served = self.answered and status is GrpcStatus.OK
            self._owner.flush(self)
            self._owner.wake()

    def received(self, count: int) -> None:
        """Count bytes for which the peer gets a window.

        Raises:
            Http2Error: they are more than it was allowed.
        """
        self._unread += count
        self.allowed -= count
        if self.allowed < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"stream {self.id} has more data than its window")

    def grant(self) -> int:
        """Return how many more bytes the peer may send, and reset the number."""
        if self._unread < WINDOW // 4 or self.waiting > UNSENT:
            return 0
        more, self._unread = self._unread, 0
        self.allowed += more
        return more
