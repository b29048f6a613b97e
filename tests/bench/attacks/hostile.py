"""Hostile clients, in processes of their own that yield to all others (nice 19), at rates that are bounded.

    python -m bench.attacks.hostile KIND PORT        what it does until it is told to stop: `go` and `stop` on its stdin

Each comes from 127.0.0.2, which is another network than that of honest clients. It reads what it is answered and
looks at nothing of it. The rates are what one machine can do without effort, so that a server is measured by what it
lets such a client cost, and not the client by what it takes of the same cores.
"""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import orjson
import uvloop

from support.http2floods import BEGINNING, FLOODS
from support.keys import KEY_B
from support.wire import chat, post

ADDRESS = "127.0.0.2"
SILENT, SILENT_A_SECOND = 1500, 500
"""Connections that send no byte, and how many are opened in a second."""
BURST, BURSTS_A_SECOND = 400, 0.5
HEADS, HEADS_A_SECOND = 20, 40
"""Connections that send heads of 64 KB, and how many are sent in a second."""
BODY_BYTES, BODIES_A_SECOND = 8_000_000, 1
EXPLAINED_A_SECOND = 2
FRAME_CONNECTIONS, FRAME_BYTES, FRAME_BYTES_A_SECOND = 8, 16_384, 2**20

BROKEN = (OSError, RuntimeError)
"""Errors of a connection that the server has closed; of uvloop the latter."""


class Sent:
    """What this process has sent since it was told to go."""

    count = 0


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(ADDRESS, 0))


@contextlib.asynccontextmanager
async def sending(port: int) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """A connection that is opened anew where the server has closed it, whose answers are read and dropped."""
    open_now: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = []

    async def drop(reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(65536):
                pass

    def close() -> None:
        while open_now:
            reading, writer = open_now.pop()
            reading.cancel()
            writer.transport.abort()

    async def send(data: bytes) -> None:
        if open_now and open_now[0][0].done():
            close()
        with contextlib.suppress(*BROKEN):
            if not open_now:
                reader, writer = await connect(port)
                open_now.append((asyncio.ensure_future(drop(reader)), writer))
            open_now[0][1].write(data)
            await open_now[0][1].drain()
            Sent.count += 1

    try:
        yield send
    finally:
        close()


async def at_rate(port: int, connections: int, rate: float, parts: Callable[[int], Iterator[bytes]]) -> None:
    """Send parts over some connections, each its own, and so many a second in all."""

    async def one(place: int) -> None:
        loop = asyncio.get_running_loop()
        async with sending(port) as send:
            due = loop.time() + place / rate
            for part in parts(place):
                await asyncio.sleep(max(0.0, due - loop.time()))
                due = max(due + connections / rate, loop.time())
                await send(part)

    async with asyncio.TaskGroup() as tasks:
        for place in range(connections):
            tasks.create_task(one(place))


async def silent_connections(port: int) -> None:
    held: list[asyncio.StreamWriter] = []
    try:
        while True:
            with contextlib.suppress(OSError):
                held.append((await connect(port))[1])
                Sent.count += 1
            if len(held) > SILENT:
                held.pop(0).transport.abort()
            await asyncio.sleep(1 / SILENT_A_SECOND)
    finally:
        for writer in held:
            writer.transport.abort()


async def bursts(port: int) -> None:
    """All at once, again and again, by a caller whose limit lets few of them pass."""
    request = post(chat(), f"Authorization: Bearer {KEY_B}")
    async with contextlib.AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(sending(port)) for _ in range(BURST)]
        while True:
            await asyncio.gather(*(send(request) for send in senders))
            await asyncio.sleep(1 / BURSTS_A_SECOND)


async def header_floods(port: int) -> None:
    """Heads of the size that a head may have: of the shortest fields there are, and of as many as there may be."""
    begin, end = b"POST /v1/chat/completions HTTP/1.1\r\nHost: router\r\n", b"Content-Length: 2\r\n\r\n{}"
    fields = b"a:\r\n" * 16_000, b"".join(b"x-%d: %b\r\n" % (number, b"x" * 50) for number in range(990))
    heads = [begin + each + end for each in fields]
    await at_rate(port, HEADS, HEADS_A_SECOND, lambda _: itertools.cycle(heads))


async def large_bodies(port: int) -> None:
    """Chats of many messages, which cost a router the most for their bytes."""
    turns = [{"role": "user", "content": "word " * 40}, {"role": "assistant", "content": "word " * 40}]
    messages = turns * (BODY_BYTES // len(orjson.dumps(turns)))
    body = post({"model": "other", "messages": messages}, f"Authorization: Bearer {KEY_B}")
    await at_rate(port, 2, BODIES_A_SECOND, lambda _: itertools.repeat(body))


async def explained(port: int) -> None:
    """Documents for `/explain`: of much text, of as many messages as are explained, of too many, and far too large."""
    prose, most, many, large = (
        [{"role": "user", "content": "word " * words}] * messages
        for words, messages in ((360_000, 1), (80, 4000), (1, 40_000), (80, 30_000))
    )
    bodies = (
        orjson.dumps({"model": "other", "messages": messages}).decode() for messages in (prose, most, many, large)
    )
    documents = [post({"body": body}, path="/explain") for body in bodies]
    await at_rate(port, 2, EXPLAINED_A_SECOND, lambda _: itertools.cycle(documents))


def _frames(kind: str) -> Iterator[bytes]:
    """Yield the frames of a kind in parts, first what begins a connection."""
    part = bytearray(BEGINNING)
    for frame in FLOODS[kind]():
        part += frame
        if len(part) >= FRAME_BYTES:
            yield bytes(part)
            part.clear()


async def _flood(port: int, kinds: list[str]) -> None:
    async def one(kind: str) -> None:
        loop = asyncio.get_running_loop()
        while True:  # a picker that closes the connection gets another one
            reader, writer = await connect(port)
            dropped = asyncio.ensure_future(_dropped(reader))
            try:
                for part in _frames(kind):
                    due = loop.time() + len(part) * len(kinds) / FRAME_BYTES_A_SECOND
                    writer.write(part)
                    await writer.drain()
                    Sent.count += 1
                    if dropped.done():
                        break
                    await asyncio.sleep(max(0.0, due - loop.time()))
            except BROKEN:
                await asyncio.sleep(0.1)
            finally:
                dropped.cancel()
                writer.transport.abort()

    async with asyncio.TaskGroup() as tasks:
        for kind in kinds:
            tasks.create_task(one(kind))


async def _dropped(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(65536):
            pass


async def table_references(port: int) -> None:
    await _flood(port, ["references into the table"] * FRAME_CONNECTIONS)


async def new_connections(port: int) -> None:
    """Each brings what a connection is read of without being paid for, and makes way for the next one."""

    async def one(place: int) -> None:
        loop, size = asyncio.get_running_loop(), FRAME_BYTES * 4
        due = loop.time() + place * size / FRAME_BYTES_A_SECOND
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due = max(due + FRAME_CONNECTIONS * size / FRAME_BYTES_A_SECOND, loop.time())
            with contextlib.suppress(*BROKEN):
                _, writer = await connect(port)
                writer.writelines(itertools.islice(_frames("references into the table"), size // FRAME_BYTES))
                await asyncio.sleep(0.1)
                writer.transport.abort()
                Sent.count += 1

    async with asyncio.TaskGroup() as tasks:
        for place in range(FRAME_CONNECTIONS):
            tasks.create_task(one(place))


async def frames_of_all_kinds(port: int) -> None:
    await _flood(port, list(FLOODS))


KINDS: dict[str, Callable[[int], Awaitable[None]]] = {
    "connections that send no byte": silent_connections,
    "bursts over the limit": bursts,
    "header floods": header_floods,
    "large bodies": large_bodies,
    "/explain with large documents": explained,
    "HTTP/2: references into the table": table_references,
    "HTTP/2: new connections": new_connections,
    "HTTP/2: frames of all kinds": frames_of_all_kinds,
}
AT_ADMIN = ("/explain with large documents",)
AT_PICKER = tuple(kind for kind in KINDS if kind.startswith("HTTP/2"))


async def obey(attack: Callable[[], Awaitable[None]]) -> None:
    """Attack from each `go` on stdin to the next `stop`; say how much was sent, once nothing is left open."""
    loop, commands = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    running: asyncio.Future[None] | None = None
    while command := await commands.readline():
        if command == b"go\n":
            Sent.count = 0
            running = asyncio.ensure_future(attack())
        elif running is not None:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        sys.stdout.write(f"{Sent.count}\n")
        sys.stdout.flush()


def main() -> None:
    kind, port = sys.argv[1], int(sys.argv[2])
    uvloop.run(obey(lambda: KINDS[kind](port)))


if __name__ == "__main__":
    main()
