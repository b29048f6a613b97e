"""CPU that the router takes for a request and for a streamed event.

    python tests/bench/router_overhead.py [--seconds 6]

A trivial engine, the router and a client run as three processes on loopback. CPU is read from /proc/PID/stat of the
router before and after, so that waiting and the other two do not count. Requests carry a 6 KB chat body that matches
a group by content; streams get an event a time, paced so that events do not arrive together.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.answering import ANSWER_BODY, AnsweringEngine
from promptgroup_contract.fingerprint import fingerprint
from promptgroup_local.ports import free_ports

SYSTEM = "You are the support assistant of Example Ltd. " * 120
EVENT = b"data: " + json.dumps({"id": "chatcmpl-1", "choices": [{"delta": {"content": "word "}}]}).encode() + b"\n\n"
STREAMS = 32
PACE_SECONDS = 0.004
CONNECTIONS = 16
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Engine(AnsweringEngine):
    """Answers with events as long as the client listens when the body asks for a stream."""

    def answer(self, body: bytes) -> None:
        if b'"stream":true' in body:
            self.transport.write(HEAD)
            self.event()
        else:
            super().answer(body)

    def event(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(CHUNK)
            asyncio.get_running_loop().call_later(PACE_SECONDS, self.event)


class Client(asyncio.Protocol):
    """Sends one request, or the next when an answer is whole; counts."""

    def __init__(self, request: bytes, *, streams: bool) -> None:
        self.request = request
        self.streams = streams
        self.count = 0
        self.received = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if self.streams:
            self.count += data.count(b"data: ")
            return
        self.received += data
        if self.received.endswith(ANSWER_BODY):
            self.received = b""
            self.count += 1
            self.transport.write(self.request)


def request(*, stream: bool) -> bytes:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "How do I return a parcel? " * 8}]
    body = json.dumps({"model": "tiny", "messages": messages, "stream": stream}, separators=(",", ":")).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: router.example\r\nContent-Type: application/json\r\n"
        "Accept: application/json\r\nAuthorization: Bearer sk-0123456789abcdef\r\nUser-Agent: openai-python/2.0\r\n"
        f"X-Session-Id: session-1\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(pid: int, port: int, seconds: float, *, streams: bool) -> tuple[int, float]:
    """Units done, and CPU seconds that the process took, over a time after a short warm-up."""
    loop = asyncio.get_running_loop()
    wanted = STREAMS if streams else CONNECTIONS
    clients = [Client(request(stream=streams), streams=streams) for _ in range(wanted)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)
    await asyncio.sleep(0.5)
    before, cpu = sum(client.count for client in clients), cpu_seconds(pid)
    await asyncio.sleep(seconds)
    done, used = sum(client.count for client in clients) - before, cpu_seconds(pid) - cpu
    for client in clients:
        client.transport.abort()
    return done, used


async def serve_engine(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port)
    await server.serve_forever()


def wait_for(check: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            check()
        except OSError:
            time.sleep(0.02)
        else:
            return
    sys.exit(f"{what} did not come up within 10 s")


def table(port: int) -> dict[str, object]:
    slots = [{"slot": i, "state": "Ready", "address": f"127.0.0.1:{port}", "incarnation": "a"} for i in range(8)]
    revision = {
        "fingerprint": fingerprint(SYSTEM),
        "systemBytes": len(SYSTEM),
        "weight": 100,
        "prompt": {"system": SYSTEM},
        "slots": slots,
    }
    group = {"namespace": "bench", "name": "support", "format": 1, "model": "tiny", "revisions": [revision]}
    return {"format": 1, "version": "bench", "groups": [group]}


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU that the router takes for a request and for a streamed event")
    parser.add_argument("--seconds", type=float, default=6.0, help="time of each measurement (default: %(default)s)")
    parser.add_argument("--engine", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        uvloop.run(serve_engine(given.engine))
        return
    engine_port, port, admin_port = free_ports(3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.json")
        path.write_text(json.dumps(table(engine_port)))
        engine = subprocess.Popen([sys.executable, __file__, "--engine", str(engine_port)])
        flags = [f"--table={path}", "--host=127.0.0.1", f"--port={port}", f"--admin-port={admin_port}"]
        router = subprocess.Popen([sys.executable, "-m", "promptgroup_router", *flags, "--log-level", "WARNING"])
        try:
            for each, what in ((engine_port, "the engine"), (port, "the router")):
                wait_for(lambda each=each: socket.create_connection(("127.0.0.1", each)).close(), what)
            results = [
                (what, *uvloop.run(measure(router.pid, port, given.seconds, streams=streams)))
                for what, streams in (("request", False), ("event", True))
            ]
        finally:
            for process in (router, engine):
                process.terminate()
                process.wait(10)
    lines = [f"{'unit':10}{'done':>10}{'per second':>12}{'CPU µs each':>14}"]
    for what, done, used in results:
        lines.append(f"{what:10}{done:>10}{done / given.seconds:>12.0f}{used / max(done, 1) * 1e6:>14.1f}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
