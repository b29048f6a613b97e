"""A queue of groups to reconcile: every group is in it at most once, and has at most one pass at a time.

It behaves like client-go's rate-limited workqueue: a key that is added while its pass runs is run again when the pass
ends; a key whose pass failed is run again after a back-off, or at once when it is added after the failure, since the
change, for example of the spec, may fix the problem. It differs in two points, so that a failing key does not spin:

    added during a pass that failed         waits for the back-off: most likely it is the event of the pass's own write
    added before `Retry-After` has passed   waits for it: the server requested the delay, whatever has changed

Adding never blocks. Namespaces share the workers according to `base.fair_pool`, so that slow passes of some do not
delay others. Keys that are not due yet are in a heap, and one thread wakes for the next of them: the cost of a pass is
that of the heap, independent of the number of groups.
"""

import heapq
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from promptgroup_operator.base.backoff import backoff
from promptgroup_operator.base.fair_pool import SlowNamespaces, may_begin, may_begin_first
from promptgroup_operator.world.snapshot import Key

AHEAD = 1e6
"""Seconds by which a key with priority counts as due earlier: more than any key waits."""


class WorkQueue:
    """A queue of keys with times. Safe to use from many threads.

    Args:
        clock: monotonic time in seconds.
        workers: threads that process keys, which the namespaces share, with as many again for namespaces that have
            none; 0 if workers are not shared.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, workers: int = 0) -> None:
        self._clock = clock
        self._workers = workers
        self._condition = threading.Condition()
        self._due: dict[Key, float] = {}
        self._not_before: dict[Key, float] = {}
        """Key whose pass was rejected with `Retry-After` → the end of that time; the keys are in `_due` as well."""
        self._later: list[tuple[float, Key]] = []
        """Heap of the future times at which keys become due, including outdated times."""
        self._ready: dict[str, list[tuple[float, Key]]] = {}
        """Namespace → heap of its keys by the time at which they became due, including outdated times."""
        self._wakes = float("inf")
        """Time at which a thread wakes by itself; the others wait until they are notified."""
        self._ahead: set[Key] = set()
        """Keys with priority once they are due."""
        self._running: dict[Key, tuple[float, bool]] = {}
        """Key whose pass runs → the time at which it began, and True if it had priority."""
        self._slow = SlowNamespaces()
        self._of_namespace: Counter[str] = Counter()
        """Namespace → number of its running passes."""
        self._failures: dict[Key, int] = {}
        self._closed = False

    def add(self, key: Key, after: timedelta = timedelta(), *, ahead: bool = False) -> None:
        """Run the key no later than `after` from now, and before all keys that are not `ahead`, until a pass succeeds.

        A key whose request was rejected with `Retry-After` waits for that time first.
        """
        now = self._clock()
        due = now + after.total_seconds()
        with self._condition:
            sooner, moves = due < self._due.get(key, float("inf")), ahead and key not in self._ahead
            if sooner:
                self._due[key] = due
            if moves:
                self._ahead.add(key)
            if sooner or moves:
                self._place(key, now)

    def is_ahead(self, key: Key) -> bool:
        """Return True if a key has priority, also if it was added with priority since its present pass began."""
        with self._condition:
            return key in self._ahead

    def take(self) -> Key | None:
        """Wait for the next key that is due and may run, and return it; None once the queue is closed."""
        with self._condition:
            while not self._closed:
                now = self._clock()
                key = self._first(now)
                if key is None:
                    self._wait(now)
                    continue
                del self._due[key]
                self._not_before.pop(key, None)
                self._running[key] = now, key in self._ahead
                self._ahead.discard(key)
                self._of_namespace[key.namespace] += 1
                self._condition.notify()  # another thread takes the next key, or waits for it
                return key
            return None

    def _wait(self, now: float) -> None:
        """Wait until notified, or for the next key that becomes due, unless another thread wakes as early."""
        while self._later and not self._holds(*self._later[0]):
            heapq.heappop(self._later)
        at = self._later[0][0] if self._later else float("inf")
        if at >= self._wakes:
            self._condition.wait(None)
            return
        self._wakes = at
        self._condition.wait(at - now)
        if self._wakes == at:
            self._wakes = float("inf")

    def _first(self, now: float) -> Key | None:
        """Take out the key that comes first of those that are due and may run; None if there is none."""
        while self._later and self._later[0][0] <= now:
            at, key = heapq.heappop(self._later)
            if self._holds(at, key):
                heapq.heappush(self._ready.setdefault(key.namespace, []), (self._rank(key), key))
        firsts = []
        for namespace, keys in list(self._ready.items()):
            while keys and not self._is_ready(*keys[0], now):
                heapq.heappop(keys)
            if not keys:
                del self._ready[namespace]
            elif self._may_begin(namespace):
                firsts.append(keys[0])
        if not firsts:
            return None
        _, key = min(firsts)
        heapq.heappop(self._ready[key.namespace])
        return key

    def _may_begin(self, namespace: str) -> bool:
        size, running = self._workers, self._of_namespace
        return not size or may_begin(size, running, namespace) or may_begin_first(size, running, namespace, self._slow)

    def _place(self, key: Key, now: float) -> None:
        """Put a key where its time belongs, and wake a thread; one that runs is placed when it ends."""
        if key in self._running:
            return
        at = self._at(key)
        if at <= now:
            heapq.heappush(self._ready.setdefault(key.namespace, []), (self._rank(key), key))
        else:
            heapq.heappush(self._later, (at, key))
        if at < self._wakes:
            self._condition.notify()

    def _at(self, key: Key) -> float:
        """Return the time at which a key may be taken."""
        return max(self._due[key], self._not_before.get(key, float("-inf")))

    def _holds(self, at: float, key: Key) -> bool:
        return key in self._due and key not in self._running and self._at(key) == at

    def _is_ready(self, rank: float, key: Key, now: float) -> bool:
        return key in self._due and key not in self._running and self._rank(key) == rank and self._at(key) <= now

    def _rank(self, key: Key) -> float:
        """Return the place of a key in the order of those that are due."""
        return self._due[key] - (AHEAD if key in self._ahead else 0.0)

    def done(self, key: Key, requeue_after: timedelta | None) -> None:
        """Note that the key's pass succeeded, and when the next one is due; None if the group is gone."""
        with self._condition:
            self._failures.pop(key, None)
            self._ended(key)
        if requeue_after is not None:
            self.add(key, requeue_after)

    def failed(self, key: Key, retry_after: timedelta = timedelta()) -> timedelta:
        """Note that the key's pass failed, and run it again after a back-off and after `Retry-After`.

        A key with priority keeps it, since a warm replica waits for the pass.

        Args:
            key: the group.
            retry_after: the `Retry-After` of the server; adding the key does not make it due earlier.

        Returns:
            Time until the next try, if nothing is added until then.
        """
        with self._condition:
            self._failures[key] = failures = self._failures.get(key, 0) + 1
            after = max(retry_after, backoff(failures))
            now = self._clock()
            self._due[key] = now + after.total_seconds()
            if self._running.get(key, (now, False))[1]:
                self._ahead.add(key)
            if retry_after > timedelta():
                self._not_before[key] = now + retry_after.total_seconds()
            self._ended(key)
        return after

    def retry_failed(self) -> None:
        """Run every key whose pass failed at once: what its back-off waits for is over. `Retry-After` still counts."""
        with self._condition:
            now = self._clock()
            for key in self._failures.keys() & self._due.keys():
                if now < self._due[key]:
                    self._due[key] = now
                    self._place(key, now)

    def _ended(self, key: Key) -> None:
        now = self._clock()
        since, _ = self._running.pop(key, (now, False))
        self._slow.judge(key.namespace, now - since)
        self._of_namespace[key.namespace] -= 1
        if self._of_namespace[key.namespace] <= 0:
            del self._of_namespace[key.namespace]
        if key in self._due:
            self._place(key, now)
        self._condition.notify()  # a key of any namespace may have waited for this

    def depth(self) -> int:
        """Return the number of keys that are due and not running."""
        now = self._clock()
        with self._condition:
            return sum(self._at(key) <= now and key not in self._running for key in self._due)

    def closed(self) -> bool:
        """Return True if the queue gives out no more keys."""
        return self._closed

    def close(self) -> None:
        """Give out no more keys, and wake every thread that waits for one."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
