"""Loads: as many requests as go through, requests at a fixed rate, streams, idle clients.

wrk (C) sends as many as go through where it is installed, and this Python where it is not. At a fixed rate the latency
counts from the moment at which a request was due, so that a router that falls behind is not spared the wait.
"""

import asyncio
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles

from bench.router import requests
from bench.router.engine import ANSWER_BODY

CONNECTIONS = 16
STREAMS = 200
TAIL = ANSWER_BODY[-32:]
SCRIPT = """
local paths = {%s}
local built = {}
function init(args)
  for i, each in ipairs(paths) do
    local f = assert(io.open(each[1], "rb")); local body = f:read("*a"); f:close()
    built[i] = wrk.format("POST", "/v1/chat/completions", each[2], body)
  end
end
local at = 0
function request()
  at = at %% #built + 1
  return built[at]
end
"""


class LoadError(Exception):
    """A router did not answer as it should."""


def wrk() -> str | None:
    """Return the path of wrk, if it is installed."""
    return shutil.which("wrk")


def closed_loop(port: int, kilobytes: int, seconds: float, folder: Path, prefix: Sequence[str]) -> int:
    """Send requests on some connections, each after the answer to the last. Return how many were answered.

    Raises:
        LoadError: some were not, or not with 200.
    """
    connections = CONNECTIONS if kilobytes <= 100 else 4
    binary = wrk()
    if binary is None:
        return asyncio.run(_closed_loop(port, kilobytes, seconds, connections))
    command = [*prefix, binary, "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", str(_script(folder, kilobytes))]
    told = subprocess.run(
        [*command, f"http://127.0.0.1:{port}"], capture_output=True, text=True, timeout=seconds + 60, check=True
    ).stdout
    if bad := re.search(r"Non-2xx.*|Socket errors.*", told):
        raise LoadError(bad[0])
    return int(re.search(r"(\d+) requests in", told)[1])  # type: ignore[index]


def _script(folder: Path, kilobytes: int) -> Path:
    script = folder / f"{kilobytes}.lua"
    if not script.exists():
        entries = []
        for session in range(requests.sessions(kilobytes)):
            path = folder / f"{kilobytes}-{session}.json"
            path.write_bytes(requests.body(kilobytes, session))
            fields = ", ".join(
                f"[{json.dumps(name)}] = {json.dumps(value)}" for name, value in requests.headers(session).items()
            )
            entries.append(f"{{{json.dumps(str(path))}, {{{fields}}}}}")
        script.write_text(SCRIPT % ", ".join(entries))
    return script


class Client(asyncio.Protocol):
    """A connection that says when an answer is whole."""

    def __init__(self, answered: Callable[["Client"], None]) -> None:
        self.answered = answered
        self.received = b""
        self.due = 0.0
        self.problem = ""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.received.endswith(TAIL):
            if not self.received.startswith(b"HTTP/1.1 200"):
                self.problem = self.received[:100].decode("latin-1")
            self.received = b""
            self.answered(self)
        elif not self.received.startswith(b"HTTP/1.1 200"[: len(self.received)]):
            self.problem = self.received[:100].decode("latin-1")

    def connection_lost(self, _: Exception | None) -> None:
        self.problem = self.problem or "closed"


async def _open(port: int, count: int, answered: Callable[[Client], None]) -> list[Client]:
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(count):
        _, client = await loop.create_connection(lambda: Client(answered), "127.0.0.1", port)
        clients.append(client)
    return clients


def _close(clients: Sequence[Client]) -> None:
    problems = {client.problem for client in clients if client.problem}
    for client in clients:
        client.transport.abort()
    if problems:
        raise LoadError("; ".join(sorted(problems)))


async def _closed_loop(port: int, kilobytes: int, seconds: float, connections: int) -> int:
    some = [requests.request(kilobytes, session) for session in range(requests.sessions(kilobytes))]
    done, until = 0, time.monotonic() + seconds

    def answered(client: Client) -> None:
        nonlocal done
        done += 1
        if time.monotonic() < until:
            client.transport.write(some[done % len(some)])

    clients = await _open(port, connections, answered)
    for number, client in enumerate(clients):
        client.transport.write(some[number % len(some)])
    await asyncio.sleep(seconds + 0.2)
    _close(clients)
    return done


async def at_rate(port: int, rate: float, seconds: float) -> tuple[float, float]:
    """Send 8 KB requests at a fixed rate. Return the median and the 99th percentile of their latency, in seconds.

    Raises:
        LoadError: some were not answered, or not with 200.
    """
    some = [requests.request(8, session) for session in range(requests.sessions(8))]
    free: list[Client] = []
    latencies: list[float] = []
    waiting: list[float] = []
    clock = time.perf_counter

    def answered(client: Client) -> None:
        latencies.append(clock() - client.due)
        if waiting:
            send(client, waiting.pop(0))
        else:
            free.append(client)

    def send(client: Client, due: float) -> None:
        client.due = due
        client.transport.write(some[len(latencies) % len(some)])

    clients = await _open(port, 64, answered)
    free += clients
    begin = clock()
    sent, total = 0, int(rate * seconds)
    while sent < total:
        now = clock()
        while sent < total and begin + sent / rate <= now:
            if free:
                send(free.pop(), begin + sent / rate)
            else:
                waiting.append(begin + sent / rate)
            sent += 1
        await asyncio.sleep(0)  # the loop has nothing to wait for between two requests: it polls
    deadline = clock() + 5
    while len(latencies) < total and clock() < deadline:  # noqa: ASYNC110 - answers are too many to announce each
        await asyncio.sleep(0.01)
    _close(clients)
    if len(latencies) < total:
        raise LoadError(f"{total - len(latencies)} of {total} requests were not answered within 5 s")
    settled = latencies[len(latencies) // 5 :]
    percentiles = quantiles(settled, n=100)
    return percentiles[49], percentiles[98]


class Listener(asyncio.Protocol):
    """A client of a stream: counts events."""

    events = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.began = False

    def data_received(self, data: bytes) -> None:
        self.began = True
        Listener.events += data.count(b"data: ")


async def events(port: int, seconds: float, cpu: Callable[[], float]) -> tuple[int, float]:
    """Listen to streams. Return the events of a time, and the CPU seconds that `cpu` counted in it.

    Raises:
        LoadError: a stream did not begin.
    """
    loop = asyncio.get_running_loop()
    listeners = []
    for number in range(STREAMS):
        _, listener = await loop.create_connection(Listener, "127.0.0.1", port)
        listener.transport.write(requests.request(1, number, stream=True))
        listeners.append(listener)
    deadline = loop.time() + 10
    while any(not each.began for each in listeners) and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    silent = sum(not each.began for each in listeners)
    before, used = Listener.events, cpu()
    await asyncio.sleep(seconds)
    done, used = Listener.events - before, cpu() - used
    for each in listeners:
        each.transport.abort()
    if not done:
        raise LoadError("no event arrived")
    if silent:
        raise LoadError(f"{silent} of {STREAMS} streams did not begin")
    return done, used


async def idle_clients(port: int, count: int, look: Callable[[], float]) -> float:
    """Have so many clients connected that had an answer each. Return what `look` says of the router then.

    Raises:
        LoadError: some were not answered.
    """
    done = 0
    woken = asyncio.Event()

    def answered(_: Client) -> None:
        nonlocal done
        done += 1
        woken.set()

    clients: list[Client] = []
    request = requests.request(1, 1)
    for _ in range(0, count, 50):
        some = await _open(port, 50, answered)
        clients += some
        for client in some:
            client.transport.write(request)
        async with asyncio.timeout(20):
            while done < len(clients):
                woken.clear()
                await woken.wait()
    await asyncio.sleep(0.5)
    seen = look()
    _close(clients)
    return seen
