"""What large and hostile bodies cost the small requests beside them.

    python tests/bench/router_bounds.py --seconds 10 --rounds 2

Small requests are sent at a steady rate, alone and beside others in turns, so that whatever else the machine does meets
both. Of each phase it prints the small requests' latencies, and how long the router's event loop was held, in CPU time:
the most that it used between two ticks of a millisecond, which no other process can lengthen. The router is a process
of its own, and so are the engine and the clients of large bodies. Where HAProxy is installed, its turns come between
the router's: it reads no body, so that what it adds is what the machine adds.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import orjson
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.router.contestants import Place, haproxy
from bench.router_overhead import free_ports
from promptgroup_router.feed import table_file
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import Client, post

ROUTER = "promptgroup"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"

HELD = """
import asyncio, sys, time
from promptgroup_router import __main__ as program, server
async def watch(path):
    with open(path, "w", buffering=1) as out:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            held = time.thread_time() - before
            if held > 0.0005: print(time.monotonic(), held, file=out)
started = server.Router.start
async def start(self):
    self.watch = asyncio.ensure_future(watch(PATH))
    await started(self)
server.Router.start = start
PATH = sys.argv.pop(1)
sys.exit(program.main())
"""
"""The router's program, beside a watch that writes when the loop was held, and for how long, to a file."""


class Engine(asyncio.Protocol):
    """Takes requests of any size and answers at once."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.head, self.left = b"", -1

    def data_received(self, data: bytes) -> None:
        if self.left < 0:
            self.head += data
            head, blank, body = self.head.partition(b"\r\n\r\n")
            if not blank:
                return
            self.left = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) - len(body)
        else:
            self.left -= len(data)
        if not self.left:
            self.head, self.left = b"", -1
            self.transport.write(ANSWER)


def engine(listener: socket.socket) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Engine, sock=listener)
        await server.serve_forever()

    uvloop.run(serve())


def text(size: int) -> str:
    choose, words = (
        random.Random(1),
        ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "then", "some", "more", "words"],
    )
    return " ".join(choose.choice(words) for _ in range(size // 4))[:size]


def chat_body(*said: str, **fields: object) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": each} for n, each in enumerate(said)]
    system = [] if fields else [{"role": "system", "content": SYSTEM}]
    return orjson.dumps({"model": "llama", "messages": [*system, *messages]} | fields)


def large_bodies() -> list[bytes]:
    """A million tokens: one text, a conversation of a thousand turns, by name, in another script, as token ids."""
    long = text(4_000_000)
    ids = [random.Random(2).randrange(1000) for _ in range(1_000_000)]
    return [
        chat_body(long),
        chat_body(*(long[at : at + 4000] for at in range(0, 4_000_000, 4000))),
        chat_body(long, model="support"),
        chat_body("模型服务" * 333_333),
        orjson.dumps({"model": "llama", "prompt": ids}),
    ]


def hostile_bodies() -> list[bytes]:
    """Bodies that are small to send and dear to read."""
    start = b'{"model":"llama","messages":[{"role":"user","content":['
    tools = b'{"model":"llama","messages":[{"role":"user","content":"hi"}],"tools":['
    return [
        start + b"{}," * 21_000 + b"{}]}]}",
        start + b"{}," * 5_000 + b"{}]}]}",
        start + b"1," * 199_000 + b"1]}]}",
        tools + b"1e308," * 49_000 + b"1]}",
        tools + b"[]," * 2_000_000 + b"[]]}",
        b"[" * 1_000_000 + b"]" * 1_000_000,
        b'{"model":"llama","prompt":[' + b"1," * 1_000_000 + b"1]}",
        b'{"model":"llama","prompt":["",' + b'"",' * 190_000 + b'""]}',
    ]


KINDS: dict[str, Callable[[], list[bytes]]] = {"large": large_bodies, "hostile": hostile_bodies}


def send_others(kind: str, port: int, rate: float, on: Event, told: "multiprocessing.Queue[dict[int, int]]") -> None:
    """Send the bodies of a kind in turn at a rate, while it is on."""
    bodies = [
        post(body, path="/v1/completions" if b'"prompt"' in body[:30] else "/v1/chat/completions")
        for body in KINDS[kind]()
    ]

    told.put({})

    async def run() -> None:
        number, statuses, running = 0, dict[int, int](), set[asyncio.Task[None]]()
        was_on = False

        async def one(body: bytes) -> None:
            status = 0
            with contextlib.suppress(EOFError, ConnectionError):
                client = Client(*await asyncio.open_connection("127.0.0.1", port))
                try:
                    status = (await client.ask(body)).status
                finally:
                    client.leave()
            statuses[status] = statuses.get(status, 0) + 1

        while True:
            await asyncio.sleep(1 / rate)
            if on.is_set():
                was_on = True
                task = asyncio.ensure_future(one(bodies[number % len(bodies)]))
                running.add(task)
                task.add_done_callback(running.discard)
                number += 1
            elif was_on and not running:
                told.put(dict(statuses))
                statuses.clear()
                was_on = False

    uvloop.run(run())


async def small(port: int, seconds: float, rate: float) -> tuple[list[float], int]:
    """Send small requests at a rate. Return latencies from when each was due, and the number that failed."""
    body = post(chat_body("word " * 400))
    kept: list[Client] = []
    latencies: list[float] = []
    failed = 0

    async def one(due: float) -> None:
        nonlocal failed
        client = kept.pop() if kept else Client(*await asyncio.open_connection("127.0.0.1", port))
        answer = await client.ask(body)
        latencies.append(time.monotonic() - due)
        failed += answer.status != 200
        kept.append(client)

    began, number = time.monotonic(), 0
    async with asyncio.TaskGroup() as requests:
        while (now := time.monotonic() - began) < seconds:
            while number < now * rate:
                requests.create_task(one(began + number / rate))
                number += 1
            await asyncio.sleep(0.001)
    for client in kept:
        client.leave()
    return latencies, failed


def resident(pid: int) -> int:
    [peak] = [line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in line]
    return int(peak) * 1024


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * len(values))] * 1000 if values else 0.0


def read_holds(file: Path, began: float, ended: float) -> list[float]:
    lines = [line.split() for line in file.read_text().splitlines()]
    return [float(line[1]) for line in lines if len(line) == 2 and began <= float(line[0]) <= ended]


async def compare(kind: str, given: argparse.Namespace, targets: dict[str, int], holds: Path, pid: int) -> None:
    started: dict[str, tuple[Event, multiprocessing.Queue[dict[int, int]]]] = {}
    clients: list[multiprocessing.Process] = []
    for target, port in targets.items():
        on, told = started[target] = multiprocessing.Event(), multiprocessing.Queue()
        client = multiprocessing.Process(target=send_others, args=(kind, port, given.others, on, told), daemon=True)
        client.start()
        clients.append(client)
        await asyncio.to_thread(told.get)  # it has made its bodies
    found = {(target, phase): list[list[float]]() for target in targets for phase in ("alone", "beside")}
    held: dict[str, list[float]] = {"alone": [], "beside": []}
    failures, statuses = Counter[str](), dict[str, dict[int, int]]()
    for _ in range(given.rounds):
        for (target, phase), measured in found.items():
            on, told = started[target]
            if phase == "beside":
                on.set()
            began = time.monotonic()
            latencies, failed = await small(targets[target], given.seconds, given.rate)
            ended = time.monotonic()
            on.clear()
            if phase == "beside":
                statuses[target] = await asyncio.to_thread(told.get)
            measured.append(latencies)
            failures[target] += failed
            if target == ROUTER:
                held[phase] += read_holds(holds, began, ended)
    for each in clients:
        each.terminate()
    before = 0.0
    for (target, phase), rounds in found.items():
        p50, p99 = (statistics.median(percentile(each, share) for each in rounds) for share in (0.5, 0.99))
        line = f"{kind:8} {target:11} {phase:7} p50 {p50:6.2f} ms  p99 {p99:6.2f} ms"
        if phase == "beside":
            line += f" ({p99 / before:.2f} times)"
        before = p99
        if target == ROUTER:
            longest = sorted(held[phase], reverse=True)
            line += (
                f"  loop held for at most {1000 * (longest or [0.0])[0]:5.1f} ms, "
                f"{1000 * sum(longest) / given.seconds / given.rounds:5.1f} ms/s above half a ms"
            )
        sys.stdout.write(line + "\n")
    for target in targets:
        sys.stdout.write(
            f"{kind:8} {target:11} small requests that failed: {failures[target]}; answers to the others: "
            f"{statuses[target]}\n"
        )
    sys.stdout.write(f"the router's most memory {resident(pid) / 2**20:.0f} MiB\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", type=float, default=500.0, help="small requests a second")
    parser.add_argument("--others", type=float, default=10.0, help="large or hostile requests a second")
    parser.add_argument("--kind", choices=tuple(KINDS), action="append")
    parser.add_argument(
        "--python", default=sys.executable, help="the Python that runs the router (default: %(default)s)"
    )
    given = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
    engines = multiprocessing.Process(target=engine, args=(listener,), daemon=True)
    engines.start()
    port, admin, *other_ports = free_ports(4)
    with tempfile.TemporaryDirectory() as folder:
        file, holds = Path(folder, "table.json"), Path(folder, "holds")
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        slots = tuple(slot(number, address=address) for number in range(3))
        table_file.write(file, table(group("support", revision(slots=slots))))
        flags = ["--table", str(file), "--host", "127.0.0.1", "--port", str(port), "--admin-port", str(admin)]
        flags += ["--log-level", "ERROR"]
        router = subprocess.Popen([given.python, "-c", HELD, str(holds), *flags], env=os.environ)
        targets, peer = {ROUTER: port}, None
        if (other := haproxy()) is not None:
            place = Place(listener.getsockname()[1:], other_ports[0], other_ports[1], Path(folder))
            targets[other.name] = place.port
            peer = subprocess.Popen(other.command(place))
        try:
            time.sleep(2)
            for kind in given.kind or KINDS:
                uvloop.run(compare(kind, given, targets, holds, router.pid))
        finally:
            if peer is not None:
                peer.terminate()
                peer.wait()
            router.terminate()
            router.wait()
            engines.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
