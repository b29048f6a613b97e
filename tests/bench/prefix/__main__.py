"""Prefixes that no group declares: this router beside its peers, on stand-in engines, over sockets, from a cold start.

    make bench-prefix [ARGS="--quick --only promptgroup --shape message"]

Each router in turn serves the same requests, so many at a time, over the same engine processes; caches are emptied in
between. Hits are by the engines' own counters.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import aiohttp
import uvloop
from rich.console import Console
from rich.table import Table

from bench.peers import dynamo, routers
from bench.peers.dynamo_adapter import BYTES_A_TOKEN
from bench.peers.fleet import Fleet, RunningEngines, wait_for, warm
from bench.peers.prose import words
from bench.peers.routers import Contestant, Place
from bench.prefix.clients import AT_A_TIME, Played, play
from bench.prefix.contestants import CONTESTANTS, ENGINES, KV_TOKENS, ON_MOCKERS
from bench.prefix.forms import FORMS
from bench.prefix.mockers import Mockers
from bench.prefix.shapes import CHAT, MODEL, SHAPES, talks
from promptgroup_local.cluster import process
from promptgroup_local.engine.scheduler import Cost
from promptgroup_local.load.counters import measure, scrape
from promptgroup_local.load.summary import quantile
from promptgroup_local.ports import free_ports

SEEDS = (21, 22, 23, 24, 25)
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
    """Tokens of the busiest engine over the mean; 0 where engines do not tell them."""
    mean: float
    p99: float


@asynccontextmanager
async def _router(http: aiohttp.ClientSession, bare: Place, contestant: Contestant) -> AsyncIterator[str]:
    """Run a router, at the place but for its ports, and yield its base URL."""
    port, other = free_ports(2)
    place = replace(bare, port=port, other_port=other)
    running = process.start(contestant.command(place), bare.folder / "router.log")
    url = f"http://127.0.0.1:{port}"
    try:
        await _answers(http, url, contestant)
        yield url
    finally:
        process.stop(running)


async def _answers(http: aiohttp.ClientSession, url: str, contestant: Contestant) -> None:
    async def asked() -> bool:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "ping"}], "max_tokens": 1}
        async with http.post(url + CHAT, json=body) as response:
            return response.status == 200

    await wait_for(asked, contestant.name)


@dataclass(frozen=True, slots=True)
class Load:
    """What clients ask in a run."""

    shape: str
    """Name of a shape."""
    seed: int
    clients: int
    """Conversations at once."""
    form: str
    """Name of a form."""

    async def play(self, http: aiohttp.ClientSession, url: str, **options: object) -> Played:
        """Ask a router, with further fields in each request."""
        asked, form = talks(self.shape, self.seed), FORMS[self.form]
        return await play(http, url, asked, options, clients=self.clients, form=form)


async def one(
    http: aiohttp.ClientSession, fleet: RunningEngines, place: Place, contestant: Contestant, load: Load
) -> Run:
    """Run a router over engines whose counters tell the hits."""
    await fleet.reset(http)
    async with _router(http, place, contestant) as url:
        before = await scrape(fleet.urls)
        played = await load.play(http, url)
        counted = measure(before, await scrape(fleet.urls))
    run = _run(contestant, load, played, counted.hit_rate or 0.0)
    return replace(run, imbalance=counted.imbalance or 0.0)


async def on_mockers(
    http: aiohttp.ClientSession, bare: Place, contestant: Contestant, load: Load, *, count: int
) -> Run:
    """Run a router over Dynamo's mock engines. The usage in their answers tells the hits, but not the engine.

    Dynamo's own router is in front of the engines themselves, and the others are in front of a frontend for each.

    Args:
        http: client.
        bare: the place, without engines.
        contestant: the router.
        load: what clients ask.
        count: of mock engines.
    """
    together = contestant.name == dynamo.NAMED
    with tempfile.TemporaryDirectory(dir=bare.folder) as name:
        mockers = Mockers(Path(name), count, bare.kv_tokens, together=together)
        try:
            await mockers.ready(http)
            usage = {"include_usage": True}
            if together:
                await _answers(http, mockers.urls[0], contestant)
                played = await load.play(http, mockers.urls[0], stream_options=usage)
            else:
                place = await _measured(http, mockers.urls, bare.folder, BYTES_A_TOKEN * bare.kv_tokens)
                async with _router(http, place, contestant) as url:
                    played = await load.play(http, url, stream_options=usage)
        finally:
            mockers.stop()
    return _run(contestant, load, played, played.cached / played.prompt if played.prompt else 0.0)


async def _measured(http: aiohttp.ClientSession, engines: Sequence[str], folder: Path, kv_tokens: int) -> Place:
    """Return a place without ports over engines whose prefill rate is measured."""
    rate = await warm(http, [(url, MEASURED) for url in engines])
    return Place(engines, 0, 0, folder, prompts=(), prefill_rate=rate, kv_tokens=kv_tokens)


@asynccontextmanager
async def _rig(
    http: aiohttp.ClientSession, folder: Path, engines: Sequence[str], *, mockers: int, kv_tokens: int
) -> AsyncIterator[Callable[..., Awaitable[Run]]]:
    """Have the engines of all runs, and yield `one` or `on_mockers`, which still lack the router and the load."""
    if mockers:
        place = Place((), 0, 0, folder, prompts=(), prefill_rate=0, kv_tokens=kv_tokens)
        yield partial(on_mockers, http, place, count=mockers)
        return
    fleet = RunningEngines(engines) if engines else Fleet(folder, ENGINES, kv_tokens, COST)
    try:
        await fleet.ready(http)
        yield partial(one, http, fleet, await _measured(http, fleet.urls, folder, kv_tokens))
    finally:
        fleet.stop()


def _run(contestant: Contestant, load: Load, played: Played, hit: float) -> Run:
    times = sorted(played.seconds)
    mean, p99 = statistics.fmean(times) if times else 0.0, quantile(times, 0.99) or 0.0
    return Run(contestant.name, load.shape, load.seed, len(times), played.failed, hit, 0.0, mean, p99)


async def all_runs(
    chosen: Sequence[Contestant],
    shapes: Sequence[str],
    seeds: Sequence[int],
    console: Console,
    *,
    engines: Sequence[str],
    kv_tokens: int,
    mockers: int,
    clients: int,
    form: str,
) -> list[Run]:
    """Every router with every shape and seed; the routers of one shape and seed follow each other.

    Args:
        chosen: routers.
        shapes: names of shapes.
        seeds: of the load.
        console: is told of each run.
        engines: base URLs of engines that run already; none for stand-ins of this bench.
        kv_tokens: KV cache of an engine.
        mockers: Dynamo's mock engines in place of stand-ins; 0 for none.
        clients: conversations at once.
        form: name of the form of requests.
    """
    runs = []
    timeout, connector = aiohttp.ClientTimeout(total=REQUEST_SECONDS), aiohttp.TCPConnector(limit=0)
    with tempfile.TemporaryDirectory() as name:
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
            _rig(http, Path(name), engines, mockers=mockers, kv_tokens=kv_tokens) as run,
        ):
            for shape in shapes:
                for seed in seeds:
                    for contestant in chosen:
                        runs.append(await run(contestant, Load(shape, seed, clients, form)))
                        _tell(console, runs[-1])
    return runs


def _tell(console: Console, run: Run) -> None:
    line = f"{run.shape}, seed {run.seed}, {run.router}: hit {run.hit:.1%}, TTFT {run.mean * 1000:.0f} ms"
    console.print(
        f"{line}, p99 {run.p99 * 1000:.0f}, max/mean {_imbalance(run.imbalance)}, failed {run.failed}", highlight=False
    )


def _imbalance(figure: float) -> str:
    return f"{figure:.2f}" if figure else "-"


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
            _imbalance(statistics.fmean(run.imbalance for run in some)),
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
    other = parser.add_mutually_exclusive_group()
    running = "engines that run already, such as real vLLM, and serve `mix`"
    other.add_argument("--engines", nargs="+", default=(), metavar="URL", help=running)
    mocked = "N mock engines of Dynamo in place of the stand-ins; the usage in answers tells the hits"
    other.add_argument("--mockers", type=int, default=0, metavar="N", help=mocked)
    add("--kv-tokens", type=int, default=KV_TOKENS, metavar="N", help="KV cache of an engine (default: %(default)s)")
    add("--clients", type=int, default=AT_A_TIME, metavar="N", help="conversations at a time (default: %(default)s)")
    formed = "; ".join(f"{name}: {form.title}" for name, form in FORMS.items())
    add("--form", choices=FORMS, default="streamed", metavar="NAME", help=f"{formed} (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write every run here")
    given = parser.parse_args()
    if given.mockers and given.form != "streamed":
        parser.error("argument --form: with --mockers the usage in streamed answers tells the hits")
    offered = ON_MOCKERS if given.mockers else CONTESTANTS
    chosen = [each for each in offered if not given.only or any(part in each.name for part in given.only)]
    if not chosen:
        parser.error(f"argument --only: none of {'; '.join(each.name for each in offered)}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        routers.install(chosen)
        if given.mockers:
            dynamo.install(routers.environment(dynamo.PACKAGE, dynamo.VERSION))
        seeds = given.seeds or (SEEDS[:1] if given.quick else SEEDS)
        runs = uvloop.run(
            all_runs(
                chosen,
                given.shape,
                seeds,
                console,
                engines=given.engines,
                kv_tokens=given.kv_tokens,
                clients=given.clients,
                form=given.form,
                mockers=given.mockers,
            )
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
