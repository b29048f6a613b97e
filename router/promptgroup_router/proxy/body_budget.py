"""Bounds the bytes that the router holds for its clients.

One budget is for all request bodies: those it reads, those that wait, those that run. Another is for what connections
buffer beside them.
"""

SMALL_SHARE = 64
"""A body of at most 1/64 of the budget is small."""
RESERVED_SHARE = 4
"""A quarter of the budget is reserved for small bodies, so that large ones cannot crowd them out."""


class BodyBudget:
    """A number of bytes that all bodies share."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def fits(self, more: int, size: int) -> bool:
        """Return True if there is memory for `more` bytes of a body that has `size` bytes with them."""
        small = size <= self.limit // SMALL_SHARE
        return self.used + more <= (self.limit if small else self.limit - self.limit // RESERVED_SHARE)

    def take(self, more: int, size: int) -> bool:
        """Take `more` bytes for a body that has `size` bytes with them. Return False if there is no memory."""
        if not self.fits(more, size):
            return False
        self.used += more
        return True

    def give_back(self, size: int) -> None:
        """Return bytes to the budget."""
        self.used -= size
