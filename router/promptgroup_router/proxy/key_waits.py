"""Requests that wait until the keys of a token issuer are read again: it may have a new key, by which they are valid.

The number of waiting requests and their wait are limited: a client with forged tokens gains only an open connection.
"""

from collections.abc import Callable
from typing import Protocol

from promptgroup_router.base.errors import KeysAwaitedError
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ActiveRequest, ClientConnection

WAIT_SECONDS = 8.0
"""Longest wait: until the keys may be requested again, and some time for the answer."""
MOST_WAITING = 256
"""Most requests of a port that wait; others get an error that asks for a retry."""


class Handling(Protocol):
    """The steps of a request's life after a wait."""

    def handle(self, client: ClientConnection, request: HttpRequest, arrived: float) -> ActiveRequest | None:
        """Answer a request that arrived at a time, or return the object that will; raises KeysAwaitedError."""

    def refuse(self, error: KeysAwaitedError, client: ClientConnection, request: HttpRequest) -> None:
        """Answer with an error."""


class KeyWaits:
    """The requests of one port that wait."""

    def __init__(self, steps: Handling) -> None:
        self._steps = steps
        self._waiting: dict[int, AwaitingKeys] = {}
        """By identity, in the order of arrival."""

    @property
    def full(self) -> bool:
        """True if no other request may wait."""
        return len(self._waiting) >= MOST_WAITING

    def add(
        self, client: ClientConnection, request: HttpRequest, arrived: float, error: KeysAwaitedError
    ) -> "AwaitingKeys":
        """Return the object that waits on behalf of a request."""
        waits = AwaitingKeys(self._steps, client, request, arrived, error, on_end=self._remove)
        self._waiting[id(waits)] = waits
        return waits

    def look(self) -> None:
        """Retry all of them: keys were read, or could not be."""
        for waits in list(self._waiting.values()):
            waits.look()

    def _remove(self, waits: "AwaitingKeys") -> None:
        self._waiting.pop(id(waits), None)


class AwaitingKeys:
    """A request that waits, and the object that answers it later."""

    __slots__ = ("_active", "_came", "_client", "_error", "_on_end", "_paused", "_request", "_steps")

    def __init__(
        self,
        steps: Handling,
        client: ClientConnection,
        request: HttpRequest,
        came: float,
        error: KeysAwaitedError,
        *,
        on_end: Callable[["AwaitingKeys"], None],
    ) -> None:
        self._steps = steps
        self._client = client
        self._request = request
        self._came = came
        self._error = error
        self._on_end: Callable[[AwaitingKeys], None] | None = on_end
        """Called when the wait ends; None after it."""
        self._active: ActiveRequest | None = None
        self._paused = False

    def look(self) -> None:
        """Process the request if the sender can be identified; else go on waiting."""
        try:
            active = self._steps.handle(self._client, self._request, self._came)
        except KeysAwaitedError as error:
            self._error = error
            return
        self._end()
        self._active = active
        if self._paused and active is not None:
            active.pause()

    def client_left(self) -> None:
        """Stop: the client has disconnected."""
        self._end()
        if self._active is not None:
            self._active.client_left()

    def pause(self) -> None:
        """Stop writing until `resume`."""
        self._paused = True
        if self._active is not None:
            self._active.pause()

    def resume(self) -> None:
        """Write again."""
        self._paused = False
        if self._active is not None:
            self._active.resume()

    def tick(self, now: float) -> None:
        """Enforce deadlines."""
        if self._active is not None:
            self._active.tick(now)
        elif self._on_end is not None and now >= self._came + WAIT_SECONDS:
            self._end()
            self._steps.refuse(self._error, self._client, self._request)

    def _end(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self)
