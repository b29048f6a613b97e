"""Keys to reconcile: each once, never two passes of one key at a time, later when told so.

As client-go's workqueue: a key that is added while its pass runs is run again when it ends. Adding never waits.
"""

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from promptgroup_operator.world.snapshot import Key

FIRST_RETRY = timedelta(milliseconds=200)
LAST_RETRY = timedelta(seconds=30)
"""Back-off of a key whose pass failed: soon at first (a conflict), seldom later (a server that is down)."""
AHEAD = 1e6
"""A key that is ahead of others counts as due so many seconds ago, a longer time than any key waits."""


def backoff(failures: int, jitter: float) -> timedelta:
    """Time until the next try after so many failures in a row.

    Args:
        failures: 1 or more.
        jitter: 0 to 1; spreads the keys so that a recovering server is not hit at once.
    """
    return min(LAST_RETRY, FIRST_RETRY * float(2 ** min(failures - 1, 16))) * (0.5 + jitter / 2)


class WorkQueue:
    """A thread-safe queue of keys with times. A take scans all keys: groups are counted in hundreds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._due: dict[Key, float] = {}
        self._running: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._closed = False

    def add(self, key: Key, after: timedelta = timedelta(), *, ahead: bool = False) -> None:
        """Run the key no later than `after` from now, and before all that are not `ahead`."""
        due = self._clock() + after.total_seconds() - (AHEAD if ahead else 0.0)
        with self._condition:
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                self._condition.notify()

    def take(self) -> Key | None:
        """Wait for the next key that is due and not running; None once closed."""
        with self._condition:
            while not self._closed:
                waiting = [(due, key) for key, due in self._due.items() if key not in self._running]
                due, key = min(waiting, default=(None, None))
                wait = due - self._clock() if due is not None else None
                if key is None or wait is None or wait > 0:
                    self._condition.wait(wait)
                    continue
                del self._due[key]
                self._running.add(key)
                return key
            return None

    def done(self, key: Key, requeue_after: timedelta | None) -> None:
        """The key's pass succeeded. None: the key is gone."""
        with self._condition:
            self._running.discard(key)
            self._failures.pop(key, None)
            self._condition.notify()
        if requeue_after is not None:
            self.add(key, requeue_after)

    def failed(self, key: Key, retry_after: timedelta = timedelta()) -> timedelta:
        """The key's pass failed: run it again after a back-off, no sooner than the server asked. Returns when."""
        with self._condition:
            self._running.discard(key)
            self._failures[key] = failures = self._failures.get(key, 0) + 1
            self._condition.notify()
        after = max(retry_after, backoff(failures, random.random()))  # noqa: S311 - spreads load, guards nothing
        self.add(key, after)
        return after

    def depth(self) -> int:
        """Keys that are due and not running."""
        now = self._clock()
        with self._condition:
            return sum(due <= now and key not in self._running for key, due in self._due.items())

    def closed(self) -> bool:
        """Whether nothing is given out any more."""
        return self._closed

    def close(self) -> None:
        """Wake every waiter with None."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
