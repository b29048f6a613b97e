"""The order of warm-ups. Does no I/O and reads no clock: the time is an argument, the work is done elsewhere.

Namespaces share the workers according to `base.fair_pool`: one whose engines hang leaves some. Within that,
the group with the fewest running warm-ups is next, of guests with as many the one with the most traffic, and others
take turns, so a large group keeps no other waiting. Replicas that share prompt and pod template (a cohort) warm in
waves: as many at a time as are proven warm, and one more. So 1 is followed by 2, 4, 8 and so on, and a prompt or an
engine that is broken costs one replica's work at a time. A replica whose warm-up failed waits before its next attempt.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from promptgroup_operator.base.fair_pool import may_begin
from promptgroup_operator.world.snapshot import ContainerId, Key
from promptgroup_operator.world.warming import Warmup

FIRST_RETRY = timedelta(seconds=1)
LAST_RETRY = timedelta(seconds=30)
"""Back-off between attempts on one container: short for an engine that starts late, long for one that refuses."""

REMEMBERED = timedelta(minutes=5)
"""Time for which the end of a warm-up is recorded: longer than any pass runs."""


Subject = tuple[ContainerId, str]
"""A container, and the cohort, which identifies the prompt."""


@dataclass(frozen=True, slots=True)
class _Failed:
    tries: int
    not_before: datetime


@dataclass(slots=True)
class _Group:
    wanted: dict[Subject, Warmup] = field(default_factory=dict)
    """Warm-ups as the latest pass wants them."""
    running: dict[Subject, Warmup] = field(default_factory=dict)
    failed: dict[Subject, _Failed] = field(default_factory=dict)
    traffic: float = 0.0
    """Requests a second of a guest; of several groups with as many warm-ups running the busiest is next."""
    proven: Counter[str] = field(default_factory=Counter)
    """Cohort → replicas proven warm."""


class WarmupQueue:
    """The warm-ups that are wanted and those that run. Not thread-safe.

    Args:
        workers: most warm-ups that run at the same time.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._groups: OrderedDict[Key, _Group] = OrderedDict()
        """The group that waits longest comes first."""
        self._running: Counter[str] = Counter()
        """Namespace → its warm-ups that run."""
        self._ended: OrderedDict[Subject, datetime] = OrderedDict()
        """Container and cohort → when the warm-up ended that left it warm; the latest last."""

    def want(self, key: Key, jobs: Sequence[Warmup], seen: datetime) -> None:
        """Replace the warm-ups that a group wants; earlier ones that have not begun are dropped.

        Args:
            key: the group.
            jobs: all warm-ups that it needs. One that ended after `seen` is not begun again: the pass could not know.
            seen: when the pass began.
        """
        while self._ended and seen - next(iter(self._ended.values())) >= REMEMBERED:
            self._ended.popitem(last=False)
        jobs = [job for job in jobs if job.subject not in self._ended or self._ended[job.subject] < seen]
        group = self._groups.setdefault(key, _Group())
        group.wanted = {job.subject: job for job in jobs}
        group.traffic = max((job.traffic for job in jobs), default=0.0)
        group.failed = {item: failed for item, failed in group.failed.items() if item in group.wanted}
        group.proven = Counter({job.cohort: job.proven for job in jobs})
        self._forget(key)

    def take(self, now: datetime) -> tuple[Key, Warmup] | None:
        """Begin the next warm-up and return it; None if none may begin. `finished` must be called when it ends."""
        running = self._running
        if running.total() >= self._workers:
            return None

        def turn(item: tuple[Key, _Group]) -> tuple[int, int, float]:
            key, group = item
            return running[key.namespace], len(group.running), -group.traffic

        for key, group in sorted(self._groups.items(), key=turn):
            if not may_begin(self._workers, running, key.namespace):
                continue
            job = next((job for job in group.wanted.values() if _is_due(group, job, now)), None)
            if job is not None:
                group.running[job.subject] = job
                running[key.namespace] += 1
                self._groups.move_to_end(key)
                return key, job
        return None

    def finished(self, key: Key, job: Warmup, now: datetime, *, warm: bool) -> None:
        """Note that a warm-up ended; `warm` is True if it left the replica warm."""
        group, subject = self._groups[key], job.subject
        del group.running[subject]
        self._running -= Counter({key.namespace: 1})
        if warm:
            self._ended[subject] = now
            self._ended.move_to_end(subject)
            group.wanted.pop(subject, None)
            group.failed.pop(subject, None)
            group.proven[job.cohort] += 1
        elif subject in group.wanted:
            tries = group.failed[subject].tries if subject in group.failed else 0
            group.failed[subject] = _Failed(min(tries + 1, 8), now + min(LAST_RETRY, FIRST_RETRY * 2**tries))
        self._forget(key)

    def _forget(self, key: Key) -> None:
        if not self._groups[key].wanted and not self._groups[key].running:
            del self._groups[key]


def _is_due(group: _Group, job: Warmup, now: datetime) -> bool:
    failed = group.failed.get(job.subject)
    if job.subject in group.running or (failed is not None and now < failed.not_before):
        return False
    return sum(warmup.cohort == job.cohort for warmup in group.running.values()) <= group.proven[job.cohort]
