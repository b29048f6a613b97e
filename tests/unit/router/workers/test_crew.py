import asyncio

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.workers import crew as crew_module
from promptgroup_router.workers import pages
from promptgroup_router.workers.crew import Crew
from promptgroup_router.workers.process import NoAnswerError
from support.wire import run


class FakeWorker:
    """A worker that answers at once."""

    def __init__(self, place: int, *, requests: int = 0, answers: bool = True) -> None:
        self.place = place
        self.ready = self.answers = answers
        self.retiring = False
        self.told = None
        self.end = asyncio.Event()
        self.metrics = Metrics()
        self.metrics.requests.add("chat/support", "200", amount=requests)
        self.page = ""

    def accept_on(self, sockets):
        self.told = list(sockets)

    async def read_page(self):
        if not self.answers:
            raise NoAnswerError
        self.page = self.metrics.text()

    async def ask(self, request):
        if not self.answers:
            raise NoAnswerError
        return 200, str(self.place).encode()

    def counted(self):
        return pages.parse(self.page)


def crew_of(*workers: FakeWorker) -> Crew:
    crew = Crew(len(workers), len(workers))
    for worker in workers:
        crew.running.append(worker)
        crew.install(worker)
    return crew


def shown(page: str, series: str) -> float:
    return next(
        float(line.split()[-1]) for line in page.splitlines() if line.startswith(f"promptgroup_router_{series}")
    )


def test_each_accepts_on_its_own_until_one_ends():
    async def check():
        first, second, third = (FakeWorker(place) for place in range(3))
        crew = crew_of(first, second, third)
        assert [each.told for each in (first, second, third)] == [[0], [1], [2]]
        crew.lose(second, unasked=True)
        assert sorted(first.told + third.told) == [0, 1, 2]
        assert second.end.is_set()
        new = FakeWorker(1)
        crew.running.append(new)
        assert crew.install(new) is None
        assert [each.told for each in (first, new, third)] == [[0], [1], [2]]

    run(check())


def test_one_that_is_replaced_accepts_nothing_and_still_counts():
    async def check():
        old, new = FakeWorker(0, requests=5), FakeWorker(0, requests=2)
        crew = crew_of(old)
        crew.running.append(new)
        assert crew.install(new) is old
        assert (old.told, old.retiring, new.told) == ([], True, [0])
        assert shown(await crew.page(), "requests_total") == 7
        assert shown(await crew.page(), "workers ") == 2
        crew.lose(old, unasked=False)
        page = await crew.page()
        assert (shown(page, "requests_total"), shown(page, "workers "), shown(page, "worker_ends_total")) == (7, 1, 0)

    run(check())


def test_one_that_hangs_counts_as_it_did_last_and_one_that_died_for_ever():
    async def check():
        first, second = FakeWorker(0, requests=5), FakeWorker(1, requests=3)
        crew = crew_of(first, second)
        assert shown(await crew.page(), "requests_total") == 8
        second.answers = False
        second.metrics.requests.add("chat/support", "200")
        assert shown(await crew.page(), "requests_total") == 8
        crew.lose(second, unasked=True)
        page = await crew.page()
        assert (shown(page, "requests_total"), shown(page, "worker_ends_total")) == (8, 1)

    run(check())


def test_a_page_does_not_wait_for_one_that_hangs(monkeypatch):
    async def check():
        first, second = FakeWorker(0, requests=5), FakeWorker(1, requests=3)
        crew = crew_of(first, second)
        assert shown(await crew.page(), "requests_total") == 8
        first.metrics.requests.add("chat/support", "200")
        stopped = asyncio.Event()
        monkeypatch.setattr(second, "read_page", stopped.wait)
        monkeypatch.setattr(crew_module, "PAGE_SECONDS", 0.05)
        assert shown(await crew.page(), "requests_total") == 9

    run(check())


def test_questions_go_to_all_or_to_the_first_that_answers():
    async def check():
        crew = crew_of(FakeWorker(0, answers=False), FakeWorker(1), FakeWorker(2))
        assert await crew.ask_all(b"") == [b"1", b"2"]
        assert await crew.ask_one(b"") == (200, b"1")
        assert [worker.place for worker in crew.ready] == [1, 2]
        assert await crew_of(FakeWorker(0, answers=False)).ask_one(b"") is None

    run(check())


def test_nobody_is_told_anything_while_all_leave():
    async def check():
        first, second = FakeWorker(0), FakeWorker(1)
        crew = crew_of(first, second)
        crew.draining = True
        crew.lose(second, unasked=False)
        assert first.told == [0]

    run(check())
