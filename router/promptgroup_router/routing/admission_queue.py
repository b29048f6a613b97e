"""Queues the requests that wait in the router for room.

Sessions that have begun come before new ones: what they have computed is lost when they leave, and only finished
sessions make room. Within each class the order is first come, first served. Does no I/O and reads no clock.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

WAIT_SECONDS = 8.0
"""Seconds that a request of a running session waits before it is refused."""
NEW_SECONDS = 2.0
"""Seconds that a request of a new session waits. In an overload an early refusal does less harm."""
PASSED_OVER = 4
"""Requests without room that `admit` passes over before it gives up."""

_T = TypeVar("_T")


class AdmissionQueue(Generic[_T]):
    """The requests that wait, in the order in which they are admitted."""

    def __init__(self) -> None:
        self._queue: list[tuple[bool, float, int, _T]] = []
        self._withdrawn: set[int] = set()
        self._count = 0

    def __len__(self) -> int:
        return len(self._queue) - len(self._withdrawn)

    def __iter__(self) -> Iterator[_T]:
        return (item for _, _, ticket, item in self._queue if ticket not in self._withdrawn)

    def put(self, item: _T, now: float, *, new: bool) -> int:
        """Add a request.

        Returns:
            Its ticket, for `withdraw`.
        """
        self._count += 1
        heapq.heappush(self._queue, (new, now, self._count, item))
        return self._count

    def withdraw(self, ticket: int) -> None:
        """Remove a request whose client has left, or that was placed or refused by other means."""
        self._withdrawn.add(ticket)

    def expire(self, now: float) -> Iterator[_T]:
        """Remove and yield the requests that have waited for too long."""
        for new, since, ticket, item in list(self._queue):
            if ticket not in self._withdrawn and now - since > (NEW_SECONDS if new else WAIT_SECONDS):
                self.withdraw(ticket)
                yield item
        self._compact()

    def admit(self, fits: Callable[[_T], bool]) -> None:
        """Offer room to the requests in order.

        Args:
            fits: places a request and returns True, or returns False if no replica has room for it.
        """
        passed: list[tuple[bool, float, int, _T]] = []
        while self._queue and len(passed) < PASSED_OVER:
            entry = heapq.heappop(self._queue)
            if entry[2] in self._withdrawn:
                self._withdrawn.remove(entry[2])
            elif not fits(entry[3]):
                passed.append(entry)
        self._restore(passed)

    def _compact(self) -> None:
        if self._withdrawn:
            self._queue = [entry for entry in self._queue if entry[2] not in self._withdrawn]
            heapq.heapify(self._queue)
            self._withdrawn.clear()

    def _restore(self, entries: Iterable[tuple[bool, float, int, _T]]) -> None:
        for entry in entries:
            heapq.heappush(self._queue, entry)
