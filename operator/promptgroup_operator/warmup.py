"""Runs warm-ups beside the passes: bounded in parallel, one at a time for a container, retried with back-off.

What a warm-up found is written on the pod, so nothing here matters after a restart.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from promptgroup_operator import warmth
from promptgroup_operator.dialect import Dialect
from promptgroup_operator.engine import Engines
from promptgroup_operator.errors import EngineError
from promptgroup_operator.observed import Key

logger = logging.getLogger(__name__)

FIRST_RETRY = timedelta(seconds=1)
LAST_RETRY = timedelta(seconds=30)
"""Back-off between attempts on one container: an engine that refuses is asked seldom, one that lags soon again."""


@dataclass(slots=True)
class _Attempt:
    running: bool
    tries: int
    not_before: datetime


class Warmups:
    """Starts warm-ups and reports each outcome to `report(key, job, outcome)`, from a worker thread."""

    def __init__(
        self, engines: Engines, workers: int, report: Callable[[Key, warmth.Job, warmth.Outcome], None]
    ) -> None:
        self._engines = engines
        self._report = report
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="warmup")
        self._attempts: dict[str, _Attempt] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Start no more; what runs ends by its own time limits."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def start(self, key: Key, job: warmth.Job, dialect: Dialect, now: datetime) -> None:
        """Run the job, unless it runs already or its next attempt is not yet due."""
        with self._lock:
            attempt = self._attempts.setdefault(job.container_id, _Attempt(running=False, tries=0, not_before=now))
            if attempt.running or now < attempt.not_before:
                return
            attempt.running = True
        self._pool.submit(self._run, key, job, dialect)

    def _run(self, key: Key, job: warmth.Job, dialect: Dialect) -> None:
        outcome = warmth.Outcome(warmth.WarmReason.UNREACHABLE, "the warm-up did not finish")
        try:
            outcome = self._prove(job, dialect)
            self._report(key, job, warmth.settle(outcome, job, datetime.now(UTC)))
        except Exception:
            logger.exception("warm-up of pod %s/%s failed", key.namespace, job.pod)
        finally:
            self._finish(job, outcome)

    def _prove(self, job: warmth.Job, dialect: Dialect) -> warmth.Outcome:
        try:
            return warmth.judge(self._engines.prove(job.address, dialect, job.model, job.prompt))
        except EngineError as error:
            refused = error.status is not None and 400 <= error.status < 500 and error.status not in (408, 429)
            reason = warmth.WarmReason.REFUSED if refused else warmth.WarmReason.UNREACHABLE
            return warmth.Outcome(reason, f"the warm-up request failed: {error}")

    def _finish(self, job: warmth.Job, outcome: warmth.Outcome) -> None:
        with self._lock:
            attempt = self._attempts[job.container_id]
            if outcome.warm:
                del self._attempts[job.container_id]
                return
            attempt.running = False
            attempt.not_before = datetime.now(UTC) + min(LAST_RETRY, FIRST_RETRY * 2**attempt.tries)
            attempt.tries = min(attempt.tries + 1, 8)
