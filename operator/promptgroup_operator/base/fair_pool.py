"""Worker threads that namespaces share without one of them keeping the others waiting.

A namespace may hold at most half of the workers that the others leave, so one whose work hangs until its deadline takes
8 of 16, a second one 4, and so on. Five such namespaces take all of them, so there are as many workers again for
namespaces that have none: each begins one job at once, unless its last one was slow. Among those that wait, the
namespace that has the fewest is served first.
"""

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

SLOW_SECONDS = 1.0
"""A job that takes longer is slow: a page is read in some milliseconds, and so is what a pass reads."""
MOST_SLOW = 1000
"""Maximum number of slow namespaces that are recorded."""

T = TypeVar("T")
R = TypeVar("R")


def share(size: int, others: int) -> int:
    """Return how many of `size` workers one namespace may hold while the others hold so many; at least 1."""
    return max(1, (size - others + 1) // 2)


def may_begin(size: int, running: Counter[str], namespace: str) -> bool:
    """Return True if a namespace may begin another job, by the jobs that run for each namespace."""
    total, own = running.total(), running[namespace]
    return total < size and own < share(size, total - own)


def may_begin_first(size: int, running: Counter[str], namespace: str, slow: Container[str]) -> bool:
    """Return True if a namespace may begin its only job beyond the `size` workers that namespaces share.

    Args:
        size: those workers; there are as many again.
        running: namespace → its jobs that run.
        namespace: the one that asks.
        slow: namespaces whose last job was slow.
    """
    return running[namespace] == 0 and namespace not in slow and running.total() < 2 * size


class SlowNamespaces:
    """Namespaces whose last job was slow. Its users hold a lock."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, None] = OrderedDict()
        """The latest comes last."""

    def __contains__(self, namespace: object) -> bool:
        return namespace in self._names

    def judge(self, namespace: str, seconds: float) -> None:
        """Remember whether a namespace's job was slow."""
        self._names.pop(namespace, None)
        if seconds > SLOW_SECONDS:
            self._names[namespace] = None
            if len(self._names) > MOST_SLOW:
                self._names.popitem(last=False)


class FairPool:
    """A pool of `size` threads. Safe to use from many threads.

    Args:
        size: number of threads; as many again for namespaces that have none.
        name: prefix of their names.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._pool = ThreadPoolExecutor(2 * size, thread_name_prefix=name)
        self._slow = SlowNamespaces()
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()
        self._running: Counter[str] = Counter()
        self._closed = False

    def close(self) -> None:
        """Begin no more jobs; those that run end by their own deadlines."""
        with self._lock:
            self._closed = True
            for jobs in self._waiting.values():
                for future, _ in jobs:
                    future.cancel()
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, namespace: str, job: Callable[[], R]) -> Future[R]:
        """Run a job for a namespace when its turn comes, and return its future, which may be cancelled until then."""
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                future.cancel()
                return future
            self._waiting.setdefault(namespace, deque()).append((future, job))
            self._begin()
        return future

    def map(self, namespace: str, job: Callable[[T], R], items: Iterable[T], seconds: float) -> list[R | None]:
        """Run a job for each item and return the results in order; None for those that did not end in time.

        Args:
            namespace: whose work it is.
            job: what to do with an item; it must end by a deadline of its own.
            items: the items.
            seconds: time for all of them together.
        """
        futures = [self.submit(namespace, lambda item=item: job(item)) for item in items]  # type: ignore[misc]
        done, late = wait(futures, seconds)
        for entry in late:
            entry.cancel()
        return self._results(futures, done)

    @staticmethod
    def _results(futures: Sequence[Future[R]], done: set[Future[R]]) -> list[R | None]:
        return [future.result() if future in done and not future.cancelled() else None for future in futures]

    def _begin(self) -> None:
        """Give workers to those who wait; the lock is held."""
        while (namespace := self._next()) is not None:
            jobs = self._waiting[namespace]
            future, job = jobs.popleft()
            if not jobs:
                del self._waiting[namespace]
            else:
                self._waiting.move_to_end(namespace)
            if future.set_running_or_notify_cancel():
                self._running[namespace] += 1
                self._pool.submit(self._run, namespace, future, job)

    def _next(self) -> str | None:
        ready = [
            item
            for item in self._waiting
            if may_begin(self._size, self._running, item)
            or may_begin_first(self._size, self._running, item, self._slow)
        ]
        return min(ready, key=self._running.__getitem__, default=None) if not self._closed else None

    def _run(self, namespace: str, future: Future[R], job: Callable[[], R]) -> None:
        began = time.monotonic()
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - it is raised where the result is read
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            with self._lock:
                self._slow.judge(namespace, time.monotonic() - began)
                self._running[namespace] -= 1
                if not self._running[namespace]:
                    del self._running[namespace]
                self._begin()
