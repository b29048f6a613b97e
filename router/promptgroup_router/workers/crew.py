"""The workers of a router: who runs, who serves each place, and what those that have ended counted."""

import asyncio
from collections.abc import Sequence

from promptgroup_router.base.exposition import PROMETHEUS, TextFormat
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.workers import pages, plan
from promptgroup_router.workers.process import NoAnswerError, WorkerProcess

PAGE_SECONDS = 2.0
"""Time for the pages of all workers. The operator waits for 3 s and Prometheus for 10 s: neither would hear of the
others while one hangs."""


class Crew:
    """The workers, as the supervisor keeps them and its admin port asks them."""

    def __init__(self, places: int, sockets: int) -> None:
        self.places = places
        self.draining = False
        self.running: list[WorkerProcess] = []
        """All that have not ended; those that were told to leave still have requests."""
        self.serving: dict[int, WorkerProcess] = {}
        """Place → its worker."""
        self._sockets = sockets
        self._ended: pages.Page = {}
        self._ends = Metrics().worker_ends

    @property
    def ready(self) -> list[WorkerProcess]:
        """Those that serve and have a table, by place."""
        return [worker for _, worker in sorted(self.serving.items()) if worker.ready]

    def install(self, worker: WorkerProcess) -> WorkerProcess | None:
        """Give a place to a worker. Return the one that had it, which is to leave."""
        before = self.serving.get(worker.place)
        self.serving[worker.place] = worker
        if before is not None:
            before.retiring = True
            before.accept_on(())
        self.assign()
        return before

    def lose(self, worker: WorkerProcess, *, unasked: bool) -> None:
        """Keep the counters of a worker that has ended, and give its sockets to others."""
        self.running.remove(worker)
        self._ended = pages.counters(pages.merge([self._ended, worker.counted()]))
        if unasked:
            self._ends.add()
        if self.serving.get(worker.place) is worker:
            del self.serving[worker.place]
        self.assign()
        worker.end.set()

    def assign(self) -> None:
        """Tell each worker on which sockets to accept."""
        if self.draining:
            return
        ready = [worker.place for worker in self.ready]
        for place, sockets in plan.sockets_of(self.places, self._sockets, list(self.serving), ready).items():
            self.serving[place].accept_on(sockets)

    async def page(self, form: TextFormat = PROMETHEUS) -> str:
        """Return one page of metrics for all workers, those that have ended included."""
        reading = [asyncio.ensure_future(worker.read_page()) for worker in self.running]
        try:
            if reading:
                await asyncio.wait(reading, timeout=PAGE_SECONDS)
        finally:
            for each in reading:
                each.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        own = pages.parse("\n".join(self._ends.lines()))
        # one that ended meanwhile is among those that have; one that did not answer counts as it did last
        still = [worker.counted() for worker in self.running]
        self._ended = pages.still_told(self._ended, still)
        return pages.text(pages.merge([*still, self._ended, own]), form)

    async def ask_all(self, request: bytes) -> Sequence[bytes]:
        """Return the answers of the workers that serve; those that do not answer are left out."""
        found = await asyncio.gather(*(worker.ask(request) for worker in self.serving.values()), return_exceptions=True)
        return [each[1] for each in found if not isinstance(each, BaseException) and each[0] == 200]

    async def ask_one(self, request: bytes) -> tuple[int, bytes] | None:
        """Return status and body of the first worker that answers; None if none does."""
        for worker in [*self.ready, *self.serving.values()]:
            try:
                return await worker.ask(request)
            except NoAnswerError:
                continue
        return None
