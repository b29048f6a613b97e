"""How often watches and logins may begin anew. Kopf itself begins a watch that ended at once, however soon it was."""

import asyncio
from collections.abc import Callable
from time import monotonic

import aiohttp

WATCH_AGAIN = 1.0
"""Least time between two beginnings of one watch: nothing is lost meanwhile, a watch goes on from a version."""
LOGIN_AGAIN = 5.0
"""Least time between two logins, while the API server refuses a token that is not replaced."""


class RateLimit:
    """Lets something of a name begin once in so many seconds; who comes sooner waits."""

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next: dict[str, float] = {}

    def reserve(self, name: str) -> float:
        """Seconds to wait before it may begin; the turn after that is later by as much."""
        now = self._clock()
        turn = max(now, self._next.get(name, now))
        self._next[name] = turn + self._seconds
        return turn - now

    async def wait(self, name: str) -> None:
        """Wait for the name's turn."""
        await asyncio.sleep(self.reserve(name))


class PacedWatches:
    """A middleware of aiohttp's client: requests for a watch wait for their turn, all others pass."""

    def __init__(self, pace: RateLimit) -> None:
        self._pace = pace

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Perform the request, when it is its turn."""
        if request.url.query.get("watch") == "true":
            await self._pace.wait(request.url.path)
        return await handler(request)
