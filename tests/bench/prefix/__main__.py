"""Prefixes that no group declares: this router beside its peers, on stand-in engines, over sockets, from a cold start.

    make bench-prefix [ARGS="--quick --only promptgroup --shape message"]

Each router in turn serves the same requests, so many at a time, over the same engine processes; caches are emptied in
between. Hits are by the engines' own counters.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import aiohttp
import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from bench.peers import routers
from bench.peers.fleet import Fleet, RunningEngines, wait_for, warm
from bench.peers.prose import words
from bench.peers.routers import Contestant, Place
from bench.prefix.contestants import CONTESTANTS, ENGINES, KV_TOKENS
from bench.prefix.shapes import CHAT, MODEL, SHAPES, Talk, talks
from promptgroup_local.cluster import process
from promptgroup_local.engine.scheduler import Cost
from promptgroup_local.load.counters import measure, scrape
from promptgroup_local.load.summary import quantile
from promptgroup_local.ports import free_ports

SEEDS = (21, 22, 23, 24, 25)
AT_A_TIME = 12
ANSWER = 16
"""Tokens of an answer."""
COST = Cost(prefill_rate=10_000.0, step=0.010)
REQUEST_SECONDS = 60.0
MEASURED = words(1000, 0, 0)
"""A prompt by which the prefill rate of engines is measured."""


@dataclass(frozen=True, slots=True)
class Run:
    """One router, one shape, one seed."""

    router: str
    shape: str
    seed: int
    requests: int
    failed: int
    hit: float
    imbalance: float
    mean: float
    p99: float


async def play(http: aiohttp.ClientSession, url: str, asked: Sequence[Talk]) -> tuple[list[float], int]:
    """Have all conversations, AT_A_TIME at once; return the seconds to first tokens, and the requests that failed."""
    waiting = iter(asked)
    seconds: list[float] = []
    failed = 0

    async def worker() -> None:
        nonlocal failed
        for talk in waiting:
            body = talk.body | {"model": MODEL, "max_tokens": ANSWER, "stream": True, "ignore_eos": True}
            for turn in range(1 + len(talk.later)):
                said, first = await _ask(http, url + talk.path, body)
                if said is None:
                    failed += 1
                    break
                seconds.append(first)
                if turn < len(talk.later):
                    answer = talk.welcome if talk.welcome and turn == 0 else said
                    messages = [*body["messages"], {"role": "assistant", "content": answer}]  # type: ignore[misc]
                    body = body | {"messages": [*messages, {"role": "user", "content": talk.later[turn]}]}

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_A_TIME):
            tasks.create_task(worker())
    return seconds, failed


async def _ask(http: aiohttp.ClientSession, url: str, body: dict[str, object]) -> tuple[str | None, float]:
    began, first, stream = time.monotonic(), 0.0, bytearray()
    try:
        async with http.post(url, data=orjson.dumps(body), headers={"content-type": "application/json"}) as response:
            async for data in response.content.iter_any():
                stream += data
                first = first or time.monotonic() - began
            if response.status != 200:
                return None, 0.0
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        return None, 0.0
    said = []
    for line in bytes(stream).splitlines():
        if line.startswith(b"data: {"):
            choices = orjson.loads(line[6:]).get("choices") or [{}]
            said.append((choices[0].get("delta") or {}).get("content") or "")
    return "".join(said), first


async def one(
    http: aiohttp.ClientSession, fleet: RunningEngines, bare: Place, contestant: Contestant, *, shape: str, seed: int
) -> Run:
    """Run a router, at the place but for its ports."""
    await fleet.reset(http)
    port, other = free_ports(2)
    folder, place = bare.folder, replace(bare, port=port, other_port=other)
    router = process.start(contestant.command(place), folder / "router.log")
    url = f"http://127.0.0.1:{port}"
    try:

        async def answers() -> bool:
            body = {"model": MODEL, "messages": [{"role": "user", "content": "ping"}], "max_tokens": 1}
            async with http.post(url + CHAT, json=body) as response:
                return response.status == 200

        await wait_for(answers, contestant.name)
        before = await scrape(fleet.urls)
        seconds, failed = await play(http, url, talks(shape, seed))
        counted = measure(before, await scrape(fleet.urls))
    finally:
        process.stop(router)
    times = sorted(seconds)
    mean, p99 = statistics.fmean(times) if times else 0.0, quantile(times, 0.99) or 0.0
    hit, imbalance = counted.hit_rate or 0.0, counted.imbalance or 0.0
    return Run(contestant.name, shape, seed, len(times), failed, hit, imbalance, mean, p99)


async def all_runs(
    chosen: Sequence[Contestant],
    shapes: Sequence[str],
    seeds: Sequence[int],
    console: Console,
    *,
    engines: Sequence[str],
    kv_tokens: int,
) -> list[Run]:
    """Every router with every shape and seed; the routers of one shape and seed follow each other.

    Args:
        chosen: routers.
        shapes: names of shapes.
        seeds: of the load.
        console: is told of each run.
        engines: base URLs of engines that run already; none for stand-ins of this bench.
        kv_tokens: KV cache of an engine.
    """
    runs = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fleet = RunningEngines(engines) if engines else Fleet(folder, ENGINES, kv_tokens, COST)
        timeout, connector = aiohttp.ClientTimeout(total=REQUEST_SECONDS), aiohttp.TCPConnector(limit=0)
        try:
            async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
                await fleet.ready(http)
                rate = await warm(http, [(url, MEASURED) for url in fleet.urls])
                place = Place(fleet.urls, 0, 0, folder, prompts=(), prefill_rate=rate, kv_tokens=kv_tokens)
                for shape in shapes:
                    for seed in seeds:
                        for contestant in chosen:
                            runs.append(await one(http, fleet, place, contestant, shape=shape, seed=seed))
                            _tell(console, runs[-1])
        finally:
            fleet.stop()
    return runs


def _tell(console: Console, run: Run) -> None:
    line = f"{run.shape}, seed {run.seed}, {run.router}: hit {run.hit:.1%}, TTFT {run.mean * 1000:.0f} ms"
    console.print(
        f"{line}, p99 {run.p99 * 1000:.0f}, max/mean {run.imbalance:.2f}, failed {run.failed}", highlight=False
    )


def shown(runs: Sequence[Run], shape: str) -> Table:
    """Means over seeds, and the range of the hits."""
    table = Table(title=SHAPES[shape].title)
    for heading in ("router", "hit", "of all seeds", "TTFT mean, ms", "p99", "max / mean", "failed"):
        table.add_column(heading, justify="left" if heading == "router" else "right")
    here = [run for run in runs if run.shape == shape]
    for name in dict.fromkeys(run.router for run in here):
        some = [run for run in here if run.router == name]
        hits = [run.hit for run in some]
        table.add_row(
            name,
            f"{statistics.fmean(hits):.1%}",
            f"{min(hits):.1%} to {max(hits):.1%}",
            *(f"{1000 * statistics.fmean(values):.0f}" for values in ([r.mean for r in some], [r.p99 for r in some])),
            f"{statistics.fmean(run.imbalance for run in some):.2f}",
            str(sum(run.failed for run in some)),
        )
    return table


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.prefix", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="one seed")
    add("--seeds", type=int, nargs="+", metavar="N", help="of the load (default: 21 to 25)")
    add("--shape", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="NAME", help=", ".join(SHAPES))
    add("--only", action="append", metavar="PART", help="only routers with this in their name; repeatable")
    add("--engines", nargs="+", default=(), metavar="URL", help="that run already, such as real vLLM, and serve `mix`")
    add("--kv-tokens", type=int, default=KV_TOKENS, metavar="N", help="KV cache of an engine (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write every run here")
    given = parser.parse_args()
    chosen = [each for each in CONTESTANTS if not given.only or any(part in each.name for part in given.only)]
    if not chosen:
        parser.error(f"argument --only: none of {'; '.join(each.name for each in CONTESTANTS)}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        routers.install(chosen)
        seeds = given.seeds or (SEEDS[:1] if given.quick else SEEDS)
        runs = uvloop.run(
            all_runs(chosen, given.shape, seeds, console, engines=given.engines, kv_tokens=given.kv_tokens)
        )
    except (TimeoutError, subprocess.CalledProcessError) as error:
        console.print(f"[red]error[/red]: {error}", highlight=False)
        return 1
    if given.json:
        given.json.write_text(json.dumps([asdict(run) for run in runs]))
    for shape in given.shape:
        console.print(shown(runs, shape))
    return 0


if __name__ == "__main__":
    sys.exit(main())
