"""Tracks the answers in progress: which of them other requests may join, and which are outdated before they arrive.

Several answers for one key may be in progress, for example where a client accepts no cached answer. The one that was
requested last is the newest, but need not be the last to arrive.
"""

from math import inf

from promptgroup_router.flights.errand import Errand
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.purge import Purge


class UnderWay:
    """The errands of a router process: one for each answer in progress."""

    def __init__(self) -> None:
        self._errands: dict[CacheKey, dict[Errand, float]] = {}
        """Key → errands in the order in which they began → time at which the newest answer that has arrived meanwhile
        was requested, in seconds since the epoch."""

    def __len__(self) -> int:
        return len(self._errands)

    def __contains__(self, key: CacheKey) -> bool:
        return key in self._errands

    def add(self, errand: Errand) -> None:
        """Record an errand that begins."""
        self._errands.setdefault(errand.wanted.key, {})[errand] = -inf

    def to_join(self, key: CacheKey, *, from_peer: bool) -> Errand | None:
        """Return the errand whose answer a request may share; None if there is none.

        Args:
            key: of the answer.
            from_peer: whether another router sent the request to this one, as the key's home router.
        """
        for errand, newest in self._errands.get(key, {}).items():
            # routers whose tables differ may each consider the other the home router: a peer's request joins no fetch
            if errand.flight.joinable and errand.born >= newest and not (from_peer and errand.fetched):
                return errand
        return None

    def end(self, errand: Errand) -> float:
        """Remove an errand that has ended.

        Returns:
            Time at which the newest answer that has arrived meanwhile was requested, in seconds since the epoch: an
            older answer must not replace it.
        """
        key = errand.wanted.key
        errands = self._errands.get(key, {})
        newest = errands.pop(errand, -inf)
        if not errands:
            self._errands.pop(key, None)
        return newest

    def landed(self, key: CacheKey, born: float) -> None:
        """Record that an answer has arrived and is cached.

        Args:
            key: of the answer.
            born: when it was requested, in seconds since the epoch.
        """
        errands = self._errands.get(key, {})
        errands.update({errand: max(newest, born) for errand, newest in errands.items()})

    def purge(self, purge: Purge) -> None:
        """Remove errands whose answers must not be shared any more."""
        for key, errands in list(self._errands.items()):
            route = next(iter(errands)).wanted.route  # a key has one group and one revision
            if purge.covers(key, route.group, route.revision):
                del self._errands[key]
