"""Where sessions are cached: the replica that served them last, and the one before. Pure, bounded."""

from collections import OrderedDict
from collections.abc import Iterator

LIMIT = 100_000
"""Sessions remembered, about 400 bytes each. One that is forgotten is placed by its hash, as a new one is."""

QUIET_SECONDS = 1800.0
"""A session that was silent for this long has ended: engines have evicted its cache by then."""


class Place:
    """A session's cache on a replica."""

    __slots__ = ("before", "before_tokens", "before_written", "member", "prefix", "seen", "tokens", "turn", "written")

    def __init__(self, member: str, prefix: int, turn: int, tokens: float, written: float, seen: float) -> None:
        self.member = member
        """Id of the member that has it."""
        self.prefix = prefix
        """Tier-1 prefix that the session began with."""
        self.turn = turn
        """Messages of its last request."""
        self.tokens = tokens
        """Tokens of it that are cached there."""
        self.written = written
        """What the replica had written in all when it was used last: tells how far eviction has come."""
        self.seen = seen
        self.before = ""
        """Id of the member that had it before the last move; what is cached there has not gone yet."""
        self.before_tokens = 0.0
        self.before_written = 0.0


class Places:
    """The record, least recently used first."""

    def __init__(self, limit: int = LIMIT, quiet: float = QUIET_SECONDS) -> None:
        self._limit = limit
        self._quiet = quiet
        self._places: OrderedDict[int, Place] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def recall(self, session: int, now: float) -> Place | None:
        """Where the session was served last; None for a new one."""
        place = self._places.get(session)
        if place is None or now - place.seen > self._quiet:
            return None
        return place

    def peek(self, session: int) -> Place | None:
        """The record, however old."""
        return self._places.get(session)

    def put(
        self, session: int, member: str, prefix: int, turn: int, tokens: float, written: float, now: float
    ) -> Place:
        """The session is served there from here on."""
        place = self._places.get(session)
        if place is None:
            place = self._places[session] = Place(member, prefix, turn, tokens, written, now)
            if len(self._places) > self._limit:
                self._places.popitem(last=False)
            return place
        if place.member != member:
            place.before, place.before_tokens, place.before_written = place.member, place.tokens, place.written
            place.member = member
        place.prefix, place.turn, place.tokens, place.written, place.seen = prefix, turn, tokens, written, now
        self._places.move_to_end(session)
        return place

    def newest(self) -> Iterator[tuple[int, Place]]:
        """All sessions, the most recently used first."""
        return reversed(self._places.items())
