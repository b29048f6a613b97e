"""A queue of groups to reconcile: each is in it once, and never runs twice at the same time.

It behaves as client-go's rate-limited workqueue: a key that is added while its pass runs is run again when the pass
ends; one whose pass failed is run again after a back-off, or at once when it is added after the failure, since what
changed then, such as the spec, may be what mends it. It differs in two points, so that no key that fails spins:

    added while a pass ran that failed      waits for the back-off: most likely the pass's own first write came back
    added before `Retry-After` has passed   waits for it: the server asked for quiet, whatever has changed

Adding never waits. Namespaces share the workers as `base.fair_pool` says, so that slow passes of some keep no other
waiting.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.fair_pool import SlowNamespaces, may_begin, may_begin_first
from promptgroup_operator.world.snapshot import Key

FIRST_RETRY = timedelta(milliseconds=200)
LAST_RETRY = timedelta(seconds=30)
"""Back-off of a key whose pass failed: short at first (a conflict), long later (a server that is down)."""
AHEAD = 1e6
"""Seconds since when a key that goes ahead of the others counts as due: more than any key waits."""


def backoff(failures: int, jitter: float) -> timedelta:
    """Return the time until the next try after so many failures in a row.

    Args:
        failures: 1 or more.
        jitter: 0 to 1; it spreads the keys, so that a server that recovers is not asked for all at once.
    """
    return min(LAST_RETRY, FIRST_RETRY * float(2 ** min(failures - 1, 16))) * (0.5 + jitter / 2)


def retry_seconds(error: ClusterError, tries: int, took: float) -> float:
    """Return the seconds until an object is read or written again that could not be, so many times in a row.

    Args:
        error: the API server's answer to the last try; what it says of the time counts.
        tries: 1 or more.
        took: seconds of the last try. One that takes all of its time must not take all of the passes' time.
    """
    jitter = random.random()  # noqa: S311 - spreads load, guards nothing
    return max(error.retry_after or 0.0, backoff(tries, jitter).total_seconds(), 2 * took)


class WorkQueue:
    """A queue of keys with times. Safe to use from many threads. `take` scans all keys: groups come in hundreds.

    Args:
        clock: monotonic time in seconds.
        workers: threads that take keys, which the namespaces share, with as many again for namespaces that have none; 0
            where there is nothing to share.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, workers: int = 0) -> None:
        self._clock = clock
        self._workers = workers
        self._condition = threading.Condition()
        self._due: dict[Key, float] = {}
        self._not_before: dict[Key, float] = {}
        """Key whose pass was refused with `Retry-After` → the end of that time; each of them is due, too."""
        self._running: dict[Key, float] = {}
        """Key whose pass runs → when it was taken."""
        self._slow = SlowNamespaces()
        self._of_namespace: Counter[str] = Counter()
        """Namespace → its passes that run."""
        self._failures: dict[Key, int] = {}
        self._closed = False

    def add(self, key: Key, after: timedelta = timedelta(), *, ahead: bool = False) -> None:
        """Run the key no later than `after` from now, and before all keys that are not `ahead`.

        One that a server refused with `Retry-After` waits for that first.
        """
        due = self._clock() + after.total_seconds() - (AHEAD if ahead else 0.0)
        with self._condition:
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                self._condition.notify()

    def take(self) -> Key | None:
        """Wait for the next key that is due and may run, and return it; None once the queue is closed."""
        with self._condition:
            while not self._closed:
                now = self._clock()
                waiting = [(self._wait(key, now), due, key) for key, due in self._due.items() if self._may_run(key)]
                _, key = min(((due, key) for wait, due, key in waiting if wait <= 0), default=(None, None))
                if key is None:
                    self._condition.wait(min((wait for wait, _, _ in waiting), default=None))
                    continue
                del self._due[key]
                self._not_before.pop(key, None)
                self._running[key] = now
                self._of_namespace[key.namespace] += 1
                return key
            return None

    def _wait(self, key: Key, now: float) -> float:
        """Return the seconds until a key may be taken; 0 or less if it may be now."""
        return max(self._due[key], self._not_before.get(key, float("-inf"))) - now

    def _may_run(self, key: Key) -> bool:
        if key in self._running:
            return False
        size, running, namespace = self._workers, self._of_namespace, key.namespace
        return not size or may_begin(size, running, namespace) or may_begin_first(size, running, namespace, self._slow)

    def done(self, key: Key, requeue_after: timedelta | None) -> None:
        """Note that the key's pass succeeded, and when the next one is due; None if the group is gone."""
        with self._condition:
            self._ended(key)
            self._failures.pop(key, None)
        if requeue_after is not None:
            self.add(key, requeue_after)

    def failed(self, key: Key, retry_after: timedelta = timedelta()) -> timedelta:
        """Note that the key's pass failed, and run it again after a back-off, no sooner than the server asked.

        Args:
            key: the group.
            retry_after: time for which the server asked; nothing that is added makes the key due before.

        Returns:
            Time until the next try, if nothing is added until then.
        """
        with self._condition:
            self._failures[key] = failures = self._failures.get(key, 0) + 1
            after = max(retry_after, backoff(failures, random.random()))  # noqa: S311 - spreads load, guards nothing
            now = self._clock()
            self._due[key] = now + after.total_seconds()
            if retry_after > timedelta():
                self._not_before[key] = now + retry_after.total_seconds()
            self._ended(key)
        return after

    def retry_failed(self) -> None:
        """Run every key whose pass failed at once: what its back-off waits for is over. `Retry-After` still counts."""
        with self._condition:
            for key in self._failures.keys() & self._due.keys():
                self._due[key] = min(self._due[key], self._clock())
            self._condition.notify_all()

    def _ended(self, key: Key) -> None:
        now = self._clock()
        self._slow.judge(key.namespace, now - self._running.pop(key, now))
        self._of_namespace[key.namespace] -= 1
        if self._of_namespace[key.namespace] <= 0:
            del self._of_namespace[key.namespace]
        self._condition.notify_all()  # keys of several namespaces may have waited for this

    def depth(self) -> int:
        """Return the number of keys that are due and not running."""
        now = self._clock()
        with self._condition:
            return sum(self._wait(key, now) <= 0 and key not in self._running for key in self._due)

    def closed(self) -> bool:
        """Return True if the queue gives out no more keys."""
        return self._closed

    def close(self) -> None:
        """Give out no more keys, and wake every thread that waits for one."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
