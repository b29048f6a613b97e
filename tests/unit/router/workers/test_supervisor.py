"""A router with workers as its clients and Kubernetes see it: over real HTTP, in processes of its own."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
import uvloop

from promptgroup_router.feed import table_file
from promptgroup_router.workers.supervisor import MISSED
from support.fakeengine import Call, engines, until
from support.routerprocess import Process, started
from support.wire import Answer, Client, ask, chat, connected, get, post, run, table_of

WORKERS = 3


@contextlib.asynccontextmanager
async def routing(folder: Path, *addresses: str, workers: int = WORKERS):
    """A router whose workers all have the table."""
    table_file.write(folder / "table.json", table_of(*addresses))
    async with started("--table", str(folder / "table.json"), "--workers", str(workers)) as router:
        await until(lambda: router.events().count("table") == workers, "all workers to have a table", 30)
        yield router


def pids(router: Process) -> list[int]:
    """The workers that run, by place."""
    ended = {line["pid"] for line in router.lines if line["event"] == "worker ended"}
    begun = {line["pid"]: line["place"] for line in router.lines if line["event"] == "worker started"}
    return sorted((pid for pid in begun if pid not in ended), key=begun.__getitem__)


def clients_of(pid: int, port: int) -> set[int]:
    """Ports of the clients whose connections to a port a process holds."""
    held = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            held.add(str(each.readlink()))
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *rest = line.split()
        if int(local.split(":")[1], 16) == port and state == "01" and f"socket:[{rest[5]}]" in held:
            found.add(int(remote.split(":")[1], 16))
    return found


async def metric(router: Process, series: str) -> float:
    text = (await ask(router.admin_port, get("/metrics"))).body.decode()
    found = re.search(rf"^promptgroup_router_{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def sessions_counted(router: Process) -> int:
    page = (await ask(router.admin_port, get("/metrics"))).body.decode()
    found = re.search(r"^promptgroup_router_revision_sessions\{.*\} (\d+)$", page, re.MULTILINE)
    return int(found[1]) if found else 0


class Load:
    """Clients that ask one request after the other, each on a connection that it keeps, as HTTP clients do."""

    def __init__(self, port: int, clients: int) -> None:
        self.answered = 0
        self.failed: list[str] = []
        self.refused = 0
        self.reopened = 0
        self._port = port
        self._stopping = False
        self._tasks = [asyncio.ensure_future(self._client(number)) for number in range(clients)]

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def more(self, count: int) -> None:
        """Wait for so many more answers."""
        wanted = self.answered + count
        await until(lambda: self.answered >= wanted or self.failed, f"{count} more answers", 60)

    async def _client(self, number: int) -> None:
        client, request = None, post(chat(f"Question of client {number}"))
        while not self._stopping:
            kept = client is not None
            try:
                client = client or await self._connect()
                answer = await client.ask(request)
            except ConnectionRefusedError:
                self.refused += 1
            except (ConnectionError, EOFError) as error:
                if client is not None:
                    client.leave()
                # a kept connection may end just as a request is sent: clients then send it again
                if kept:
                    self.reopened += 1
                else:
                    self.failed.append(repr(error))
                client = None
            else:
                self.answered += 1
                if answer.status != 200:
                    self.failed.append(str(answer.status))
                if answer.headers.get(b"connection") == b"close":
                    client.leave()
                    client = None
        if client is not None:
            client.leave()

    async def _connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self._port))


async def stream(client: Client, go: str) -> None:
    client.send(post(chat(go, stream=True)))
    await client.reader.readuntil(b"data: one\n\n")


async def streams_of_all(router: Process, stack: contextlib.AsyncExitStack, count: int) -> list[Client]:
    """Streams that have begun, at least so many, and one or more in each worker: the kernel chooses which."""
    found: list[Client] = []
    while len(found) < count or not all(clients_of(pid, router.port) for pid in pids(router)):
        client = await stack.enter_async_context(connected(router.port))
        await stream(client, f"Stream {len(found)}")
        found.append(client)
    return found


def streaming(go: asyncio.Event):
    async def behave(call: Call) -> None:
        if not call.json.get("stream"):
            call.answer()
            return
        call.begin_stream()
        call.chunk(b"data: one\n\n")
        await go.wait()
        call.chunk(b"data: two\n\n")
        call.send(b"0\r\n\r\n")

    return behave


def limited(test, seconds: float = 90.0) -> None:
    async def within() -> None:
        async with asyncio.timeout(seconds):
            await test

    uvloop.run(within())


@pytest.mark.slow
def test_a_killed_worker_breaks_its_own_streams_and_nothing_else(tmp_path):
    go = asyncio.Event()

    async def check():
        async with engines(2, streaming(go), streaming(go)) as served, contextlib.AsyncExitStack() as stack:
            router = await stack.enter_async_context(routing(tmp_path, *(each.address for each in served)))
            streams = await streams_of_all(router, stack, 24)
            load = Load(router.port, 8)
            await load.more(200)
            victim = pids(router)[1]
            lost = clients_of(victim, router.port)
            own = {client for client in streams if client.writer.get_extra_info("sockname")[1] in lost}
            assert 0 < len(own) < len(streams)
            os.kill(victim, signal.SIGKILL)
            for client in own:
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await client.reader.readuntil(b"data: two\n\n")
            await load.more(200)
            await until(lambda: router.events().count("table") == WORKERS + 1, "the new worker's table", 30)
            await load.more(200)
            go.set()
            for client in set(streams) - own:
                await client.reader.readuntil(b"data: two\n\n\r\n0\r\n\r\n")
            await load.stop()
            assert (load.failed, load.refused) == ([], 0)
            assert load.reopened <= 8
            assert len(pids(router)) == WORKERS
            assert await metric(router, "worker_ends_total") == 1
            assert await metric(router, "workers") == WORKERS

    limited(check())


@pytest.mark.slow
def test_a_rolling_restart_refuses_nobody_and_loses_no_count(tmp_path):
    go = asyncio.Event()

    async def check():
        async with engines(2, streaming(go), streaming(go)) as served, contextlib.AsyncExitStack() as stack:
            router = await stack.enter_async_context(routing(tmp_path, *(each.address for each in served)))
            streams = [await stack.enter_async_context(connected(router.port)) for _ in range(6)]
            for number, client in enumerate(streams):
                await stream(client, f"Stream {number}")
            load = Load(router.port, 8)
            fresh = 0
            await load.more(100)
            before = pids(router)
            router.process.send_signal(signal.SIGUSR2)
            while len(set(pids(router)) & set(before)) == WORKERS or "workers replaced" not in router.events():
                # each on a connection of its own, which must never be refused
                assert (await ask(router.port, post(chat("On a new connection")))).status == 200
                fresh += 1
                if fresh == 20:
                    go.set()
            for client in streams:
                await client.reader.readuntil(b"data: two\n\n\r\n0\r\n\r\n")
            await load.more(100)
            await load.stop()
            assert (load.failed, load.refused) == ([], 0)
            assert not set(pids(router)) & set(before)
            assert fresh > 20
            counted = await metric(router, 'requests_total{group="chat/support",code="200"}')
            assert counted == load.answered + fresh + len(streams)
            assert await metric(router, "worker_ends_total") == 0

    limited(check())


@pytest.mark.slow
def test_sessions_keep_their_slot_whichever_worker_takes_the_connection(tmp_path):
    async def check():
        async with engines(4) as served, routing(tmp_path, *(each.address for each in served)) as router:
            slots: dict[int, set[str]] = {}
            conversation = chat("Turn 0")
            for turn in range(8):
                for session in range(16):
                    answer = await ask(router.port, post(conversation, f"X-Session-Id: {session}"))
                    assert answer.status == 200
                    slots.setdefault(session, set()).add(answer.served_by)
                conversation["messages"] += [
                    {"role": "assistant", "content": "Yes"},
                    {"role": "user", "content": f"Turn {turn + 1}"},
                ]
            assert {len(found) for found in slots.values()} == {1}
            assert len(set.union(*slots.values())) > 1
            assert await metric(router, 'sessions_moved_total{group="chat/support"}') == 0
            assert await metric(router, 'requests_total{group="chat/support",code="200"}') == 128
            # each is counted by the worker that served it last, and by no other, once they have told each other
            async with asyncio.timeout(10):
                while await sessions_counted(router) != 16:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

    limited(check())


@pytest.mark.slow
def test_the_admin_port_answers_for_all(tmp_path):
    go = asyncio.Event()

    async def check():
        async with engines(1, streaming(go)) as (engine,), contextlib.AsyncExitStack() as stack:
            router = await stack.enter_async_context(routing(tmp_path, engine.address))
            count = len(await streams_of_all(router, stack, 12))

            async def admin(data: bytes) -> Answer:
                return await ask(router.admin_port, data)

            assert (await admin(get("/healthz"))).body == b"ok\n"
            assert (await admin(get("/readyz"))).status == 200
            page = (await admin(get("/metrics"))).body.decode()
            assert re.search(rf"^promptgroup_router_connections {count}$", page, re.MULTILINE)
            assert re.search(rf"^promptgroup_router_inflight\{{.*\}} {count}$", page, re.MULTILINE)
            replica = next(iter((await admin(get("/table"))).json["replicas"].values()))
            assert (replica["inFlight"], replica["inFlightOfPeers"]) == (count, 0)
            assert (await admin(get("/unmatched"))).json == {"unmatched": [], "shared": []}
            explained = await admin(post({"body": json.dumps(chat())}, path="/explain"))
            assert explained.json["match"]["group"] == "chat/support"
            assert (await admin(post({"body": 1}, path="/explain"))).status == 400
            assert (await admin(get("/nothing"))).status == 404
            assert (await admin(get("/explain"))).headers[b"allow"] == b"POST"
            go.set()

    limited(check())


@pytest.mark.slow
def test_sigterm_lets_the_streams_of_all_workers_end(tmp_path):
    go = asyncio.Event()

    async def check():
        async with engines(1, streaming(go)) as (engine,), contextlib.AsyncExitStack() as stack:
            router = await stack.enter_async_context(routing(tmp_path, engine.address))
            streams = [await stack.enter_async_context(connected(router.port)) for _ in range(12)]
            for number, client in enumerate(streams):
                await stream(client, f"Stream {number}")
            router.process.send_signal(signal.SIGTERM)
            await until(lambda: router.events().count("draining") == WORKERS + 1, "all workers to drain")
            assert await router.ready() == 503

            async def refused() -> bool:
                try:
                    async with connected(router.port):
                        return False
                except ConnectionRefusedError:
                    return True

            while not await refused():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert router.process.returncode is None
            go.set()
            for client in streams:
                assert (await client.closed()).endswith(b"data: two\n\n\r\n0\r\n\r\n")
            assert await router.process.wait() == 0

    limited(check())


@pytest.mark.slow
def test_workers_leave_with_a_supervisor_that_is_killed(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, engine.address) as router:
            workers = pids(router)
            router.process.kill()
            await router.process.wait()
            await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "the workers to leave", 20)

    limited(check())


@pytest.mark.heavy
def test_a_port_that_is_taken_ends_the_process_with_a_reason(tmp_path):
    async def check():
        async with connected_listener() as port:
            table_file.write(tmp_path / "table.json", table_of())
            flags = ("--table", str(tmp_path / "table.json"), "--workers", "2", "--port", str(port))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "promptgroup_router", "--host", "127.0.0.1", "--admin-port", "0", *flags),
                stderr=asyncio.subprocess.PIPE,
            )
            _, error = await process.communicate()
            assert process.returncode == 1
            assert re.search(rb"cannot listen .*in use", error)

    run(check())


@contextlib.asynccontextmanager
async def connected_listener():
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.slow
def test_a_worker_that_hangs_is_killed_and_replaced(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, engine.address, workers=2) as router:
            hung, other = pids(router)
            async with contextlib.AsyncExitStack() as stack:
                of_other: list[Client] = []
                # a worker that has just started may accept later than the other
                while len(of_other) < 4:
                    client = await stack.enter_async_context(connected(router.port))
                    assert (await client.ask(post(chat()))).status == 200
                    if client.writer.get_extra_info("sockname")[1] in clients_of(other, router.port):
                        of_other.append(client)
                os.kill(hung, signal.SIGSTOP)

                async def replaced() -> None:
                    await until(lambda: hung not in pids(router) and len(pids(router)) == 2, "another worker", 80)

                waiting = asyncio.ensure_future(replaced())
                while not waiting.done():
                    # those of the other one notice nothing
                    for client in of_other:
                        assert (await client.ask(post(chat()))).status == 200
                    await asyncio.sleep(0.5)
                await waiting
            assert router.events().count("worker hangs") == MISSED
            await until(lambda: router.events().count("table") == 3, "the new worker to have the table", 30)
            for _ in range(16):
                assert (await ask(router.port, post(chat()))).status == 200

    limited(check(), 150.0)
