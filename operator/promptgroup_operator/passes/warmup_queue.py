"""Whose warm-up is next. Pure: the clock is an argument, the work is done elsewhere.

The group with the fewest that run is next, and those with as many take turns: a large one keeps no other waiting.
Replicas that share prompt and pod template (a cohort) warm in waves: as many at a time as were proven warm, and one
more. So 1 is followed by 2, 4, 8 and so on, and a prompt or an engine that is broken costs one replica's work at a
time. One that failed waits before its next attempt.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from promptgroup_operator.world.snapshot import Key
from promptgroup_operator.world.warming import Warmup

FIRST_RETRY = timedelta(seconds=1)
LAST_RETRY = timedelta(seconds=30)
"""Back-off between attempts on one container: an engine that refuses is asked seldom, one that lags soon again."""


REMEMBERED = timedelta(minutes=5)
"""How long the end of a warm-up is kept in mind: longer than any pass runs."""


@dataclass(frozen=True, slots=True)
class _Failed:
    tries: int
    not_before: datetime


@dataclass(slots=True)
class _Group:
    wanted: dict[str, Warmup] = field(default_factory=dict)
    """Container → job, as the latest pass wants them."""
    running: dict[str, Warmup] = field(default_factory=dict)
    failed: dict[str, _Failed] = field(default_factory=dict)
    proven: Counter[str] = field(default_factory=Counter)
    """Kin → replicas proven warm."""


class WarmupQueue:
    """Warm-ups that are wanted and that run. Not thread-safe."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._groups: OrderedDict[Key, _Group] = OrderedDict()
        """The one that waits longest first."""
        self._ended: dict[str, datetime] = {}
        """Container → when its warm-up ended that left it warm."""

    def want(self, key: Key, jobs: Sequence[Warmup], seen: datetime) -> None:
        """These are all the warm-ups that the group needs; what was wanted before and is not begun is forgotten.

        Args:
            key: the group.
            jobs: its warm-ups. One that ended since `seen` is not begun again: who wants it could not know.
            seen: when the group was looked at.
        """
        self._ended = {each: ended for each, ended in self._ended.items() if seen - ended < REMEMBERED}
        jobs = [job for job in jobs if job.container_id not in self._ended or self._ended[job.container_id] < seen]
        group = self._groups.setdefault(key, _Group())
        group.wanted = {job.container_id: job for job in jobs}
        group.failed = {each: failed for each, failed in group.failed.items() if each in group.wanted}
        group.proven = Counter({job.cohort: job.proven for job in jobs})
        self._forget(key)

    def take(self, now: datetime) -> tuple[Key, Warmup] | None:
        """Begin the next warm-up; None when none is due or enough run. `finished` must follow."""
        if sum(len(group.running) for group in self._groups.values()) >= self._at_once:
            return None
        fewest_first = sorted(self._groups.items(), key=lambda item: len(item[1].running))
        for key, group in fewest_first:
            job = next((job for job in group.wanted.values() if _is_due(group, job, now)), None)
            if job is not None:
                group.running[job.container_id] = job
                self._groups.move_to_end(key)
                return key, job
        return None

    def finished(self, key: Key, job: Warmup, now: datetime, *, warm: bool) -> None:
        """The warm-up ended."""
        group, container = self._groups[key], job.container_id
        del group.running[container]
        if warm:
            self._ended[container] = now
            group.wanted.pop(container, None)
            group.failed.pop(container, None)
            group.proven[job.cohort] += 1
        elif container in group.wanted:
            tries = group.failed[container].tries if container in group.failed else 0
            group.failed[container] = _Failed(min(tries + 1, 8), now + min(LAST_RETRY, FIRST_RETRY * 2**tries))
        self._forget(key)

    def _forget(self, key: Key) -> None:
        if not self._groups[key].wanted and not self._groups[key].running:
            del self._groups[key]


def _is_due(group: _Group, job: Warmup, now: datetime) -> bool:
    failed = group.failed.get(job.container_id)
    if job.container_id in group.running or (failed is not None and now < failed.not_before):
        return False
    return sum(each.cohort == job.cohort for each in group.running.values()) <= group.proven[job.cohort]
