"""Knows the answers that are on their way: which of them others may join, and which are out of date before they land.

Several of one key may be on their way, as where a client wants no kept answer. The one that was asked for last is the
newest, and need not be the last to land.
"""

from math import inf

from promptgroup_router.flights.errand import Errand
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.purge import Purge


class UnderWay:
    """The errands of a router process."""

    def __init__(self) -> None:
        self._errands: dict[CacheKey, dict[Errand, float]] = {}
        """Key → errands in the order in which they began → when the newest answer that has landed meanwhile was asked
        for, in seconds since the epoch."""

    def __len__(self) -> int:
        return len(self._errands)

    def __contains__(self, key: CacheKey) -> bool:
        return key in self._errands

    def add(self, errand: Errand) -> None:
        """Note an errand that begins."""
        self._errands.setdefault(errand.wanted.key, {})[errand] = -inf

    def to_join(self, key: CacheKey, *, from_peer: bool) -> Errand | None:
        """Return the errand whose answer a request may get, too; None if there is none.

        Args:
            key: of the answer.
            from_peer: whether another router asks, as the key's home.
        """
        for errand, newest in self._errands.get(key, {}).items():
            # routers whose tables differ may each take the other for the home: who is asked as the home asks nobody
            if errand.flight.joinable and errand.born >= newest and not (from_peer and errand.fetched):
                return errand
        return None

    def end(self, errand: Errand) -> float:
        """Forget an errand that is over.

        Returns:
            When the newest answer that has landed meanwhile was asked for, in seconds since the epoch: an older answer
            must not take its place.
        """
        key = errand.wanted.key
        errands = self._errands.get(key, {})
        newest = errands.pop(errand, -inf)
        if not errands:
            self._errands.pop(key, None)
        return newest

    def landed(self, key: CacheKey, born: float) -> None:
        """Note that an answer has landed and is kept.

        Args:
            key: of the answer.
            born: when it was asked for, in seconds since the epoch.
        """
        errands = self._errands.get(key, {})
        errands.update({errand: max(newest, born) for errand, newest in errands.items()})

    def purge(self, purge: Purge) -> None:
        """Forget errands whose answers must not be joined any more."""
        for key, errands in list(self._errands.items()):
            route = next(iter(errands)).wanted.route  # a key has one group and one revision
            if purge.covers(key, route.group, route.revision):
                del self._errands[key]
