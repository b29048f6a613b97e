"""A feature takes part in the response cache at these points, and its default at each of them is to do nothing."""

import asyncio

from promptgroup_router.response_cache.points import AnswerObserver, ObservedRequest
from promptgroup_router.response_cache.purge import Purge
from support.answered import Oracle, exact, keeping
from support.fakeengine import engines
from support.tables import table
from support.wire import ask, post, routing, run


class Observed(ObservedRequest):
    """Records the events of one request."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def missed(self, lookup):
        self._events.append("missed")

    def computed(self, key):
        self._events.append("cached" if key is not None else "not cached")


class Recorder(AnswerObserver):
    """Records the events of all requests."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def observe(self, route, caching, request, key_of):
        self.events.append(route.group)
        return Observed(self.events)


def test_nothing_is_done_by_default():
    observer = AnswerObserver()
    observer.keep_groups({})
    observer.purge(Purge())
    observer.tick(0.0)
    observer.tell()
    assert observer.secrets(table()) == ()
    asyncio.run(observer.stop())
    assert observer.samples() == b""


def test_an_observer_gets_each_request_and_the_end_of_its_answer_if_no_cached_one_was_served(tmp_path):
    async def inside() -> None:
        async with engines(1, Oracle()) as (engine,), routing(tmp_path, keeping(engine.address)) as router:
            recorder = router.answers.observer = Recorder()
            for fields in ((), (), ("Cache-Control: no-cache",)):
                assert (await ask(router.port, post(exact(), *fields))).status == 200
            assert recorder.events == ["chat/support", "missed", "cached", "chat/support"]

    run(inside())
