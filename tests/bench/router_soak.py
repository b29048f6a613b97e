"""Whether the router's memory and sockets stay what they are under load with churn.

    make soak MINUTES=60        or: python tests/bench/router_soak.py --minutes 10 --rate 200

The router is a process of its own, engines and clients are in this one. The load is open: so many requests a second, by
default about half of what one shared core takes; a third of them streams. All the while one request in ten is left by
its client, engines cut one connection a second, and the table is replaced once a second. The first quarter of the time
is a warm-up. Of what follows it asserts that the resident memory does not grow: by the line of least squares, at most
2 % or 2 MiB from beginning to end; that no descriptor is left over; and that no whole answer has failed.
"""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.router_overhead import cpu_seconds, free_ports
from promptgroup_contract.table import SlotState
from promptgroup_router.feed import table_file
from support.tables import group, revision, slot, table
from support.wire import Client, chat, get, post

ENGINES = 3
SESSIONS = 2000
MOST_RUNNING = 400
"""Requests at a time: where the machine does not keep up, fewer are sent."""
EVENTS = 20
PACE_SECONDS = 0.05
SAMPLE_SECONDS = 2.0
MOST_GROWTH = 0.02
MOST_BYTES = 2 * 2**20
PAGE = os.sysconf("SC_PAGE_SIZE")

BODY = b'{"choices":[{"message":{"content":"' + b"a word " * 40 + b'"}}],"usage":{"prompt_tokens":300}}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"delta":{"content":"word "},"finish_reason":null}]}\n\n'
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)


class Engine(asyncio.Protocol):
    """Answers at once, or with events at a pace."""

    alive: ClassVar[set["Engine"]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.received = b""
        self.left = 0
        Engine.alive.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        Engine.alive.discard(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, blank, body = self.received.partition(b"\r\n\r\n")
        if not blank or len(body) < int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            return
        self.received = b""
        if b'"stream":true' in body:
            self.transport.write(HEAD)
            self.left = EVENTS
            self.event()
        else:
            self.transport.write(ANSWER)

    def event(self) -> None:
        if self.transport.is_closing():
            return
        if self.left:
            self.left -= 1
            self.transport.write(CHUNK)
            asyncio.get_running_loop().call_later(PACE_SECONDS, self.event)
        else:
            self.transport.write(b"0\r\n\r\n")


@dataclass
class Load:
    """The clients, and what they saw."""

    port: int
    random: random.Random
    kept: list[Client] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    running: int = 0

    async def one(self, number: int) -> None:
        self.running += 1
        try:
            await self.ask(number)
        finally:
            self.running -= 1

    async def ask(self, number: int) -> None:
        streams, leaves = number % 3 == 0, number % 10 == 0
        body = chat(f"request {number}", stream=streams)
        data = post(body, f"X-Session-Id: session-{self.random.randrange(SESSIONS)}")
        client = self.kept.pop() if self.kept else Client(*await asyncio.open_connection("127.0.0.1", self.port))
        try:
            client.send(data)
            if leaves:
                await asyncio.sleep(self.random.random() * EVENTS * PACE_SECONDS)
                client.leave()
                self.counts["left by the client"] += 1
                return
            answer = await client.answer()
        except (EOFError, ConnectionError):
            client.leave()
            self.counts["streams cut" if streams else "failed"] += 1
            return
        self.counts[("stream" if streams else "whole") if answer.status == 200 else "failed"] += 1
        if self.random.random() < 0.05:
            client.leave()
        else:
            self.kept.append(client)

    async def run(self, seconds: float, rate: float) -> None:
        began, number = time.monotonic(), 0
        async with asyncio.TaskGroup() as requests:
            while (now := time.monotonic() - began) < seconds:
                while number < now * rate:
                    number += 1
                    if self.running < MOST_RUNNING:
                        requests.create_task(self.one(number))
                    else:
                        self.counts["not sent, too many run"] += 1
                await asyncio.sleep(0.01)


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def churn(folder: Path, addresses: list[str], choose: random.Random) -> None:
    """Each second another table, and a connection of an engine that is cut."""
    version = 0
    while True:
        await asyncio.sleep(1.0)
        version += 1
        away = choose.randrange(ENGINES)
        states = [SlotState.DRAINING if number == away else SlotState.READY for number in range(ENGINES)]
        write_table(folder, addresses, f"v{version}", states)
        # a whole answer is here at once, so that this cuts a stream or an idle connection
        streams = [engine for engine in Engine.alive if engine.left]
        if streams:
            choose.choice(streams).transport.abort()


def write_table(folder: Path, addresses: list[str], version: str, states: list[SlotState]) -> None:
    slots = tuple(slot(n, states[n], address=address) for n, address in enumerate(addresses))
    table_file.write(folder / "table.json", table(group("support", revision(slots=slots)), version=version))


async def soak(minutes: float, rate: float, seed: int) -> int:
    loop, seconds = asyncio.get_running_loop(), minutes * 60
    servers = [await loop.create_server(Engine, "127.0.0.1", 0) for _ in range(ENGINES)]
    addresses = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    port, admin = free_ports(2)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_table(folder, addresses, "v0", [SlotState.READY] * ENGINES)
        flags = ["--table", str(folder / "table.json"), "--host", "127.0.0.1", "--port", str(port)]
        flags += ["--admin-port", str(admin), "--log-level", "ERROR"]
        router = subprocess.Popen([sys.executable, "-m", "promptgroup_router", *flags])  # noqa: ASYNC220 - at once
        churning = asyncio.ensure_future(churn(folder, addresses, random.Random(seed)))
        try:
            return await observed(router.pid, Load(port, random.Random(seed)), admin, seconds, rate)
        finally:
            churning.cancel()
            router.terminate()
            router.wait()


async def observed(pid: int, load: Load, admin: int, seconds: float, rate: float) -> int:
    for _ in range(200):
        with contextlib.suppress(OSError):
            load.kept.append(Client(*await asyncio.open_connection("127.0.0.1", load.port)))
            break
        await asyncio.sleep(0.05)
    samples: list[tuple[float, int]] = []

    async def sample() -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            if (now := time.monotonic() - began) >= seconds / 4:
                samples.append((now, resident(pid)))

    sampling = asyncio.ensure_future(sample())
    before, cpu = descriptors(pid), cpu_seconds(pid)
    await load.run(seconds, rate)
    cpu = cpu_seconds(pid) - cpu
    sampling.cancel()
    for client in load.kept:
        client.leave()
    await asyncio.sleep(6.0)  # the router keeps idle connections to engines for four seconds
    left = descriptors(pid) - before
    client = Client(*await asyncio.open_connection("127.0.0.1", admin))
    page = (await client.ask(get("/metrics"))).body.decode()
    client.leave()
    running = sum(
        float(line.split()[-1]) for line in page.splitlines() if line.startswith("promptgroup_router_inflight{")
    )
    slope = statistics.linear_regression(*zip(*samples, strict=True)).slope
    mean = statistics.mean(size for _, size in samples)
    growth = slope * (samples[-1][0] - samples[0][0])
    sys.stdout.write(
        f"{seconds / 60:.0f} minutes, {rate:.0f} requests a second, {dict(sorted(load.counts.items()))}\n"
        f"router: {cpu:.0f} s of CPU ({100 * cpu / seconds:.0f} % of a core), {mean / 2**20:.1f} MiB resident, "
        f"{growth / 2**20:+.2f} MiB from the first quarter to the end ({slope * 3600 / 2**20:+.2f} MiB an hour)\n"
        f"afterwards: {left:+d} descriptors, {running:.0f} requests in flight\n"
    )
    assert growth <= max(MOST_GROWTH * mean, MOST_BYTES), "the router's memory grows"
    assert left <= 2, "descriptors are left over"
    assert running == 0, "requests are left over"
    assert load.counts["failed"] == 0, "whole answers failed"
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return uvloop.run(soak(given.minutes, given.rate, given.seed))


if __name__ == "__main__":
    sys.exit(main())
