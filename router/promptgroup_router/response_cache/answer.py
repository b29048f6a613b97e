"""A cached answer."""

from dataclasses import dataclass

from promptgroup_router.response_cache.canonical import CacheKey

MOST_BYTES = 4 * 2**20
"""Largest answer that is cached: a thousand pages of text, or 10,000 events."""
MOST_PIECES = 100_000
"""Most events of an answer that is cached."""

_OVERHEAD = 400
"""Approximate bytes that an answer takes beside its contents."""
_PIECE_OVERHEAD = 48
"""Approximate bytes that a piece takes beside its contents."""


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
    """Time at which it was requested, in seconds since the epoch."""
    lifetime: float
    """Seconds for which it is cached."""

    @property
    def size(self) -> int:
        """Approximate bytes that the answer takes in memory."""
        return _OVERHEAD + sum(map(len, self.pieces)) + _PIECE_OVERHEAD * len(self.pieces)

    def age(self, now: float) -> float:
        """Return the seconds since the answer was requested; 0 where another machine's clock is ahead.

        Args:
            now: seconds since the epoch.
        """
        return max(0.0, now - self.born)
