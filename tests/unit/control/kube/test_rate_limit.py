import asyncio
from types import SimpleNamespace

from yarl import URL

from promptgroup_operator.kube.rate_limit import PacedWatches, RateLimit


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_first_does_not_wait_and_the_next_waits_for_its_turn():
    clock = Clock()
    pace = RateLimit(2.0, clock)
    assert [pace.reserve("a"), pace.reserve("a"), pace.reserve("a")] == [0.0, 2.0, 4.0]


def test_one_that_comes_late_does_not_wait():
    clock = Clock()
    pace = RateLimit(2.0, clock)
    pace.reserve("a")
    clock.now += 300
    assert pace.reserve("a") == 0.0


def test_names_do_not_wait_for_each_other():
    pace = RateLimit(2.0, Clock())
    assert [pace.reserve("a"), pace.reserve("b")] == [0.0, 0.0]


def test_watches_wait_and_other_requests_pass():
    clock, asked = Clock(), []
    pace = RateLimit(0.02, clock)

    async def handler(request):
        asked.append(request.url.path_qs)
        return request.url.path

    async def ask():
        paced = PacedWatches(pace)
        for url in ("/pods?watch=true", "/pods", "/groups?watch=true", "/pods"):
            await paced(SimpleNamespace(url=URL(f"https://server{url}")), handler)

    asyncio.run(ask())
    assert asked == ["/pods?watch=true", "/pods", "/groups?watch=true", "/pods"]
    assert [pace.reserve("/pods"), pace.reserve("/groups")] == [0.02, 0.02]
