"""Run refreshes concurrently with passes, and record when each prefix was last seen in cache.

The record is in memory only: if it is lost, each replica is refreshed once more.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from prometheus_client import Counter

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import rank_numbers
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.base.fair_pool import FairPool
from promptgroup_operator.engines.adapter_requests import load_for
from promptgroup_operator.engines.dialects.dialect import requested_model
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.warmth import refresh
from promptgroup_operator.warmth.ranks import refreshed
from promptgroup_operator.world.snapshot import ContainerId, Key, LastSeen, Pod, Reading, Spent
from promptgroup_operator.world.warming import Outcome, Refresh, RefreshAnswer, WarmReason

logger = logging.getLogger(__name__)

WORKERS = 8
"""Maximum number of concurrent refreshes: each takes milliseconds of a healthy engine, and delays no warm-up."""
FORGOTTEN = timedelta(minutes=10)
"""A container that was not read for so long is gone, or is treated as a new one."""

_Subject = tuple[ContainerId, Fingerprint]
"""A container and a revision, since a container may have several warm prompts."""

UNKNOWN_SPENT = Spent(0, None)
"""The tokens of a refresh that failed: it may have reached the engine or not."""


class RefreshRunner:
    """Starts refreshes, and reports each outcome that belongs in a replica's condition. Safe to use from many threads.

    Args:
        engines: clients of the engines.
        report: called with group, refresh and outcome, from a worker thread.
        spend: called with the container and the counts that a refresh added, before `runs` returns False.
        ended: a counter of refreshes by result.
        own: returns the recorded queries of the operator itself to a container.
    """

    def __init__(
        self,
        engines: GroupEngines,
        report: Callable[[Key, Refresh, Outcome], None],
        spend: Callable[[ContainerId, Spent], None],
        ended: Counter,
        own: Callable[[ContainerId], float],
    ) -> None:
        self._engines = engines
        self._report = report
        self._spend = spend
        self._ended = ended
        self._own = own
        self._pool = FairPool(WORKERS, "refresh")
        self._seen: dict[_Subject, tuple[datetime, LastSeen]] = {}
        """Container and revision → when it was last read, and when its prefix was last seen."""
        self._running: set[_Subject] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Start no more refreshes; those that run end by their own deadlines."""
        self._pool.close()

    def runs(self, container: ContainerId) -> bool:
        """Return True while a refresh runs: its part of the engine's counters is not subtracted yet."""
        with self._lock:
            return any(running == container for running, _ in self._running)

    def record(self, pod: Pod, reading: Reading, now: datetime) -> None:
        """Store a reading of a pod's engine."""
        reading, subject = self._net(pod.container_id, reading), (pod.container_id, pod.fingerprint)
        with self._lock:
            _, seen = self._seen.get(subject, (now, None))
            seen = replace(seen, last=reading) if seen is not None else refresh.first_seen(pod, reading, now)
            self._seen[subject] = now, seen

    def _net(self, container: ContainerId, reading: Reading) -> Reading:
        return replace(reading, own_queries=self._own(container))

    def last_seen(self, container: ContainerId, fingerprint: Fingerprint) -> LastSeen | None:
        """Return when a prefix was last seen in a container's cache; None if the container was never read for it."""
        with self._lock:
            return self._seen.get((container, fingerprint), (None, None))[1]

    def forget(self, now: datetime) -> None:
        """Delete the state of containers that do not exist any more."""
        with self._lock:
            self._seen = {key: item for key, item in self._seen.items() if now - item[0] <= FORGOTTEN}

    def start(self, key: Key, refreshes: Sequence[Refresh]) -> None:
        """Run the refreshes, except for containers on which one runs."""
        with self._lock:
            fresh = [item for item in refreshes if _subject(item) not in self._running]
            self._running.update(map(_subject, fresh))
        for item in fresh:
            self._pool.submit(key.namespace, partial(self._run, key, item))

    def _run(self, key: Key, due: Refresh) -> None:
        try:
            outcome = self._refresh(key, due)
            if outcome is not None:
                self._report(key, due, outcome)
        except Exception:
            logger.exception("refresh of pod %s/%s failed", key.namespace, due.pod)
        finally:
            with self._lock:
                self._running.discard(_subject(due))

    def _refresh(self, key: Key, due: Refresh) -> Outcome | None:
        spent, seen, outcome = UNKNOWN_SPENT, replace(due.last_seen, at=datetime.now(UTC)), None
        result, began = WarmReason.UNREACHABLE, time.monotonic()
        try:
            value = _refreshed(self._engines.of(key, due.container_id), due)
        except EngineError as error:
            # The pod's own probes decide if the engine is healthy; the next refresh runs when it is due.
            logger.info("pod %s was not refreshed: %s", due.pod, error)
        else:
            now = datetime.now(UTC)
            value = replace(value, reading=self._net(due.container_id, value.reading))
            spent, seen, outcome = (
                value.spent,
                refresh.seen_after(due, value, timedelta(seconds=time.monotonic() - began), now),
                refresh.judge_answer(due, value, now),
            )
            result = _result(value, outcome)
        self._ended.labels(result).inc()
        self._spend(due.container_id, spent)
        with self._lock:
            self._seen[_subject(due)] = datetime.now(UTC), seen
        return outcome


def _refreshed(engine: EngineClient, due: Refresh) -> RefreshAnswer:
    """Refresh the prefix, on each rank of the engine."""
    dialect = DIALECTS[due.engine]
    model = requested_model(dialect, due.model, due.adapter)
    load_for(due, engine)
    whole = engine.read(due.address, dialect) if due.ranks > 1 else None
    answers = [
        engine.refresh(due.address, dialect, model, due.prompt, due.needed, any_tier=due.any_tier, rank=rank)
        for rank in rank_numbers(due.ranks)
    ]
    return refreshed(whole, answers) if whole is not None else answers[0]


def _subject(due: Refresh) -> _Subject:
    return due.container_id, due.fingerprint


def _result(refresh_answer: RefreshAnswer, outcome: Outcome | None) -> WarmReason:
    """Return the result of a refresh, for the metric; also where the replica's condition stays as it is."""
    if outcome is not None:
        return outcome.reason
    return WarmReason.NOT_REPORTED if refresh_answer.cached is None else WarmReason.PROVEN
