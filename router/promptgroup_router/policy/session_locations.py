"""Stores where sessions are cached: the replica that served each session last, and the one before.

The number of stored sessions is bounded.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.policy.gossip import LAST_TURN
from promptgroup_router.rings.ids import NO_MEMBER, MemberId, PrefixKey

LIMIT = 100_000
"""Most sessions stored, about 400 bytes each. A session that was dropped is placed by its hash, like a new one."""

QUIET_SECONDS = 1800.0
"""Seconds of silence after which a session counts as ended: engines have evicted its cache by then."""


@dataclass(slots=True)
class Placement:
    """The cached state of a session on a replica."""

    member: MemberId
    """The member that served the session last."""
    prefix: PrefixKey
    """Tier-1 prefix that the session began with."""
    turn: int
    """Number of the last turn: see `PlacementReport`."""
    tokens: float
    """Tokens of the session that are cached there."""
    written: float
    """Total tokens that the replica had written when it served the session last, from which eviction is estimated."""
    seen: float
    before: MemberId = NO_MEMBER
    """The member that served the session before its last move; its cache may still hold the session."""
    before_tokens: float = 0.0
    before_written: float = 0.0


class SessionLocations:
    """The placements, the least recently used first."""

    def __init__(self, limit: int = LIMIT, quiet: float = QUIET_SECONDS) -> None:
        self._limit = limit
        self._quiet = quiet
        self._locations: OrderedDict[SessionKey, Placement] = OrderedDict()

    def __len__(self) -> int:
        return len(self._locations)

    def get_fresh(self, session: SessionKey, now: float) -> Placement | None:
        """Return the placement of a session, or None if it is new or has been silent for too long."""
        place = self._locations.get(session)
        if place is None or now - place.seen > self._quiet:
            return None
        return place

    def get_by_origin(self, session: SessionKey, origin: SessionKey, now: float) -> Placement | None:
        """Return the fresh placement of a session by its key, or by the key of its first turn (NO_SESSION for none)."""
        place = self._locations.get(session)
        if place is not None and now - place.seen <= self._quiet:
            return place
        return self.get_fresh(origin, now) if origin else None

    def get(self, session: SessionKey) -> Placement | None:
        """Return the placement of a session, whatever its age."""
        return self._locations.get(session)

    def put_next(self, session: SessionKey, place: Placement) -> None:
        """Record the next turn of a session, and raise its number if it does not exceed that of the previous turn."""
        location = self._locations.get(session)
        if location is not None and location.turn >= place.turn:
            place.turn = min(location.turn + 1, LAST_TURN)
        self.put(session, place)

    def put(self, session: SessionKey, place: Placement) -> None:
        """Replace the placement of a session by `place`; the previous member is stored as `before`."""
        location = self._locations.pop(session, None)
        if location is not None:
            if location.member != place.member:
                place.before, place.before_tokens, place.before_written = (
                    location.member,
                    location.tokens,
                    location.written,
                )
            else:
                place.before, place.before_tokens = location.before, location.before_tokens
                place.before_written = location.before_written
        self._locations[session] = place
        if len(self._locations) > self._limit:
            self._locations.popitem(last=False)

    def restore(self, session: SessionKey, place: Placement) -> None:
        """Add a placement that another router has stored, as older than all that are stored here.

        The newest placements must be added first.
        """
        if session not in self._locations and len(self._locations) < self._limit:
            self._locations[session] = place
            self._locations.move_to_end(session, last=False)

    def newest_first(self) -> Iterator[tuple[SessionKey, Placement]]:
        """Yield all sessions stored at the time of the call, the most recently used first.

        The iterator may be consumed over several calls: sessions that are dropped meanwhile are skipped.
        """
        for session in reversed(list(self._locations)):
            place = self._locations.get(session)
            if place is not None:
                yield session, place
