"""Computes answers again that were given although they were too old (RFC 5861), for the next client who asks."""

from promptgroup_router.flights.flight import Flight
from promptgroup_router.http11.http1 import Headers
from promptgroup_router.response_cache.canonical import CacheKey

MOST_AT_ONCE = 64
"""Most answers that are computed again at a time. Beyond these an old answer is given, and not yet computed anew."""


class Revalidations:
    """The flights that nobody waits for."""

    def __init__(self) -> None:
        self._flights: dict[CacheKey, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def full(self) -> bool:
        """True if no other may begin."""
        return len(self._flights) >= MOST_AT_ONCE

    def add(self, key: CacheKey, flight: Flight) -> None:
        """Follow a flight to its end."""
        self._flights[key] = flight
        flight.follow(_Nobody(flight))

    def tick(self, now: float) -> None:
        """Enforce deadlines, which a client's connection does for other flights; called every second."""
        for flight in list(self._flights.values()):
            flight.tick(now)
        self._flights = {key: flight for key, flight in self._flights.items() if not flight.source.ends}


class _Nobody:
    """Stands among the followers of a flight, so that it goes on without a client."""

    paused = False

    def __init__(self, flight: Flight) -> None:
        self.fields: Headers = []
        self._source = flight.source

    @property
    def at(self) -> int:
        """Number behind the last piece: nothing is kept for nobody."""
        return self._source.dropped + len(self._source.pieces)

    def advance(self) -> bool:
        """Return True once the answer has ended."""
        return self._source.ends
