"""CPU that the picker and Envoy take for a request, beside the router's: what a request through a gateway costs.

    python tests/bench/picker_cost.py [--quick] [--points 200@500,1000000@10] [--seconds 10] [--table FILE.md]

All points take four minutes, with `--quick` two.

Ten trivial engines, the client, a real Envoy (`make envoy`) and the picker, or the router instead of both,
run as processes on loopback. The client sends so many requests a second, open loop, of 200 sessions; the policy is the
real one. CPU is the sum over all threads (/proc/PID/task/*/schedstat), those of the process for large bodies among
them, so that waiting and others' work do not count; memory is their sum of peaks so far. Latencies are of the whole
request, and mean something only where `Idle`, the cores that nobody used, is far from 0.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.answering import ANSWER_BODY, AnsweringEngine
from promptgroup_contract.table import RoutingTable
from promptgroup_local.ports import free_ports
from promptgroup_router.base import build
from promptgroup_router.feed import table_file
from support.gateway import gateway
from support.wire import table_of

ENGINES = 10
SESSIONS = 200
POINTS = "200@10,200@100,200@200,200@500,1000@10,10000@10,100000@10,1000000@10"
"""Words of one token @ requests a second: those for which llm-d publishes what its picker takes."""
QUICK = 4.0
"""Seconds for each point with `--quick`."""


def request(session: int, words: int) -> bytes:
    messages = [{"role": "system", "content": "You are the support assistant of Example Ltd."}]
    messages.append({"role": "user", "content": "word " * words})
    body = json.dumps({"model": "llama", "messages": messages}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return f"{head}X-Session-Id: user-{session}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Client(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.received = b""
        self.done: asyncio.Future[bool] | None = None

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, blank, body = self.received.partition(b"\r\n\r\n")
        ended = body.endswith((ANSWER_BODY, b"0\r\n\r\n")) or (blank and not head.startswith(b"HTTP/1.1 200"))
        if ended and self.done is not None:
            good, self.received = head.startswith(b"HTTP/1.1 200"), b""
            done, self.done = self.done, None
            if not done.done():
                done.set_result(good)

    def connection_lost(self, _: Exception | None) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(False)


async def load(port: int, rate: float, seconds: float, words: int) -> tuple[int, int, list[float]]:
    """Send so many requests a second. Return how many ended, how many failed, and their seconds."""
    loop = asyncio.get_running_loop()
    # long ones take memory here, and the sessions matter little to what their bodies cost
    bodies = [request(session, words) for session in range(SESSIONS if words < 10_000 else 4)]
    idle: list[Client] = []
    took: list[float] = []
    failed = 0

    async def one(number: int) -> None:
        nonlocal failed
        client = idle.pop() if idle else (await loop.create_connection(Client, "127.0.0.1", port))[1]
        client.done = loop.create_future()
        began = time.perf_counter()
        client.transport.write(bodies[number % len(bodies)])
        try:
            good = await asyncio.wait_for(client.done, 30)
        except TimeoutError:
            good = False
        took.append(time.perf_counter() - began)
        if good:
            idle.append(client)
        else:
            failed += 1
            client.transport.abort()

    start, tasks = loop.time(), set()
    for number in range(int(rate * seconds)):
        delay = start + number / rate - loop.time()
        if delay > 0:
            await asyncio.sleep(delay)
        tasks.add(asyncio.ensure_future(one(number)))
    await asyncio.gather(*tasks)
    for client in idle:
        client.transport.abort()
    return len(took), failed, took


def cpu(pid: int) -> float:
    """Seconds of CPU of a process and of those that it started, over all threads."""
    total = 0
    for each in family(pid):
        for path in Path(f"/proc/{each}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(path.read_text().split()[0])
    return total / 1e9


def family(pid: int) -> list[int]:
    """Return a process and those that it started."""
    found = [pid]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [each for child in path.read_text().split() for each in family(int(child))]
    return found


def peak(pid: int) -> float:
    """MiB that a process and those that it started held at their largest."""
    kilobytes = 0
    for each in family(pid):
        with contextlib.suppress(OSError):
            told = Path(f"/proc/{each}/status").read_text().partition("VmHWM:")[2]
            kilobytes += int(told.split()[0])
    return kilobytes / 2**10


def idle() -> float:
    """Seconds that the machine's cores have had nothing to do."""
    told = Path("/proc/stat").read_text().split(maxsplit=6)
    return (int(told[4]) + int(told[5])) / os.sysconf("SC_CLK_TCK")


def envoy_of(folder: Path) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder / "envoy.json").encode() in path.read_bytes():
                return int(path.parent.name)
    raise LookupError("Envoy does not run")


@contextlib.contextmanager
def running(module: str, *flags: str):
    process = subprocess.Popen([sys.executable, "-m", module, *flags, "--log-level", "WARNING"])
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


async def listening(port: int) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"nobody listens on {port}")


def points_of(text: str) -> list[tuple[int, float]]:
    pairs = (each.split("@") for each in text.split(","))
    return [(int(words), float(rate)) for words, rate in pairs]


def about() -> str:
    """Say what is measured where."""
    model = Path("/proc/cpuinfo").read_text().partition("model name")[2].partition("\n")[0].lstrip("\t: ")
    return (
        f"{os.cpu_count()} cores ({model}), load {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, "
        f"the router's part {'compiled' if build.compiled() else 'interpreted'}\n"
    )


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def row(name: str, port: int, pids: dict[str, int], point: tuple[int, float], seconds: float) -> str:
    words, rate = point
    await load(port, min(rate, 50), 2, words)
    before = {each: cpu(pid) for each, pid in pids.items()}
    began, free = time.monotonic(), idle()
    count, failed, took = await load(port, rate, seconds, words)
    used = {each: (cpu(pid) - before[each]) / count * 1e6 for each, pid in pids.items()}
    free = (idle() - free) / (time.monotonic() - began)
    cuts = statistics.quantiles(took, n=20)
    own = next(iter(used))
    envoy = f"{used['envoy']:,.0f}" if "envoy" in used else ""
    line = (
        f"| {name} | {words:,} | {rate:g} | {used[own]:,.0f} | {used[own] * rate / 1e6:.2f} | {envoy} | "
        f"{cuts[9] * 1e3:.1f} | {cuts[18] * 1e3:.1f} | {free:.1f} | {failed} | {peak(pids[own]):.0f} |"
    )
    say(line)
    return line


async def main(arguments: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    engine_ports = free_ports(ENGINES)
    child = os.fork()
    if child == 0:
        uvloop.run(serve(engine_ports))
    addresses = [f"127.0.0.1:{port}" for port in engine_ports]
    for port in engine_ports:
        await listening(port)
    lines = [
        "| Server | Tokens | Requests/s | µs of CPU | Cores | Envoy's µs | p50 ms | p95 ms | Idle | Failed | MiB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    say(about())
    say("\n".join(lines))
    seconds = QUICK if arguments.quick else arguments.seconds
    served: RoutingTable = table_of(*addresses)
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            table_file.write(folder / "table.json", served)
            port, health, admin, router_port, router_admin = free_ports(5)
            flags = ["--table", str(folder / "table.json"), "--host", "127.0.0.1"]
            ports = ["--port", str(port), "--health-port", str(health), "--admin-port", str(admin), "--plaintext"]
            with running("promptgroup_picker", *flags, *ports) as picker:
                await listening(port)
                async with gateway(folder, [port], addresses) as envoy:
                    pids = {"picker": picker, "envoy": envoy_of(folder)}
                    for point in arguments.points:
                        lines += [await row("picker behind Envoy", envoy.strict, pids, point, seconds)]
            ports = ["--port", str(router_port), "--admin-port", str(router_admin)]
            with running("promptgroup_router", *flags, *ports) as router:
                await listening(router_port)
                for point in arguments.points:
                    lines += [await row("router alone", router_port, {"router": router}, point, seconds)]
    finally:
        os.kill(child, 9)
        await loop.run_in_executor(None, os.waitpid, child, 0)
    if arguments.table:
        arguments.table.write_text("\n".join(lines) + "\n")


async def serve(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(AnsweringEngine, "127.0.0.1", port) for port in ports]
    await asyncio.gather(*(each.serve_forever() for each in servers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--quick", action="store_true", help=f"measure each point for {QUICK:g} seconds")
    parser.add_argument(
        "--points", type=points_of, default=POINTS, help="TOKENS@REQUESTS_A_SECOND, with commas between"
    )
    parser.add_argument("--table", type=Path, help="write the table to this file")
    uvloop.run(main(parser.parse_args()))
