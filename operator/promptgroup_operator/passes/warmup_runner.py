"""Run warm-ups beside the passes, in the order that `warmup_queue` gives.

The outcome is written on the pod, so nothing is lost in a restart.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from promptgroup_contract.table import rank_numbers
from promptgroup_operator.base.errors import AdapterError, EngineError
from promptgroup_operator.engines.adapter_requests import load_for
from promptgroup_operator.engines.dialects.dialect import requested_model
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.passes.warmup_queue import WarmupQueue
from promptgroup_operator.warmth import warmup
from promptgroup_operator.warmth.ranks import differ, of_all_ranks
from promptgroup_operator.world.snapshot import ContainerId, Key, Spent
from promptgroup_operator.world.warming import Evidence, Outcome, WarmReason, Warmup

logger = logging.getLogger(__name__)


class WarmupRunner:
    """Starts warm-ups and reports their outcomes. Safe to use from many threads.

    Args:
        engines: clients of the engines.
        workers: most warm-ups that run at the same time.
        report: called with group, warm-up and outcome, from a worker thread.
        spend: called with the container and what a warm-up added to its counters.
    """

    def __init__(
        self,
        engines: GroupEngines,
        workers: int,
        report: Callable[[Key, Warmup, Outcome], None],
        spend: Callable[[ContainerId, Spent], None],
    ) -> None:
        self._engines = engines
        self._report = report
        self._spend = spend
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="warmup")
        self._queue = WarmupQueue(workers)
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Start no more warm-ups; those that run end by their own deadlines."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def want(self, key: Key, jobs: Sequence[Warmup], now: datetime) -> None:
        """Replace the warm-ups that a group needs according to its pass at `now`, and begin those that are next."""
        with self._lock:
            self._queue.want(key, jobs, now)
            self._begin(now)

    def _begin(self, now: datetime) -> None:
        while not self._closed and (due := self._queue.take(now)) is not None:
            self._pool.submit(self._run, *due)

    def _run(self, key: Key, job: Warmup) -> None:
        outcome = Outcome(WarmReason.UNREACHABLE, "the warm-up did not finish")
        try:
            outcome = self._prove(key, job)
            self._report(key, job, warmup.settle(outcome, job, datetime.now(UTC)))
        except Exception:
            logger.exception("warm-up of pod %s/%s failed", key.namespace, job.pod)
        finally:
            now = datetime.now(UTC)
            with self._lock:
                self._queue.finished(key, job, now, warm=outcome.warm)
                self._begin(now)

    def _prove(self, key: Key, job: Warmup) -> Outcome:
        """Prove each rank of a replica's engine, up to one that is not warm."""
        dialect, outcomes = DIALECTS[job.engine], []
        ranks = 0
        try:
            model = requested_model(dialect, job.model, job.adapter)
            engine = self._engines.of(key, job.container_id)
            load_for(job, engine)
            for rank in rank_numbers(job.ranks):
                evidence = engine.prove(job.address, dialect, model, job.prompt, rank)
                self._spend(job.container_id, evidence.spent)
                ranks = evidence.ranks  # some engines show a rank with its first request
                outcomes.append(_judge(job, evidence))
                if not outcomes[-1].warm:
                    break
        except AdapterError as error:
            return Outcome(WarmReason.NO_ADAPTER, str(error))
        except EngineError as error:
            if error.untrusted:
                return Outcome(WarmReason.UNTRUSTED, f"the engine's certificate is not trusted: {error}")
            refused = error.status is not None and 400 <= error.status < 500 and error.status not in (408, 429)
            reason = WarmReason.REFUSED if refused else WarmReason.UNREACHABLE
            return Outcome(reason, f"the warm-up request failed: {error}")
        wrong = differ(ranks, job.ranks) if ranks > job.ranks or outcomes[-1].warm else None
        return wrong or of_all_ranks(outcomes)


def _judge(job: Warmup, evidence: Evidence) -> Outcome:
    bare = job.prompt.size == 0
    off = DIALECTS[job.engine].caching_off
    return warmup.judge_evidence(evidence, off, any_tier=job.any_tier, uncached=job.uncached, bare=bare)
