"""Runs warm-ups beside the passes, in the order that `turns` gives.

What a warm-up found is written on the pod, so nothing here matters after a restart.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines.dialect import DIALECTS
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.passes.warmup_queue import WarmupQueue
from promptgroup_operator.warmth import warmup
from promptgroup_operator.world.snapshot import Key, Spent
from promptgroup_operator.world.warming import Outcome, WarmReason, Warmup

logger = logging.getLogger(__name__)


class WarmupRunner:
    """Starts warm-ups and reports each outcome to `report(key, job, outcome)`, from a worker thread.

    `spend(container, spent)` is told what they added to the engine's counters.
    """

    def __init__(
        self,
        engines: EngineClient,
        workers: int,
        report: Callable[[Key, Warmup, Outcome], None],
        spend: Callable[[str, Spent], None],
    ) -> None:
        self._engines = engines
        self._report = report
        self._spend = spend
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="warmup")
        self._turns = WarmupQueue(workers)
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Start no more; what runs ends by its own time limits."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def want(self, key: Key, jobs: Sequence[Warmup], now: datetime) -> None:
        """These are the warm-ups that the group needed when it was looked at, `now`: begin those whose turn it is."""
        with self._lock:
            self._turns.want(key, jobs, now)
            self._begin(now)

    def _begin(self, now: datetime) -> None:
        while not self._closed and (turn := self._turns.take(now)) is not None:
            self._pool.submit(self._run, *turn)

    def _run(self, key: Key, job: Warmup) -> None:
        outcome = Outcome(WarmReason.UNREACHABLE, "the warm-up did not finish")
        try:
            outcome = self._prove(job)
            self._report(key, job, warmup.settle(outcome, job, datetime.now(UTC)))
        except Exception:
            logger.exception("warm-up of pod %s/%s failed", key.namespace, job.pod)
        finally:
            now = datetime.now(UTC)
            with self._lock:
                self._turns.finished(key, job, now, warm=outcome.warm)
                self._begin(now)

    def _prove(self, job: Warmup) -> Outcome:
        dialect = DIALECTS[job.engine]
        try:
            evidence = self._engines.prove(job.address, dialect, job.model, job.prompt)
        except EngineError as error:
            refused = error.status is not None and 400 <= error.status < 500 and error.status not in (408, 429)
            reason = WarmReason.REFUSED if refused else WarmReason.UNREACHABLE
            return Outcome(reason, f"the warm-up request failed: {error}")
        self._spend(job.container_id, evidence.spent)
        return warmup.judge_evidence(evidence, dialect.caching_off)
