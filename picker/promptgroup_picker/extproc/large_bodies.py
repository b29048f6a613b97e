"""Large bodies, which another process parses: the queued calls, and those whose body is being parsed."""

import asyncio
import logging
from typing import Protocol

from promptgroup_router.apis.endpoints import Endpoint
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.errors import ApiError
from promptgroup_router.proxy.large_request import LargeBodyReader
from promptgroup_router.routing.route import Route

log = logging.getLogger("promptgroup.picker")

TURN_SECONDS = 30.0
"""Time to wait for the process: the bodies before this one are read first."""


class ReadCall(Protocol):
    """A call whose body is read elsewhere."""

    def is_over(self) -> bool:
        """Return True once the gateway does not wait for the decision any more."""

    def declared_messages(self) -> int:
        """Return the most messages that a group of the table declares."""

    def asks_by_header(self) -> bool:
        """Return True if the client requests a cache diagnosis by a header."""

    def arrive(self, ask: ParsedRequest) -> Route | None:
        """Decide where the request may go, by the digest of its body; None if it was answered."""

    def begin(self, route: Route) -> None:
        """Go on with the route, which has the body for the engine."""

    def refuse_read(self, error: ApiError, route: Route | None) -> None:
        """Answer with an error; the route is None before there was one."""

    def fail(self) -> None:
        """End the call: the picker has a fault."""


class LargeBodies:
    """The process that reads large bodies, and the calls that wait for it."""

    def __init__(self, reader: LargeBodyReader) -> None:
        self._reader = reader
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, call: ReadCall, endpoint: Endpoint, body: bytes) -> None:
        """Have a body parsed, and pass the result to the call."""
        task = asyncio.get_running_loop().create_task(self._run(call, endpoint, body))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._done(done, call))

    async def _run(self, call: ReadCall, endpoint: Endpoint, body: bytes) -> None:
        route: Route | None = None
        try:
            async with self._reader.turn():
                if call.is_over():
                    return
                declared, asks = call.declared_messages(), call.asks_by_header()
                request = await self._reader.read(endpoint, body, declared, asks_by_header=asks)
                if call.is_over() or (route := call.arrive(request)) is None:
                    return
                route.rewrite.body = await self._reader.written(route.rewrite, request, body)
        except ApiError as error:
            call.refuse_read(error, route)
        else:
            call.begin(route)

    def _done(self, task: "asyncio.Task[None]", call: ReadCall) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a large request failed", exc_info=error)
            call.fail()

    async def stop(self) -> None:
        """End the process; what waits for it is refused."""
        await self._reader.stop()
