"""Recomputes answers that were served stale (RFC 5861), for the next client that requests them."""

from promptgroup_router.flights.flight import Flight
from promptgroup_router.http11.http1 import Headers
from promptgroup_router.response_cache.canonical import CacheKey

MOST_AT_ONCE = 64
"""Most answers that are recomputed at a time. Beyond these, a stale answer is served and not yet recomputed."""


class Revalidations:
    """The flights for which no client waits."""

    def __init__(self) -> None:
        self._flights: dict[CacheKey, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def full(self) -> bool:
        """True if no further revalidation may begin."""
        return len(self._flights) >= MOST_AT_ONCE

    def add(self, key: CacheKey, flight: Flight) -> None:
        """Follow a flight to its end."""
        self._flights[key] = flight
        flight.follow(_NoListener(flight))

    def tick(self, now: float) -> None:
        """Enforce deadlines, which a client's connection does for other flights; called every second."""
        for flight in list(self._flights.values()):
            flight.tick(now)
        self._flights = {key: flight for key, flight in self._flights.items() if not flight.source.ends}


class _NoListener:
    """A follower without a client, so that a flight continues although no client waits for it."""

    paused = False

    def __init__(self, flight: Flight) -> None:
        self.fields: Headers = []
        self._source = flight.source

    @property
    def at(self) -> int:
        """Number after the last piece, so that no piece is held for this follower."""
        return self._source.dropped + len(self._source.pieces)

    def advance(self) -> bool:
        """Return True once the answer has ended."""
        return self._source.ends
