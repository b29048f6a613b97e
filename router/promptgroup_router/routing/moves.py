"""Records recent moves of sessions from one slot to another, for monitoring. Does no I/O, reads no clock.

The record does not contain the sessions' names. It is bounded: the oldest moves are dropped.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

from promptgroup_router.rings.ids import MemberId, member_parts

MOST_MOVES = 256
"""Most moves that are stored: more than a person can follow between two refreshes."""
LATELY = 60.0
"""Seconds for which a move is reported."""


class Moves:
    """The latest moves of sessions, the oldest first."""

    def __init__(self) -> None:
        self._moves: deque[tuple[float, MemberId, MemberId]] = deque(maxlen=MOST_MOVES)

    def add(self, origin: MemberId, target: MemberId, now: float) -> None:
        """Record that a session that `origin` served last is served by `target` from here on."""
        self._moves.append((now, origin, target))

    def documents(self, now: float) -> Iterator[dict[str, Any]]:
        """Yield the moves of the last `LATELY` seconds, the oldest first; slots by the labels that clients see."""
        for at, origin, target in self._moves:
            if now - at <= LATELY:
                yield {
                    "from": member_parts(origin).label,
                    "to": member_parts(target).label,
                    "secondsAgo": round(now - at, 3),
                }
