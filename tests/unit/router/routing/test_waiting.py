"""Requests that wait in the router for room on a replica: over real sockets, from arrival to answer or refusal."""

import asyncio

import pytest

from promptgroup_contract.table import Engine, Sleep
from promptgroup_router.decision.composition import features_of
from promptgroup_router.policy import working_set
from promptgroup_router.routing import admission_queue
from support.fakeengine import Call, engines, until
from support.tables import group, revision, slot, table
from support.wire import ask, chat, connected, post, routing, run

SMALL = Engine("one", kv_tokens=1000)
"""A cache that one of the sessions below fills."""
LONG = "word " * 800


class Gate:
    """An engine that answers when it is told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = 0

    async def __call__(self, call: Call) -> None:
        self.asked += 1
        await self.open.wait()
        call.answer(b'{"ok":true}')


def table_for(found):
    held = tuple(slot(index, address=each.address) for index, each in enumerate(found))
    return table(group("support", revision(slots=held, engine=SMALL)))


def body(user):
    return chat(f"{user} {LONG}")


def returning(user):
    """A later turn, of a session for which the room in the cache is kept."""
    asked = chat(f"{user} {LONG}")
    asked["messages"] += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on."}]
    return asked


def test_a_request_waits_for_room_and_goes_on_when_there_is(tmp_path, monkeypatch):
    # a session that has ended counts as live for a while: time alone makes room then
    monkeypatch.setattr(working_set, "LIVE_SECONDS", 0.01)

    async def check():
        gate = Gate()
        async with engines(1, gate) as found, routing(tmp_path, table_for(found)) as router:
            first = asyncio.ensure_future(ask(router.port, post(returning("one"))))
            await until(lambda: gate.asked == 1, "the first request to arrive")
            second = asyncio.ensure_future(ask(router.port, post(body("two"))))
            await until(lambda: len(router.state.admission_queue) == 1, "the second to wait")
            assert "waiting 1" in router.state.exposition(0.0, 0)
            gate.open.set()
            assert (await first).status == 200
            assert (await second).status == 200
            assert gate.asked == 2
            assert 'queued_total{group="chat/support"} 1' in router.state.exposition(0.0, 0)
            assert len(router.state.admission_queue) == 0

    run(check())


def test_a_request_that_waits_too_long_is_refused_and_told_to_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(admission_queue, "NEW_SECONDS", 0.05)

    async def check():
        gate = Gate()
        async with engines(1, gate) as found, routing(tmp_path, table_for(found)) as router:
            first = asyncio.ensure_future(ask(router.port, post(returning("one"))))
            await until(lambda: gate.asked == 1, "the first request to arrive")
            refused = await ask(router.port, post(body("two")))
            assert refused.status == 503
            assert refused.headers[b"retry-after"]
            assert refused.json["error"]["code"] == "overloaded"
            assert gate.asked == 1
            gate.open.set()
            assert (await first).status == 200
            assert 'requests_total{group="chat/support",code="503"} 1' in router.state.exposition(0.0, 0)

    run(check())


def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(tmp_path):
    async def check():
        gate = Gate()
        async with engines(1, gate) as found, routing(tmp_path, table_for(found)) as router:
            first = asyncio.ensure_future(ask(router.port, post(returning("one"))))
            await until(lambda: gate.asked == 1, "the first request to arrive")
            async with connected(router.port) as client:
                client.send(post(body("two")))
                await until(lambda: len(router.state.admission_queue) == 1, "the second to wait")
                client.leave()
                await until(lambda: len(router.state.admission_queue) == 0, "the second to be forgotten")
            gate.open.set()
            assert (await first).status == 200
            router.state.expire_waiting(router.core.clock() + working_set.LIVE_SECONDS + 0.1)
            assert gate.asked == 1
            assert router.state.balancer.placed.loads == {}

    run(check())


@pytest.mark.heavy
def test_a_request_past_its_deadline_is_refused_where_it_waits(tmp_path):
    async def check():
        gate = Gate()
        gate.open.set()
        async with engines(1, gate) as found, routing(tmp_path, table_for(found), request_timeout=2.0) as router:
            # its session keeps the cache; a request in flight would end by its own deadline, and make room
            assert (await ask(router.port, post(returning("one")))).status == 200
            second = await ask(router.port, post(body("two")))
            assert second.status == 503
            assert len(router.state.admission_queue) == 0
            assert gate.asked == 1

    run(check())


SLEEP = Sleep(wake_timeout=300, since="2026-11-03T11:00:00Z", start=40)


def sleeping(found=(), sleep=SLEEP):
    """A group that sleeps, or has just got replicas."""
    held = tuple(slot(index, address=each.address) for index, each in enumerate(found))
    return table(group("support", revision(slots=held), sleep=sleep), version=f"v{len(held)}")


def test_clients_of_a_sleeping_group_wait_until_it_has_a_replica(tmp_path):
    gate = Gate()
    gate.open.set()

    async def check():
        async with engines(1, gate) as found, routing(tmp_path, sleeping()) as router:
            state, asked = router.state, []
            for number in range(12):
                asked.append(asyncio.ensure_future(ask(router.port, post(chat(f"question {number}.")))))
                await until(lambda number=number: len(features_of(state).sleeping.held) == number + 1, "it to be held")
            state.install(sleeping(found, Sleep(wake_timeout=300)), "test", router.core.clock())
            assert {(await each).status for each in asked} == {200}
            assert 'wake_requests_total{group="chat/support"} 12' in state.exposition(0.0, 0)
            assert gate.asked == 12

    run(check())


def test_a_client_that_leaves_a_sleeping_group_is_let_go(tmp_path):
    async def check():
        async with routing(tmp_path, sleeping()) as router:
            async with connected(router.port) as client:
                client.writer.write(post(chat()))
                await until(lambda: len(features_of(router.state).sleeping.held) == 1, "it to be held")
            await until(lambda: len(features_of(router.state).sleeping.held) == 0, "it to be let go")

    run(check())


def test_a_client_is_told_why_its_group_cannot_start(tmp_path):
    async def check():
        async with routing(tmp_path, sleeping()) as router:
            waits = asyncio.ensure_future(ask(router.port, post(chat())))
            await until(lambda: len(features_of(router.state).sleeping.held) == 1, "it to be held")
            forbidden = Sleep(wake_timeout=300, start=40, problem="exceeded quota: gpus")
            router.state.install(sleeping(sleep=forbidden), "test", router.core.clock())
            answer = await waits
            assert (answer.status, answer.headers[b"retry-after"]) == (503, b"40")
            assert b"exceeded quota: gpus" in answer.body

    run(check())
