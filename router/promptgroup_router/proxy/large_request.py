"""A request whose body another process reads, before a relay takes over."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from promptgroup_router.apis.endpoints import Endpoint
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.logs import fault
from promptgroup_router.decision.arrival import ModelsAnswer, asks_of_digest
from promptgroup_router.http11.http1 import Headers
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ClientConnection
from promptgroup_router.proxy.relay import Relay
from promptgroup_router.routing.route import Rewrite, Route

log = logging.getLogger("promptgroup.router")

TURN_SECONDS = 30.0
"""Time to wait for the process: the bodies before this one are read first."""


class LargeBodyReader(Protocol):
    """Reads large bodies elsewhere, one after the other."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Wait until earlier bodies have been read. Within its turn, a caller is never cancelled."""

    async def read(
        self, endpoint: Endpoint, body: bytes | bytearray, declared: int, *, asks_by_header: bool = False
    ) -> ParsedRequest:
        """Return the data that routing needs from a body.

        Args:
            endpoint: the path to which it was sent.
            body: the body.
            declared: most messages that any group of the table declares.
            asks_by_header: whether its client asks, by a header, why its prompt missed the cache.

        Raises:
            ApiError: the body is refused, or it cannot be read (503).
        """

    async def decode(
        self, endpoint: Endpoint, coded: tuple[str, bytes | bytearray, int], declared: int, *, asks_by_header: bool
    ) -> tuple[ParsedRequest, int]:
        """Return the same from a compressed body, and the number of its bytes once decoded.

        Args:
            endpoint: the path to which it was sent.
            coded: its coding, the body, and the most bytes to which it may decode.
            declared: most messages that any group of the table declares.
            asks_by_header: as `read` has it.

        Raises:
            ApiError: the body is refused, or it cannot be read (503).
        """

    async def written(
        self, rewrite: Rewrite, request: ParsedRequest, body: bytes | bytearray | None
    ) -> bytes | bytearray:
        """Return the body for the engine, of the request that was read last.

        Args:
            rewrite: the changes to the body.
            request: the request, made from its digest.
            body: the body as received; None if it was compressed.

        Raises:
            ApiError: it cannot be combined with the group's prompt, or not be written (503).
        """

    async def stop(self) -> None:
        """End the process; what waits for it is refused."""


class Steps(Protocol):
    """The steps of a request's life that take no time."""

    def declared_messages(self) -> int:
        """Return the most messages that a group of the table declares."""

    def arrive(
        self, client: ClientConnection, request: HttpRequest, ask: ParsedRequest, *, size: int | None
    ) -> Route | ModelsAnswer:
        """Decide where a request may go, by the digest of its body, of `size` bytes decoded; raises ApiError."""

    def pass_cache(self, route: Route, request: HttpRequest, parsed_request: ParsedRequest) -> Headers:
        """Let a request bypass the response cache; return header fields for its answer; raises ApiError."""

    def relay(self, route: Route, client: ClientConnection, request: HttpRequest, notes: Headers) -> Relay:
        """Return what relays the request."""

    def withdraw(self, route: Route) -> None:
        """Give back what the caller of a request was charged for: no engine will see it."""

    def refuse(self, error: ApiError, client: ClientConnection, request: HttpRequest) -> None:
        """Answer with an error."""


class LargeRequest:
    """A request that is read elsewhere, then relayed."""

    def __init__(
        self,
        steps: Steps,
        reader: LargeBodyReader,
        endpoint: Endpoint,
        *,
        client: ClientConnection,
        request: HttpRequest,
        clock: Callable[[], float],
        coding: str = "",
        most: int = 0,
    ) -> None:
        """Begin to read.

        Args:
            steps: the later steps.
            reader: the process that parses.
            endpoint: the path that the request was sent to.
            client: the connection.
            request: the request.
            clock: monotonic seconds.
            coding: of the body; empty for none.
            most: most bytes that it may decode to.
        """
        self._coding = coding
        self._most = most
        self._steps = steps
        self._reader = reader
        self._endpoint = endpoint
        self._client = client
        self._request = request
        self._relay: Relay | None = None
        self._notes: Headers = []
        """Further header fields for the answer."""
        self._over = False
        """True once the client has disconnected or has an answer: running work is finished, and its result dropped."""
        self._waits = True
        """True until the bodies before this one are read."""
        self._paused = False
        self._came = clock()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._done)

    def client_left(self) -> None:
        """Stop: the client has disconnected."""
        self._end()
        if self._relay is not None:
            self._relay.client_left()

    def pause(self) -> None:
        """Stop writing until `resume`."""
        self._paused = True
        if self._relay is not None:
            self._relay.pause()

    def resume(self) -> None:
        """Write again."""
        self._paused = False
        if self._relay is not None:
            self._relay.resume()

    def tick(self, now: float) -> None:
        """Enforce deadlines."""
        if self._relay is not None:
            self._relay.tick(now)
        elif now >= self._came + TURN_SECONDS and not self._over:
            message = f"large bodies are read one after the other, and {TURN_SECONDS:g} s have passed: retry later"
            self._refuse(ApiError(503, message, code="overloaded"))

    async def _run(self) -> None:
        try:
            route = await self._read()
        except ApiError as error:
            if not self._over:
                self._refuse(error)
            return
        if route is None:
            return
        self._relay = relay = self._steps.relay(route, self._client, self._request, self._notes)
        relay.silent_since(self._came)
        if self._paused:
            relay.pause()
        relay.begin()

    async def _read(self) -> Route | None:
        """Return the route, with the body for the engine; None if the client left meanwhile."""
        reader, body = self._reader, self._request.body
        async with reader.turn():
            self._waits = False
            asks = asks_of_digest(self._request.head.fields)
            declared = self._steps.declared_messages()
            size: int | None = None
            if self._coding:
                coded = (self._coding, body, self._most)
                request, size = await reader.decode(self._endpoint, coded, declared, asks_by_header=asks)
            else:
                request = await reader.read(self._endpoint, body, declared, asks_by_header=asks)
            if self._over:
                return None
            if size is not None:
                self._client.intake.hold_decoded(size)
            arrive = self._steps.arrive(self._client, self._request, request, size=size)
            if isinstance(arrive, ModelsAnswer):
                raise TypeError("a list of models is asked for without a body")
            self._notes = self._steps.pass_cache(arrive, self._request, request)
            goes = False
            try:
                arrive.rewrite.body = await reader.written(arrive.rewrite, request, body if size is None else None)
                goes = not self._over
            finally:
                if not goes:
                    self._steps.withdraw(arrive)
            return arrive if goes else None

    def _end(self) -> None:
        """Stop; a body that still waits in the queue is dropped, since no budget accounts for it any more."""
        self._over = True
        if self._waits:
            self._task.cancel()

    def _refuse(self, error: ApiError) -> None:
        self._end()
        self._steps.refuse(error, self._client, self._request)

    def _done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a large request failed", extra=fault(error))
            if not self._over:
                self._client.abort()
