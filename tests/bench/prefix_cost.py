"""CPU that the recognition of shared prefixes takes of a request, and its share of what reading a large body takes.

    python tests/bench/prefix_cost.py        `make bench-prefix-cost` runs it interpreted and compiled

Times are of this thread's CPU, and a low quantile of short batches, so that they stand for an undisturbed processor. A
large body is read as the router has it read, by another process (`reading.BodyReader`): the CPU of both counts, from
the bytes that a client sends to the digest of the body.
"""

import argparse
import asyncio
import gc
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import CHAT_PATH, ApiKind, parse
from promptgroup_router.apis.structure import LARGE_BYTES
from promptgroup_router.base import build
from promptgroup_router.http11.reader import HttpRequest, RequestReader
from promptgroup_router.prefixes.cached_prefixes import CachedPrefixes
from promptgroup_router.prefixes.prompt_marks import marks_of
from promptgroup_router.reading.body_reader import BodyReader
from promptgroup_router.rings.ids import PrefixKey

BATCH_BYTES = 262_144
"""Bodies that are timed together have about so many bytes."""
LOW = 0.1
"""The quantile of the batches that is reported."""
TEXT = "".join(f"Line {number} of a text that several requests share. " for number in range(10_000))
REPLICAS = 8
READ = 24
"""Large bodies that are read in one sample."""


class Shape(NamedTuple):
    """What a body is made of."""

    name: str
    size: int
    """Bytes of its text, about."""
    messages: int
    """Messages behind a system text of a quarter of it."""


SHAPES = (
    Shape("8 KB, one question", 8192, 1),
    Shape("8 KB, 7 messages", 8192, 7),
    Shape("8 KB, 21 messages", 8192, 21),
    Shape("100 KB, 21 messages", 100_000, 21),
    Shape("400 KB, one question", 400_000, 1),
    Shape("400 KB, 61 messages", 400_000, 61),
)


class PrefixCost(NamedTuple):
    """Microseconds of CPU for one body."""

    number: int
    """Its marks."""
    parse: float
    """To parse the body."""
    marks: float
    """To cut it into marks."""
    told: float
    """To tell these to the router, where another process cuts them."""
    known: float
    """To look the longest prefix up in 8 replicas, of which one has it, and to record its use there."""


def body_of(shape: Shape) -> bytes:
    """Return a chat of this shape."""
    each = (shape.size - shape.size // 4) // shape.messages
    messages = [{"role": "system", "content": TEXT[: shape.size // 4]}]
    for number in range(shape.messages):
        role = "assistant" if number % 2 else "user"
        messages.append({"role": role, "content": TEXT[number * 50 : number * 50 + each]})
    return orjson.dumps({"model": "llama", "messages": messages})


def low(work: Callable[[], object], size: int, batches: int) -> float:
    """Return the microseconds of a call, as a low quantile of batches."""
    calls = max(1, BATCH_BYTES // size)
    samples = []
    for _ in range(batches):
        began = time.thread_time_ns()
        for _ in range(calls):
            work()
        samples.append((time.thread_time_ns() - began) / calls / 1000)
    return sorted(samples)[int(batches * LOW)]


def measure(shape: Shape, batches: int = 200) -> PrefixCost:
    """Time what a body of this shape takes."""
    body = body_of(shape)
    ask = parse(ApiKind.CHAT, body)
    marks = marks_of(ask)
    replicas = [CachedPrefixes() for _ in range(REPLICAS)]

    names = [PrefixKey(mark) for mark in marks.hashes]

    def known() -> None:
        for replica in replicas:
            replica.longest(names)
        replicas[0].use_all(names, marks.ends, 0)

    gc.collect()
    return PrefixCost(
        len(marks.ends),
        low(lambda: parse(ApiKind.CHAT, body), shape.size, batches),
        low(lambda: marks_of(ask), shape.size, batches),
        low(lambda: orjson.loads(orjson.dumps(tuple(marks))), shape.size, batches),
        low(known, shape.size, batches),
    )


class _Receiver(asyncio.Protocol):
    """Reads requests from a connection, as a router does."""

    def __init__(self) -> None:
        self._reader = RequestReader(1 << 21)
        self.connected = asyncio.Event()
        self.requests: asyncio.Queue[HttpRequest] = asyncio.Queue()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream has no other
        self.transport = transport
        self.connected.set()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if (request := self._reader.next()) is not None:
            self.requests.put_nowait(request)


SENDER = """
import socket, sys
request = sys.stdin.buffer.read()
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    while connection.recv(1):
        connection.sendall(request)
"""
"""A client that sends its request once for each byte that it gets."""


async def reading(shape: Shape, samples: int = 12) -> float:
    """Return the microseconds of CPU that a router and its process for large bodies take to read a body."""
    body, reader, endpoint, receiver = body_of(shape), BodyReader(), ENDPOINTS[CHAT_PATH], _Receiver()
    server = await asyncio.get_running_loop().create_server(lambda: receiver, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SENDER, str(port), stdin=asyncio.subprocess.PIPE
    )
    assert client.stdin is not None
    client.stdin.write(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (CHAT_PATH, len(body)) + body)
    client.stdin.close()
    await reader.read(endpoint, body, 0)  # the process starts
    await receiver.connected.wait()

    def cpu() -> float:
        own = resource.getrusage(resource.RUSAGE_SELF)
        on_core, _, _ = Path(f"/proc/{reader.pid}/schedstat").read_text(encoding="utf-8").split()
        return (own.ru_utime + own.ru_stime) * 1e6 + int(on_core) / 1000

    found = []
    for _ in range(samples):
        began = cpu()
        for _ in range(READ):
            receiver.transport.write(b"!")
            request = await receiver.requests.get()
            await reader.read(endpoint, request.body, 0)
        found.append((cpu() - began) / READ)
    receiver.transport.close()
    server.close()
    await client.wait()
    await reader.stop()
    return sorted(found)[int(samples * LOW)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, default=400, help="batches that are timed (default: %(default)s)")
    given = parser.parse_args()
    how = "compiled" if build.compiled() else "interpreted"
    shown = Table(title=f"Shared prefixes of a request, µs of CPU: Python {platform.python_version()}, router {how}")
    for column in ("chat", "marks", "parse", "cut", "told", "looked up", "read by a process", "cut and told of that"):
        shown.add_column(column, justify="left" if column == "chat" else "right")
    for shape in SHAPES:
        cost = measure(shape, given.batches)
        whole = uvloop.run(reading(shape)) if shape.size > LARGE_BYTES else None
        large = (f"{whole:.0f}", f"{(cost.marks + cost.told) / whole:.1%}") if whole is not None else ("-", "-")
        times = (f"{value:.1f}" for value in (cost.parse, cost.marks, cost.told, cost.known))
        shown.add_row(shape.name, str(cost.number), *times, *large)
    Console(width=120).print(shown)


if __name__ == "__main__":
    main()
