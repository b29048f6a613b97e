"""Runs inside the cluster, in a pod: `engine KIND` answers as no engine should, `client URL` asks as no client should.

Its own program, with the standard library and nothing of the project. An engine of any kind is healthy to its kubelet.
"""

import asyncio
import itertools
import os
import sys

DRIP_SECONDS = 0.5
HUGE = 32 * 1024 * 1024
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n"


async def drip(writer: asyncio.StreamWriter) -> None:
    """A byte at a time, each soon enough for a limit on single reads."""
    writer.write(HEAD + b"content-length: 100000\r\n\r\n")
    while True:
        writer.write(b"v")
        await writer.drain()
        await asyncio.sleep(DRIP_SECONDS)


async def endless(writer: asyncio.StreamWriter) -> None:
    """A body without an end."""
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"4000\r\n" + b"# nothing\n" * 1638 + b"#\n#\n" + b"\r\n")
        await writer.drain()


async def huge(writer: asyncio.StreamWriter) -> None:
    """A page of 32 MiB, well formed."""
    line = b'vllm:num_requests_running{engine="0",model_name="demo-model"} 1.0\n'
    writer.write(HEAD + f"content-length: {HUGE // len(line) * len(line)}\r\n\r\n".encode())
    for _ in range(HUGE // len(line) // 1000):
        writer.write(line * 1000)
        await writer.drain()


async def backtrack(writer: asyncio.StreamWriter) -> None:
    """Labels that make a backtracking parser take the square of their length."""
    line = b"vllm:cache_config_info{" + b"a" * 900_000 + b"} 1\n"
    writer.write(HEAD + f"content-length: {len(line)}\r\n\r\n".encode() + line)
    await writer.drain()


ENGINES = {"drip": drip, "endless": endless, "huge": huge, "backtrack": backtrack}


async def serve(kind: str) -> None:
    """Answer every path but the health check's in the way of the kind."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"/health" in head.split(b"\r\n", 1)[0]:
                writer.write(HEAD + b"content-length: 0\r\n\r\n")
                await writer.drain()
            else:
                await ENGINES[kind](writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", 8000)
    await server.serve_forever()


def bodies() -> list[bytes]:
    """Bodies that are small to send and dear to read."""
    start = b'{"model":"demo-model","messages":[{"role":"user","content":"hi"}],"tools":['
    return [
        start + b",".join([b"1e308"] * 1_000_000) + b"]}",
        b"[" * 1_000_000 + b"]" * 1_000_000,
        start + b",".join([b"[]"] * 2_000_000) + b"]}",
        b'{"model":"demo-model","messages":' + b'{"a":' * 500_000 + b"1" + b"}" * 500_000 + b"}",
    ]


async def attack(host: str, port: int) -> None:
    """Send them for ever, two at a time, whole and in chunks of two bytes, and hold connections that say nothing."""
    turns = itertools.cycle(bodies())

    async def send() -> None:
        while True:
            body = next(turns)
            try:
                reader, writer = await asyncio.open_connection(host, port)
                head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\n"
                writer.write(head + f"content-length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
                sys.stdout.write((await reader.readline()).decode())
                sys.stdout.flush()
                writer.close()
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(head + b"transfer-encoding: chunked\r\n\r\n")
                for _ in range(2000):
                    writer.write(b"2\r\n[[\r\n" * 100)
                    await writer.drain()
                writer.close()
            except (ConnectionError, TimeoutError, OSError) as error:
                sys.stdout.write(f"{type(error).__name__}\n")
            await asyncio.sleep(1)

    idle = [await asyncio.open_connection(host, port) for _ in range(200)]
    await asyncio.gather(*(send() for _ in range(2)))
    del idle


if __name__ == "__main__":
    role, target = sys.argv[1:3]
    if role == "engine":
        asyncio.run(serve(target))
    else:
        asyncio.run(attack(target, int(os.environ.get("PORT", "80"))))
