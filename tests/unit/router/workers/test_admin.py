import asyncio
import contextlib
import json
import time

from promptgroup_router.admin_guard import AdminGuard
from promptgroup_router.base.exposition import OPENMETRICS, PROMETHEUS
from promptgroup_router.proxy.downstream import ClientListener
from promptgroup_router.workers.admin import WorkersAdmin
from promptgroup_router.workers.crew import Crew
from support.wire import connected, get, post, run


class FakeCrew(Crew):
    """Workers that give these answers."""

    def __init__(self, *answers: bytes, ready: bool = True) -> None:
        super().__init__(2, 2)
        self.answers = answers
        self.running = list(answers)
        self.is_ready = ready

    @property
    def ready(self):
        return list(self.answers) if self.is_ready else []

    async def page(self, form=PROMETHEUS):
        return "page with exemplars\n" if form.openmetrics else "page\n"

    async def ask_all(self, request):
        return self.answers

    async def ask_one(self, request):
        return (400, request[-2:]) if self.answers else None


@contextlib.asynccontextmanager
async def admin(crew: Crew):
    clients = ClientListener(WorkersAdmin(crew, AdminGuard()), time.monotonic, 1000)
    server = await asyncio.get_running_loop().create_server(clients.accept, "127.0.0.1", 0)
    try:
        async with connected(server.sockets[0].getsockname()[1]) as client:
            yield client
    finally:
        server.close()
        clients.abort()
        await clients.wait_closed()


def test_health_and_readiness():
    async def check():
        async with admin(crew := FakeCrew(b"1", b"2")) as client:
            assert (await client.ask(get("/healthz"))).body == b"ok\n"
            assert (await client.ask(get("/readyz"))).body == b"ok\n"
            crew.is_ready = False
            assert (await client.ask(get("/readyz"))).body == b"no routing table has been read yet\n"
            crew.draining = True
            answer = await client.ask(get("/readyz"))
            assert (answer.status, answer.body) == (503, b"draining\n")
            assert (await client.ask(get("/healthz"))).status == 200
            crew.running = []
            assert (await client.ask(get("/healthz"))).status == 503

    run(check())


def test_answers_of_workers_are_put_together():
    async def check():
        said = json.dumps({"unmatched": []}).encode()
        async with admin(FakeCrew(said, said)) as client:
            assert (await client.ask(get("/metrics"))).body == b"page\n"
            asked = get("/metrics", f"accept: {OPENMETRICS.content_type.decode()}")
            assert (await client.ask(asked)).body == b"page with exemplars\n"
            assert (await client.ask(get("/unmatched"))).json == {"unmatched": [], "shared": []}
            asked = await client.ask(post(b"{}", path="/explain"))
            assert (asked.status, asked.body) == (400, b"{}")
            assert (await client.ask(get("/"))).status == 404
            assert (await client.ask(post(b"", path="/metrics"))).headers[b"allow"] == b"GET"

    run(check())


def test_without_an_answer_there_is_an_error():
    async def check():
        async with admin(FakeCrew()) as client:
            for request in (get("/table"), post(b"{}", path="/explain")):
                assert (await client.ask(request)).status == 503
        async with admin(FakeCrew(b"no JSON")) as client:
            assert (await client.ask(get("/table"))).status == 503

    run(check())


def test_samples_are_those_of_all_workers_that_keep_some():
    async def check():
        async with admin(FakeCrew(b'{"a":1}\n', b'{"a":2}\n')) as client:
            assert (await client.ask(get("/responses/samples"))).body == b'{"a":1}\n{"a":2}\n'
        async with admin(FakeCrew()) as client:
            answer = await client.ask(get("/responses/samples"))
            assert (answer.status, b"--keep-samples" in answer.body) == (403, True)

    run(check())
