"""An event loop that a test turns by hand, with a clock that it sets: nothing waits, and every run is the same."""

import asyncio
import heapq
from collections import deque


class Opening:
    """A connection that a protocol has asked for."""

    def __init__(self, loop: "StepLoop", factory, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self.protocol = factory()
        self._transport = None
        self._done = loop.create_future()

    @property
    def pending(self) -> bool:
        return not self._done.done()

    def succeed(self, transport) -> None:
        self._transport = transport
        self._done.set_result(None)
        self.protocol.connection_made(transport)

    def fail(self) -> None:
        self._done.set_exception(ConnectionRefusedError())

    async def wait(self) -> None:
        try:
            await self._done
        except asyncio.CancelledError:
            if self._transport is not None:
                self._transport.vanish()
            raise


class StepLoop(asyncio.AbstractEventLoop):
    """The part of a loop that connections, tasks and time-outs use."""

    def __init__(self) -> None:
        self.now = 0.0
        self.openings: list[Opening] = []
        self.errors: list[BaseException] = []
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[asyncio.TimerHandle] = []

    # --- For asyncio ---------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback, *args, context=None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when, callback, *args, context=None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(self, delay, callback, *args, context=None) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future:
        return asyncio.Future(loop=self)

    def create_task(self, coro, *, name=None, context=None) -> asyncio.Task:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context) -> None:
        self.errors.append(context.get("exception") or RuntimeError(context["message"]))

    def _timer_handle_cancelled(self, handle) -> None:
        pass

    async def create_connection(self, factory, host, port):
        opening = Opening(self, factory, host, port)
        self.openings.append(opening)
        await opening.wait()

    # --- For the test --------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Run what is due, once; whether anything was."""
        while self._timers and (self._timers[0].when() <= self.now or self._timers[0].cancelled()):
            timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._ready.append(timer)
        due = len(self._ready)
        for _ in range(due):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()
        if self.errors:
            raise self.errors[0]
        return due > 0
