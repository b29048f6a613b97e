"""The memory of all bodies together: units of the budget, and a router whose budget is full."""

import asyncio

import pytest

from promptgroup_router.proxy.body_budget import RESERVED_SHARE, SMALL_SHARE, BodyBudget
from promptgroup_router.proxy.downstream import ClientListener
from promptgroup_router.proxy.request_intake import FREE_BYTES
from support.fakeengine import Call, engines, until
from support.script import FakeTransport
from support.wire import ask, chat, connected, get, post, routing, run, table_of


def test_what_is_taken_is_given_back():
    budget = BodyBudget(1000)
    assert budget.take(10, 10)
    assert budget.used == 10
    budget.give_back(10)
    assert budget.used == 0


def test_large_bodies_leave_room_for_small_ones():
    budget = BodyBudget(6400)
    large = 6400 // SMALL_SHARE + 1
    while budget.take(large, large):
        pass
    assert budget.used <= 6400 - 6400 // RESERVED_SHARE
    assert budget.take(large - 1, large - 1)
    while budget.take(1, 1):
        pass
    assert budget.used == 6400


@pytest.mark.heavy
@pytest.mark.parametrize("chunked", [False, True])
def test_beyond_the_budget_a_request_is_overloaded_until_others_end(tmp_path, chunked):
    go_on = asyncio.Event()

    async def wait(call: Call) -> None:
        await go_on.wait()
        call.answer()

    def request(words: str) -> bytes:
        sized = post(chat(words))
        if not chunked:
            return sized
        body = sized.partition(b"\r\n\r\n")[2]
        head = get("/v1/chat/completions", "Transfer-Encoding: chunked").replace(b"GET", b"POST")
        return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)

    async def check():
        found = engines(1, wait)
        async with (
            found as (engine,),
            routing(tmp_path, table_of(engine.address), body_memory_bytes=1_000_000) as router,
        ):
            budget = router._clients.budget
            async with connected(router.port) as one, connected(router.port) as two:
                one.send(request("x" * 600_000))
                await until(lambda: engine.requests, "the first request")
                refused = await two.ask(request("y" * 600_000))
                assert (refused.status, refused.json["error"]["code"]) == (503, "overloaded")
                assert refused.headers[b"retry-after"] == b"1"
                assert 600_000 < budget.used < 700_000
                go_on.set()
                # small ones always had room
                assert (await ask(router.port, request("small"))).status == 200
                assert (await one.answer()).status == 200
            assert (await ask(router.port, request("y" * 600_000))).status == 200
            await until(lambda: budget.used == 0, "the end of all")

    run(check())


def test_a_client_that_leaves_within_its_body_gives_it_back(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            async with connected(router.port) as client:
                client.send(post(chat("x" * 500_000))[:300_000])
                await until(lambda: router._clients.budget.used > 200_000, "the body")
            await until(lambda: router._clients.budget.used == 0, "its end")

    run(check())


class Idle:
    """A request that is never answered by itself."""

    def __init__(self):
        self.left = 0

    def client_left(self):
        self.left += 1

    def pause(self):
        pass

    def resume(self):
        pass

    def tick(self, now):
        pass


HALF_HEAD = b"GET / HTTP/1.1\r\nhost: r\r\nx: " + b"a" * 6000


@pytest.mark.parametrize("kind", ["half a head", "requests sent ahead", "an answer that is not read"])
def test_what_hundreds_of_connections_buffer_is_bounded(kind):
    limit = 400_000

    async def check():
        buffers, work = BodyBudget(limit), []

        def handle(client, request):
            work.append(Idle())
            return work[-1]

        clients = ClientListener(handle, lambda: 0.0, 10**6, buffers=buffers)
        opened = []
        for _ in range(500):
            connection, transport = clients.accept(), FakeTransport()
            connection.connection_made(transport)
            opened.append((connection, transport))
            match kind:
                case "half a head":
                    connection.data_received(HALF_HEAD)
                case "requests sent ahead":
                    connection.data_received(get("/") + HALF_HEAD)
                case _:
                    connection.data_received(get("/"))
                    transport.unsent = 6000
                    connection.pause_writing()
            await asyncio.sleep(0)
            if "abort" in transport.did:
                connection.connection_lost(None)
        kept = [connection for connection, transport in opened if "abort" not in transport.did]
        assert limit * 0.9 < buffers.used <= limit
        held = sum(each.intake._reader.waiting for each in kept) + sum(
            each.unsent for _, each in opened if "abort" not in each.did
        )
        assert held <= limit + FREE_BYTES * len(kept)
        assert len(kept) == limit // (buffers.used // len(kept))
        # one that buffers nothing is served
        connection = clients.accept()
        connection.connection_made(FakeTransport())
        connection.data_received(get("/"))
        assert connection._active is work[-1]
        if kind == "an answer that is not read":
            kept[0].resume_writing()
            assert buffers.used <= limit - 6000
        for connection in kept:
            connection.connection_lost(None)
        assert buffers.used == 0

    run(check())
