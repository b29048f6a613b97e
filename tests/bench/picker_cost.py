"""CPU that the picker and Envoy take for a request, beside the router's: what a request through a gateway costs.

    python tests/bench/picker_cost.py [--seconds 10] [--rates 10,100,200,500] [--words 200[,100000]] [--table FILE.md]

Ten trivial engines, the client, a real Envoy (`make envoy`) and the picker, or the router instead of both,
run as processes on loopback. The client sends so many requests a second, open loop, of 200 sessions; the policy is the
real one. CPU is the sum over all threads (/proc/PID/task/*/schedstat), those of the process for large bodies among
them, so that waiting and others' work do not count. Several lengths of prompts are measured at each rate in turn.
Latencies are of the whole request, and mean something only where cores are free.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.answering import ANSWER_BODY, AnsweringEngine
from promptgroup_router.contract.table import RoutingTable
from promptgroup_router.feed import table_file
from support.gateway import gateway
from support.ports import free_ports
from support.wire import table_of

ENGINES = 10
SESSIONS = 200


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


def rss(pid: int) -> float:
    """MiB that a process and those that it started hold."""
    pages = 0
    for each in family(pid):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


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


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def row(name: str, port: int, pids: dict[str, int], point: tuple[int, float], seconds: float) -> str:
    words, rate = point
    await load(port, min(rate, 50), 2, words)
    before = {each: cpu(pid) for each, pid in pids.items()}
    count, failed, took = await load(port, rate, seconds, words)
    used = {each: (cpu(pid) - before[each]) / count * 1e6 for each, pid in pids.items()}
    cuts = statistics.quantiles(took, n=20)
    own = next(iter(used))
    envoy = f"{used['envoy']:,.0f}" if "envoy" in used else ""
    line = (
        f"| {name} | {words:,} | {rate:g} | {used[own]:,.0f} | {used[own] * rate / 1e6:.2f} | {envoy} | "
        f"{cuts[9] * 1e3:.1f} | {cuts[18] * 1e3:.1f} | {failed} | {rss(pids[own]):.0f} |"
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
        "| Server | Tokens | Requests/s | µs of CPU each | Cores | Envoy's µs | p50 ms | p95 ms | Failed | MiB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    say("\n".join(lines))
    points = [(words, rate) for words in arguments.words for rate in arguments.rates]
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
                async with gateway(folder, port, addresses) as envoy:
                    pids = {"picker": picker, "envoy": envoy_of(folder)}
                    for point in points:
                        lines += [await row("picker behind Envoy", envoy.strict, pids, point, arguments.seconds)]
            ports = ["--port", str(router_port), "--admin-port", str(router_admin), "--workers", "1"]
            with running("promptgroup_router", *flags, *ports) as router:
                await listening(router_port)
                for point in points:
                    lines += [await row("router alone", router_port, {"router": router}, point, arguments.seconds)]
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
    parser.add_argument(
        "--rates", type=lambda text: [float(each) for each in text.split(",")], default=[10, 100, 200, 500]
    )
    parser.add_argument(
        "--words",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[200],
        help="lengths of prompts, in words of one token",
    )
    parser.add_argument("--table", type=Path, help="write the table to this file")
    uvloop.run(main(parser.parse_args()))
