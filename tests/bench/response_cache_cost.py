"""What the response cache costs a router, as ratios of CPU in one run.

    python tests/bench/response_cache_cost.py [REQUESTS]

The router is a process of its own, whose CPU is read from /proc/PID/stat; engine and client are this one. Each case
sends as many requests with a body of 6 KB, in turns, so that a machine that is busy for a while is so for all of them.
`store` is a Redis on this machine, if there is one, without memory in front.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import orjson
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from promptgroup_contract.table import Engine, ResponseCaching
from promptgroup_local.ports import free_ports
from promptgroup_router.feed import table_file
from support.fakeengine import until
from support.redisserver import BINARY, RedisServer
from support.tables import group, revision, slot, table
from support.wire import Client, post

SYSTEM = "You are the support assistant of Example Ltd. " * 120
CHOICE = {"index": 0, "message": {"content": "a word " * 40}, "finish_reason": "stop"}
BODY = orjson.dumps(
    {"id": "chatcmpl-1", "choices": [CHOICE], "usage": {"prompt_tokens": 1300, "completion_tokens": 80}}
)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
ROUNDS = 8
CONNECTIONS = 4
TICKS = os.sysconf("SC_CLK_TCK")


class TrivialEngine(asyncio.Protocol):
    """Answers any request."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport, self.received = transport, b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, blank, body = self.received.partition(b"\r\n\r\n")
        if blank and len(body) >= int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            self.received = b""
            self.transport.write(ANSWER)


def cpu(pid: int) -> float:
    """CPU seconds of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def tables(address: str) -> bytes:
    slots = (slot(0, address=address),)
    of = {"engine": Engine("e1")}
    caching = ResponseCaching(3600, 2**26)
    return table(
        group("plain", revision("Plain. " + SYSTEM, slots, **of)),
        group("keeps", revision("Keeps. " + SYSTEM, slots, **of), responses=caching),
    )


def request(name: str, question: str, temperature: float = 0) -> bytes:
    messages = [{"role": "system", "content": f"{name.title()}. {SYSTEM}"}, {"role": "user", "content": question}]
    return post({"model": "llama", "messages": messages, "temperature": temperature})


async def routing(folder: Path, address: str, *flags: str) -> tuple[asyncio.subprocess.Process, int]:
    table_file.write(folder / "table.json", tables(address))
    (port,) = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "promptgroup_router", "--table", str(folder / "table.json"), "--host", "127.0.0.1"),
        *("--port", str(port), "--admin-port", "0", "--log-level", "ERROR", *flags),
    )
    await until(lambda: listening(port), "the router", 30)
    return process, port


def listening(port: int) -> bool:
    return any(f":{port:04X} " in line and " 0A " in line for line in Path("/proc/net/tcp").read_text().splitlines())


async def send(port: int, requests: list[bytes]) -> None:
    waiting = iter(requests)

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = Client(reader, writer)
        for each in waiting:
            assert (await client.ask(each)).status == 200
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))


async def main(count: int) -> None:
    loop = asyncio.get_running_loop()
    engine = await loop.create_server(TrivialEngine, "127.0.0.1", 0)
    address = f"127.0.0.1:{engine.sockets[0].getsockname()[1]}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "key").write_bytes(b"k" * 32)
        routers = {"memory": await routing(folder, address)}
        store = RedisServer(folder) if BINARY is not None else None
        if store is not None:
            await store.start()
            of = ("--responses-store", f"redis://127.0.0.1:{store.port}", "--responses-memory-bytes", "0")
            (peer,) = free_ports(1)
            with_key = (
                "--peers",
                "127.0.0.1",
                "--peer-port",
                str(peer),
                "--peer-ports",
                "1",
                "--peer-key-file",
                str(folder / "key"),
            )
            routers["store"] = await routing(folder, address, *of, *with_key, "--responses-store-timeout", "1")
        cases = {
            "no cache": ("memory", lambda n: request("plain", f"question {n}")),
            "bypass": ("memory", lambda n: request("keeps", f"question {n}", 1)),
            "miss": ("memory", lambda n: request("keeps", f"question {n}")),
            "hit": ("memory", lambda _: request("keeps", "question")),
            "miss, store": ("store", lambda n: request("keeps", f"question {n}")),
            "hit, store": ("store", lambda _: request("keeps", "question")),
        }
        used = dict.fromkeys((case for case, (of, _) in cases.items() if of in routers), 0.0)
        number = 0
        for turn in range(ROUNDS + 1):
            for case in used:
                of, make = cases[case]
                process, port = routers[of]
                requests = [make(number + each) for each in range(count // ROUNDS)]
                number += count
                before = cpu(process.pid)
                await send(port, requests)
                if turn:  # the first one warms up
                    used[case] += cpu(process.pid) - before
        for case, seconds in used.items():
            shown = seconds / (count // ROUNDS * ROUNDS) * 1e6
            sys.stdout.write(f"{case:12} {shown:6.0f} us of CPU   {seconds / used['no cache']:5.2f}\n")
        for process, _ in routers.values():
            process.kill()
            await process.wait()
        if store is not None:
            await store.kill()
    engine.close()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000))
