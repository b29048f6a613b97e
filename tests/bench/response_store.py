"""What a question to the store of answers costs a router, and how long it takes.

    python tests/bench/response_store.py [QUESTIONS]

Needs a redis-server or valkey-server on the PATH. CPU is of this process, which is a router's part alone; times are
from the question to its answer. On a busy machine only the CPU and the limit mean anything.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.flights.answer_store import AnswerName
from promptgroup_router.flights.redis_store import RedisStore
from support.asks import answer
from support.redisserver import RedisServer, line_to, store_at

PAUSE = 0.002
LIMIT = 0.02


async def questions(store: RedisStore, count: int, numbers: int) -> tuple[list[float], list[float], int]:
    """Seconds and CPU seconds that each took, and how many were not sent."""
    took, cpu, skipped = [], [], 0
    for each in range(count):
        kept = answer(each % numbers)
        done = asyncio.Event()
        began, used = time.perf_counter(), time.process_time()
        if store.get(AnswerName(kept.group, kept.revision, kept.key), lambda _, done=done: done.set()) is None:
            skipped += 1
        else:
            await done.wait()
        took.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
        await asyncio.sleep(PAUSE)
    return took, cpu, skipped


def told(name: str, took: list[float], cpu: list[float], skipped: int) -> None:
    took.sort()
    cpu.sort()
    spent = [cpu[int(len(cpu) * part)] * 1e6 for part in (0.5, 0.99)]
    shown = [1000 * took[int(len(took) * part)] for part in (0.5, 0.99)] + [1000 * took[-1]]
    late = sum(each > LIMIT for each in took)
    sys.stdout.write(
        f"{name:24} CPU p50 {spent[0]:4.0f}, p99 {spent[1]:5.0f} us   p50 {shown[0]:5.2f}, p99 {shown[1]:5.2f} ms   "
        f"longest {shown[2]:6.2f} ms   waited {late:4}   not sent {skipped:5}\n"
    )


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        await server.start()
        async with line_to(server.port) as line:
            for name, port in (
                ("healthy", server.port),
                ("1 s late", line.port),
                ("cut", line.port),
                ("killed", server.port),
            ):
                store = RedisStore(store_at(port, timeout=LIMIT), Metrics())
                store.rekey(b"k" * 32)
                line.delay, line.cut = 0.0, False
                for number in range(100):
                    store.put(answer(number, 4000, lifetime=3600.0))
                while store._writes:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await questions(store, 50, 100)
                line.delay, line.cut = float(name == "1 s late"), name == "cut"
                if name == "killed":
                    await server.kill()
                told(name, *(await questions(store, count, 100)))
                if name == "healthy":
                    told("healthy, not there", *(await questions(store, count, 10**9)))
                await store.close()
        await server.kill()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
