"""Formats the date for HTTP (RFC 9110 section 5.6.7), once a second."""

from collections.abc import Callable
from email.utils import formatdate


class HttpDate:
    """The date of answers that the router itself writes; engines date their own."""

    __slots__ = ("_at", "_text", "_wall")

    def __init__(self, wall: Callable[[], float]) -> None:
        """Start with nothing written.

        Args:
            wall: seconds since 1970.
        """
        self._wall = wall
        self._at = -1
        self._text = b""

    def __call__(self) -> bytes:
        """Return the date."""
        now = int(self._wall())
        if now != self._at:
            self._at, self._text = now, formatdate(now, usegmt=True).encode()
        return self._text
