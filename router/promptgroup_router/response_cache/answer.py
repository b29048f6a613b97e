"""A kept answer."""

from dataclasses import dataclass

from promptgroup_router.response_cache.canonical import CacheKey

MOST_BYTES = 4 * 2**20
"""Largest answer that is kept: a thousand pages of text, or 10,000 events."""
MOST_PIECES = 100_000
"""Most events of an answer that is kept."""

_OVERHEAD = 400
"""Bytes that an answer takes beside its contents, about."""
_PIECE_OVERHEAD = 48
"""Bytes that a piece takes beside its contents, about."""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """A whole answer with status 200."""

    key: CacheKey
    group: str
    """`namespace/group`."""
    revision: str
    """Short fingerprint of the revision."""
    content_type: bytes
    pieces: tuple[bytes, ...]
    """Events of a stream as the engine sent them, blank lines included; else the body, in one piece."""
    id: bytes
    """The id that the engine gave the answer; empty if it has none."""
    born: float
    """Time at which it was asked for, in seconds since the epoch."""
    lifetime: float
    """Seconds for which it is kept."""

    @property
    def size(self) -> int:
        """Bytes that the answer takes in memory, about."""
        return _OVERHEAD + sum(map(len, self.pieces)) + _PIECE_OVERHEAD * len(self.pieces)

    def age(self, now: float) -> float:
        """Return the seconds since the answer was asked for; 0 where another machine's clock is ahead.

        Args:
            now: seconds since the epoch.
        """
        return max(0.0, now - self.born)
