"""Remembers which sessions moved lately: from which slot to which, for people who watch. Does no I/O, reads no clock.

Nothing here names a session. The record is bounded: of many moves at once the oldest are forgotten.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

from promptgroup_router.rings.ids import MemberId, member_parts

KEPT = 256
"""Most moves kept: more than somebody can follow between two looks."""
LATELY = 60.0
"""Seconds for which a move is told."""


class Moves:
    """The latest moves of sessions, the oldest first."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, MemberId, MemberId]] = deque(maxlen=KEPT)

    def add(self, origin: MemberId, target: MemberId, now: float) -> None:
        """Record that a session that `origin` served last is served by `target` from here on."""
        self._kept.append((now, origin, target))

    def documents(self, now: float) -> Iterator[dict[str, Any]]:
        """Yield the moves that are told, the oldest first; slots by the labels that clients see."""
        for at, origin, target in self._kept:
            if now - at <= LATELY:
                yield {
                    "from": member_parts(origin).label,
                    "to": member_parts(target).label,
                    "secondsAgo": round(now - at, 3),
                }
