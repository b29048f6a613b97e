"""Where running sessions are: the revision they began with and the slot that served them last. Pure, bounded."""

from collections import OrderedDict
from dataclasses import dataclass

LIMIT = 100_000
"""Sessions remembered, about 300 bytes each. One that is forgotten is placed by its hash, as a new one is."""

QUIET_SECONDS = 1800.0
"""A session that was silent for this long has ended: engines have evicted its cache by then."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a session was served last."""

    fingerprint: str
    slot: int
    seen: float


class Sessions:
    """The record, least recently used first."""

    def __init__(self, limit: int = LIMIT, quiet: float = QUIET_SECONDS) -> None:
        self._limit = limit
        self._quiet = quiet
        self._seats: OrderedDict[tuple[str, int], Seat] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seats)

    def recall(self, group: str, session: int, now: float) -> Seat | None:
        """Where the session was served last; None for a new one."""
        seat = self._seats.get((group, session))
        if seat is None or now - seat.seen > self._quiet:
            return None
        return seat

    def record(self, group: str, session: int, fingerprint: str, slot: int, now: float) -> bool:
        """Note where the session is served; whether that is another place than the last time."""
        before = self.recall(group, session, now)
        self._seats[group, session] = Seat(fingerprint, slot, now)
        self._seats.move_to_end((group, session))
        if len(self._seats) > self._limit:
            self._seats.popitem(last=False)
        return before is not None and (before.fingerprint, before.slot) != (fingerprint, slot)
