"""Where sessions are cached: the replica that served them last, and the one before. Pure, bounded."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

LIMIT = 100_000
"""Sessions remembered, about 400 bytes each. One that is forgotten is placed by its hash, as a new one is."""

QUIET_SECONDS = 1800.0
"""A session that was silent for this long has ended: engines have evicted its cache by then."""


@dataclass(slots=True)
class Placement:
    """A session's cache on a replica."""

    member: str
    """Id of the member that has it."""
    prefix: int
    """Tier-1 prefix that the session began with."""
    turn: int
    """Messages of its last request."""
    tokens: float
    """Tokens of it that are cached there."""
    written: float
    """What the replica had written in all when it was used last: tells how far eviction has come."""
    seen: float
    before: str = ""
    """Id of the member that had it before the last move; what is cached there has not gone yet."""
    before_tokens: float = 0.0
    before_written: float = 0.0


class SessionLocations:
    """The record, least recently used first."""

    def __init__(self, limit: int = LIMIT, quiet: float = QUIET_SECONDS) -> None:
        self._limit = limit
        self._quiet = quiet
        self._locations: OrderedDict[int, Placement] = OrderedDict()

    def __len__(self) -> int:
        return len(self._locations)

    def get_fresh(self, session: int, now: float) -> Placement | None:
        """Where the session was served last; None for a new one."""
        place = self._locations.get(session)
        if place is None or now - place.seen > self._quiet:
            return None
        return place

    def get_by_origin(self, session: int, origin: int, now: float) -> Placement | None:
        """Where the session was served last, be it under the key of its first turn (0: there is none)."""
        return self.get_fresh(session, now) or (self.get_fresh(origin, now) if origin else None)

    def get(self, session: int) -> Placement | None:
        """The record, however old."""
        return self._locations.get(session)

    def put(self, session: int, place: Placement) -> None:
        """The session is served there from here on."""
        known = self._locations.pop(session, None)
        if known is not None:
            if known.member != place.member:
                place.before, place.before_tokens, place.before_written = known.member, known.tokens, known.written
            else:
                place.before, place.before_tokens = known.before, known.before_tokens
                place.before_written = known.before_written
        self._locations[session] = place
        if len(self._locations) > self._limit:
            self._locations.popitem(last=False)

    def restore(self, session: int, place: Placement) -> None:
        """Take over a record of another router: older than what is known here, the newest are told first."""
        if session not in self._locations and len(self._locations) < self._limit:
            self._locations[session] = place
            self._locations.move_to_end(session, last=False)

    def newest_first(self) -> Iterator[tuple[int, Placement]]:
        """All sessions of this moment, the most recently used first; may be read slowly."""
        for session in reversed(list(self._locations)):
            place = self._locations.get(session)
            if place is not None:
                yield session, place
