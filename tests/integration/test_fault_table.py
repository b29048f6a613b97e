"""What a fault costs while requests run: a row of the table in docs/concepts/availability.md each.

Three stand-in engines are processes of their own behind a router on real sockets. Clients stream and others ask for
whole answers all the while. Whatever happens, no whole answer fails, and streams break on the replicas alone that were
killed or hang.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest
import uvloop

from promptgroup_contract.table import RoutingTable, SlotState, TimeLimits
from promptgroup_local.ports import free_ports
from promptgroup_router.feed import table_file
from promptgroup_router.server import Router
from support.tables import group, revision, slot, table
from support.wire import chat, routing

pytestmark = pytest.mark.slow

LIMIT = 90.0
"""Seconds that a row may take."""
STREAMS, WHOLE = 6, 6
"""Clients that stream, and clients that ask for whole answers."""
LIMITS = TimeLimits(first_token=3, idle=3)


@dataclass
class EngineProcess:
    """A stand-in engine."""

    port: int
    process: subprocess.Popen

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass
class World:
    """Engines, router, and what clients saw."""

    folder: Path
    engines: list[EngineProcess]
    router: Router
    session: aiohttp.ClientSession
    stack: contextlib.AsyncExitStack
    answered: Counter[str] = field(default_factory=Counter)
    """By kind: `stream` and `whole`."""
    failed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Labels of the replicas whose streams broke."""
    cut: list[str] = field(default_factory=list)
    """The same of whole answers, which had begun."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    versions: int = 0

    def slots(self) -> tuple:
        return tuple(
            slot(number, address=engine.address, incarnation=str(engine.process.pid))
            for number, engine in enumerate(self.engines)
        )

    def install(self, slots: tuple) -> None:
        self.versions += 1
        table_file.write(self.folder / "table.json", served(slots, f"v{self.versions}"))
        self.router.core.reload()

    async def answers(self, count: int) -> None:
        """Wait until clients have so many more answers of each kind."""
        goal = {kind: self.answered[kind] + count for kind in ("stream", "whole")}
        while any(self.answered[kind] < wanted for kind, wanted in goal.items()):
            self.news.clear()
            await self.news.wait()

    def count(self, kind: str) -> None:
        self.answered[kind] += 1
        self.news.set()


def served(slots: tuple, version: str = "v0") -> RoutingTable:
    return table(group("support", revision(slots=slots), time_limits=LIMITS), version=version)


async def start_engine(stack: contextlib.AsyncExitStack, **knobs: str) -> EngineProcess:
    (port,) = free_ports(1)
    words = [sys.executable, "-m", "promptgroup_local.engine", "llama", "--host=127.0.0.1", f"--port={port}"]
    settings = {"STANDIN_STARTUP_SECONDS": "0", "STANDIN_TIME_SCALE": "1", "STANDIN_MAX_TOKENS": "60", **knobs}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(words, env=os.environ | settings, stdout=quiet, stderr=quiet)  # noqa: ASYNC220 - at once
    engine = EngineProcess(port, process)
    stack.callback(end, process)
    while True:
        assert process.poll() is None, "the engine did not start"
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return engine
        await asyncio.sleep(0.05)


def end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()


async def stream(world: World, name: str) -> None:
    """Stream answers, one after the other, and note which replica's broke."""
    for turn in range(10_000):
        headers = {"x-session-id": f"{name}-{turn // 3}"}
        body = chat(f"{name} {turn}", stream=True, max_tokens=60, ignore_eos=True)
        async with world.session.post("/v1/chat/completions", json=body, headers=headers) as answer:
            if answer.status != 200:
                world.failed.append(f"stream: {answer.status} {await answer.text()}")
                continue
            try:
                content = await answer.content.read()
            except aiohttp.ClientError:
                world.broken.append(answer.headers["x-promptgroup-served-by"])
                continue
            if content.endswith(b"data: [DONE]\n\n"):
                world.count("stream")
            else:
                world.failed.append(f"stream: looks whole with {len(content)} bytes")


async def ask(world: World, name: str) -> None:
    """Ask for whole answers, one after the other."""
    for turn in range(10_000):
        body = chat(f"{name} {turn}", max_tokens=20)
        headers = {"x-session-id": f"{name}-{turn // 3}"}
        try:
            async with world.session.post("/v1/chat/completions", json=body, headers=headers) as answer:
                content = await answer.json()
                if answer.status == 200 and content["choices"][0]["message"]["content"]:
                    world.count("whole")
                else:
                    world.failed.append(f"whole: {answer.status} {content}")
        except aiohttp.ClientPayloadError:
            world.cut.append(answer.headers["x-promptgroup-served-by"])
        except aiohttp.ClientError as error:
            world.failed.append(f"whole: {error!r}")


@contextlib.asynccontextmanager
async def running(folder: Path, **knobs: str) -> AsyncIterator[World]:
    """Three engines under load; the first one has the knobs."""
    async with contextlib.AsyncExitStack() as stack:
        starts = [start_engine(stack, **(knobs if number == 0 else {})) for number in range(3)]
        engines = list(await asyncio.gather(*starts))
        slots = tuple(
            slot(n, address=each.address, incarnation=str(each.process.pid)) for n, each in enumerate(engines)
        )
        router = await stack.enter_async_context(routing(folder, served(slots)))
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(f"http://127.0.0.1:{router.port}", connector=connector)
        )
        world = World(folder, engines, router, session, stack)
        async with asyncio.TaskGroup() as clients:
            tasks = [clients.create_task(stream(world, f"stream-{number}")) for number in range(STREAMS)]
            tasks += [clients.create_task(ask(world, f"whole-{number}")) for number in range(WHOLE)]
            await world.answers(10)
            assert not world.failed
            assert not world.broken
            yield world
            for task in tasks:
                task.cancel()


async def killed(world: World) -> None:
    world.engines[0].process.kill()


async def node_killed(world: World) -> None:
    """A node dies with two of the three engines: the second one when the other has what the first one lost."""
    world.engines[0].process.kill()
    trying = world.router.state.retry_budget
    while not trying.trying:  # noqa: ASYNC110 - the budget has no event
        await asyncio.sleep(0)
    await asyncio.sleep(0.02)  # the course of the fault, not a wait for anything
    world.engines[1].process.kill()


async def hung(world: World) -> None:
    world.engines[0].process.send_signal(signal.SIGSTOP)


async def half_open(world: World) -> None:
    """It dies, and its address swallows what is sent there: no connection is accepted or refused."""
    engine = world.engines[0]
    engine.process.kill()
    engine.process.wait()
    swallow = world.stack.enter_context(socket.socket())
    swallow.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    swallow.bind(("127.0.0.1", engine.port))
    swallow.listen(0)
    for _ in range(3):
        filler = world.stack.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", engine.port))


async def cutting(world: World) -> None:
    """What stands before the engine ends its connections early: within a head, a body, a chunk or an event."""
    engine, choose = world.engines[0], random.Random(1)
    # An end is a failure, and after each failure in a row the router waits for twice as long: whole answers, which
    # 20,000 bytes are enough for, come between the ends, so that the fault does not last for minutes by chance.
    places = (0, 20_000, 400, 20_000, 20, 20_000, 1_000, 20_000, 140, 20_000, 5_000, 20_000)
    connections = 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: float) -> None:
        with contextlib.suppress(OSError):
            while left > 0 and (data := await reader.read(4096)):
                writer.write(data[: int(min(left, len(data)))])
                left -= len(data)
                await writer.drain()
        if left <= 0 and choose.random() < 0.5:
            with contextlib.closing(socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))) as raw:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # so the end is a reset
        writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        ends, connections = places[connections % len(places)], connections + 1
        behind, to_engine = await asyncio.open_connection("127.0.0.1", engine.port)
        try:
            await asyncio.gather(relay(reader, to_engine, float("inf")), relay(behind, writer, ends))
        except asyncio.CancelledError:
            pass  # the test ends
        finally:
            to_engine.transport.abort()
            writer.transport.abort()

    server = await world.stack.enter_async_context(await asyncio.start_server(serve, "127.0.0.1", 0))
    world.engines[0] = replace(engine, port=server.sockets[0].getsockname()[1])
    world.install(world.slots())
    while connections < len(places) or len(world.broken) < STREAMS:
        await world.answers(10)


async def refusing(world: World) -> None:
    """What stands before the engine refuses each request at once, which is faster than any answer."""
    begun = sum(world.answered.values())
    tried = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tried
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            tried += 1
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await world.stack.enter_async_context(await asyncio.start_server(serve, "127.0.0.1", 0))
    world.engines[0] = replace(world.engines[0], port=server.sockets[0].getsockname()[1])
    world.install(world.slots())
    await world.answers(60)
    assert 0 < tried <= (sum(world.answered.values()) - begun) / 20


async def slow(world: World) -> None:
    """The engine was slow from the start."""


async def replaced(world: World) -> None:
    """Another pod takes the slot; the old one finishes what it has."""
    old, world.engines[0] = world.engines[0], await start_engine(world.stack)
    world.install(world.slots())
    await world.answers(30)
    old.process.terminate()


async def table_replaced(world: World) -> None:
    """Ten tables a second: slots drain, are absent, and come back."""
    choose = random.Random(1)
    for _ in range(40):
        slots = list(world.slots())
        changed = choose.randrange(3)
        state = choose.choice([SlotState.DRAINING, SlotState.ABSENT, SlotState.READY])
        address = "" if state is SlotState.ABSENT else slots[changed].address
        slots[changed] = replace(slots[changed], state=state, address=address)
        world.install(tuple(slots))
        await asyncio.sleep(0.1)  # the pace of the fault, not a wait for anything
    world.install(world.slots())


async def churn(world: World) -> None:
    """Clients that leave at any moment."""
    choose = random.Random(1)

    async def leave(number: int) -> None:
        body = chat(f"leaves {number}", stream=choose.random() < 0.5, max_tokens=60)
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(choose.choice([0.001, 0.01, 0.1, 0.5])),
                world.session.post("/v1/chat/completions", json=body) as answer,
            ):
                await answer.content.read()

    for start in range(0, 300, 20):
        await asyncio.gather(*(leave(number) for number in range(start, start + 20)))


ROWS = {
    "engine killed": (killed, {"/0"}),
    "node with two of three engines killed": (node_killed, {"/0", "/1"}),
    "engine hung": (hung, {"/0"}),
    "engine's answers cut": (cutting, {"/0"}),
    "engine refusing": (refusing, set()),
    "engine slow": (slow, set()),
    "engine half-open": (half_open, {"/0"}),
    "pod replaced": (replaced, set()),
    "table replaced ten times a second": (table_replaced, set()),
    "clients churning": (churn, set()),
}
"""The faults, and the replicas whose streams may break."""


@pytest.mark.parametrize("row", ROWS)
def test_a_fault_costs_only_the_streams_that_it_hits(row, tmp_path):
    fault, may_break = ROWS[row]
    knobs = {"STANDIN_TIME_SCALE": "10"} if fault is slow else {}

    async def check() -> None:
        async with asyncio.timeout(LIMIT), running(tmp_path, **knobs) as world:
            await fault(world)
            await world.answers(60)
            assert not world.failed, world.failed[:3]
            assert {label[-2:] for label in world.broken} <= may_break
            assert not world.cut  # a whole answer is held until it has ended, and another replica is asked
            if fault is cutting:
                return
            assert len(world.broken) <= len(may_break) * STREAMS + (fault is hung) * STREAMS
        await drained(world)

    async def drained(world: World) -> None:
        assert world.router.state.retry_budget.trying == 0

    uvloop.run(check())
