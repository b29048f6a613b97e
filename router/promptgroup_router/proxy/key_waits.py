"""Requests that wait until an issuer of tokens was asked for its keys: it may have a new one, by which they are good.

Few wait at a time, and not for long: whoever makes up tokens gets a connection kept open, and no more.
"""

from collections.abc import Callable
from typing import Protocol

from promptgroup_router.access.authenticator import KeysAwaitedError
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ActiveRequest, ClientConnection

WAIT_SECONDS = 8.0
"""Longest wait: until an issuer may be asked again, and a while in which it answers."""
MOST_WAITING = 256
"""Most requests of a port that wait; others are told to try again."""


class Handling(Protocol):
    """The steps of a request's life that a wait may come before."""

    def handle(self, client: ClientConnection, request: HttpRequest, arrived: float) -> ActiveRequest | None:
        """Answer a request that came at a time, or return what will; raises KeysAwaitedError."""

    def refuse(self, error: KeysAwaitedError, client: ClientConnection, request: HttpRequest) -> None:
        """Answer with an error."""


class KeyWaits:
    """The requests of one port that wait."""

    def __init__(self, steps: Handling) -> None:
        self._steps = steps
        self._waiting: dict[int, AwaitingKeys] = {}
        """Their identities, in the order in which they came."""

    @property
    def full(self) -> bool:
        """True if no other request may wait."""
        return len(self._waiting) >= MOST_WAITING

    def add(
        self, client: ClientConnection, request: HttpRequest, arrived: float, error: KeysAwaitedError
    ) -> "AwaitingKeys":
        """Return what waits for the answer to a request."""
        waits = AwaitingKeys(self._steps, client, request, arrived, error, on_end=self._remove)
        self._waiting[id(waits)] = waits
        return waits

    def look(self) -> None:
        """Try all of them again: keys were read, or could not be."""
        for waits in list(self._waiting.values()):
            waits.look()

    def _remove(self, waits: "AwaitingKeys") -> None:
        self._waiting.pop(id(waits), None)


class AwaitingKeys:
    """A request that waits, and what answers it then."""

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
        """Go on if the sender can be told, or go on waiting."""
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
        """Stop: the client is gone."""
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
