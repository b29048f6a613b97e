"""Runs touches beside the passes, and remembers when each prefix was last seen.

The memory is a process's own: losing it costs one touch of each replica.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from prometheus_client import Counter

from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines.dialect import DIALECTS
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.warmth import refresh
from promptgroup_operator.world.snapshot import Key, LastSeen, Pod, Reading, Spent
from promptgroup_operator.world.warming import Outcome, Refresh, RefreshAnswer, WarmReason

logger = logging.getLogger(__name__)

WORKERS = 4
"""Touches at a time: each takes milliseconds of an engine that is well, and they keep no warm-up waiting."""
FORGOTTEN = timedelta(minutes=10)
"""A container that was not read for so long is gone, or as good as new."""

UNTOLD = Spent(0, None)
"""What a touch spent that failed: it may have reached the engine, and it may not."""


class RefreshRunner:
    """Starts touches and reports what a replica's condition must say after one, from a worker thread.

    `spend(container, spent)` is told what they added to the engine's counters before `runs` says that they ended;
    `ended` counts them by what they found.
    """

    def __init__(
        self,
        engines: EngineClient,
        report: Callable[[Key, Refresh, Outcome], None],
        spend: Callable[[str, Spent], None],
        ended: Counter,
    ) -> None:
        self._engines = engines
        self._report = report
        self._spend = spend
        self._ended = ended
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="touch")
        self._seen: dict[str, tuple[datetime, LastSeen]] = {}
        """Container → when it was last read, and its prefix."""
        self._running: set[str] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Start no more; what runs ends by its own time limits."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def runs(self, container: str) -> bool:
        """Whether a touch is under way: the engine's counters hold a part of it that nobody has subtracted."""
        with self._lock:
            return container in self._running

    def read(self, pod: Pod, reading: Reading | None, now: datetime) -> LastSeen | None:
        """What is known of the pod's prefix, with a new reading if there is one."""
        with self._lock:
            _, seen = self._seen.get(pod.container_id, (now, None))
            if reading is not None:
                seen = replace(seen, last=reading) if seen is not None else refresh.first_seen(pod, reading, now)
                self._seen[pod.container_id] = now, seen
            return seen

    def forget(self, now: datetime) -> None:
        """Drop what is known of containers that are gone."""
        with self._lock:
            self._seen = {key: each for key, each in self._seen.items() if now - each[0] <= FORGOTTEN}

    def start(self, key: Key, touches: Sequence[Refresh]) -> None:
        """Run the touches, but those that run already."""
        with self._lock:
            fresh = [touch for touch in touches if touch.container_id not in self._running]
            self._running.update(touch.container_id for touch in fresh)
        for touch in fresh:
            self._pool.submit(self._run, key, touch)

    def _run(self, key: Key, touch: Refresh) -> None:
        try:
            outcome = self._touch(touch)
            if outcome is not None:
                self._report(key, touch, outcome)
        except Exception:
            logger.exception("touch of pod %s/%s failed", key.namespace, touch.pod)
        finally:
            with self._lock:
                self._running.discard(touch.container_id)

    def _touch(self, touch: Refresh) -> Outcome | None:
        spent, seen, outcome = UNTOLD, replace(touch.last_seen, at=datetime.now(UTC)), None
        result = WarmReason.UNREACHABLE
        try:
            found = self._engines.refresh(
                touch.address, DIALECTS[touch.engine], touch.model, touch.prompt, touch.needed
            )
        except EngineError as error:
            # whether the engine is well is for its own probes to say; it is asked again in its time
            logger.info("pod %s was not touched: %s", touch.pod, error)
        else:
            now = datetime.now(UTC)
            spent, seen, outcome = (
                found.spent,
                refresh.seen_after(touch, found, now),
                refresh.judge_answer(touch, found, now),
            )
            result = _result(found, outcome)
        self._ended.labels(result).inc()
        self._spend(touch.container_id, spent)
        with self._lock:
            self._seen[touch.container_id] = datetime.now(UTC), seen
        return outcome


def _result(found: RefreshAnswer, outcome: Outcome | None) -> WarmReason:
    """What a touch found, also where the replica's condition may stand."""
    if outcome is not None:
        return outcome.reason
    return WarmReason.NOT_REPORTED if found.cached is None else WarmReason.PROVEN
