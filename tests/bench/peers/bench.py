"""Runs routers one after the other: the same engines with empty caches, the same load, and what was seen of each."""

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.peers import mix, prose
from bench.peers.drive import NAME, play
from bench.peers.fleet import Fleet, wait_for, warm
from bench.peers.report import Run
from bench.peers.routers import Contestant, Place, own_engines
from bench.peers.simulated import simulate
from bench.peers.usage import Punctuality, cpu_seconds, machine
from promptgroup_local.cluster import process
from promptgroup_local.load.counters import Measured, measure, scrape
from promptgroup_local.load.summary import quantile
from promptgroup_local.ports import free_ports

LOG_BYTES = 2000
"""Of a router that does not come up: the end of what it wrote."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Requests a second, and seconds: before requests are measured, and that are measured."""

    rate: float
    warm_up: float
    length: float

    @property
    def until(self) -> float:
        """Seconds after which no turn begins."""
        return self.warm_up + self.length


@dataclass(frozen=True, slots=True)
class Seen:
    """What engines and machine say of the measured seconds."""

    counted: Measured
    cpu: tuple[float, float, float]
    """Seconds of the router, the engines, the client."""
    busy: float
    late: float


class Bench:
    """Runs, in a folder for logs."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan

    async def all(self, chosen: Sequence[Contestant], seeds: Sequence[int], tell: Callable[[Run], None]) -> list[Run]:
        """Every router with every seed, every other seed in the opposite order; `tell` hears of each at once."""
        fleet = Fleet(self._folder)
        runs = []
        try:
            async with aiohttp.ClientSession() as http:
                await fleet.ready(http)
                for turn, seed in enumerate(seeds):
                    for contestant in chosen if turn % 2 == 0 else reversed(chosen):
                        runs.append(await self._one(http, fleet, contestant, seed))
                        tell(runs[-1])
        finally:
            fleet.stop()
        return runs

    async def _one(self, http: aiohttp.ClientSession, fleet: Fleet, contestant: Contestant, seed: int) -> Run:
        plan = self._plan
        sessions = mix.sessions(plan.rate, plan.until, seed)
        tier1 = {each.group: (prose.system(each, seed), each.tier1) for each in sessions if each.group >= 0}
        prompts = [tier1[group] for group in range(mix.GROUPS)]
        await fleet.reset(http)
        rate = 0
        if contestant.warmed:
            own = own_engines(fleet.urls)
            rate = await warm(http, [(url, prompts[group][0]) for group, urls in enumerate(own) for url in urls])
        port, other = free_ports(2)
        place = Place(fleet.urls, port, other, self._folder, prompts, rate)
        log = self._folder / "router.log"
        log.unlink(missing_ok=True)
        router = process.start(contestant.command(place), log)
        url = f"http://127.0.0.1:{port}"
        try:
            await self._up(http, url, contestant, log)
            async with asyncio.TaskGroup() as tasks:
                playing = tasks.create_task(play(sessions, url, seed, header=contestant.header, until=plan.until))
                seen = await self._watch(fleet, router.pid)
        finally:
            process.stop(router)
        measured = [each for each in playing.result() if each.began >= plan.warm_up]
        simulated = None
        if contestant.simulated is not None:
            simulated = simulate(contestant.simulated(), plan.rate, seed, plan.warm_up, plan.until)
        return Run(
            router=contestant.name,
            seed=seed,
            requests=len(measured),
            failed=dict(Counter(each.error for each in measured if each.error)),
            hit=seen.counted.hit_rate or 0.0,
            imbalance=seen.counted.imbalance or 0.0,
            ttfts=sorted(each.ttft for each in measured if not each.error),
            router_cpu=seen.cpu[0] / max(1, len(measured)),
            engines_cpu=seen.cpu[1] / plan.length,
            client_cpu=seen.cpu[2] / plan.length,
            machine=seen.busy,
            late=seen.late,
            simulated_hit=simulated.hit if simulated else None,
            simulated_mean=simulated.mean if simulated else None,
            simulated_p99=simulated.p99 if simulated else None,
        )

    async def _watch(self, fleet: Fleet, router: int) -> Seen:
        """Wait until the load is over; what was counted in the seconds that are measured."""
        began = time.monotonic()
        await asyncio.sleep(self._plan.warm_up)
        pids = ([router], [each.pid for each in fleet.processes], [os.getpid()])
        punctuality = Punctuality()
        beats = asyncio.ensure_future(punctuality.run())
        before, cpus, ticks = await scrape(fleet.urls), [cpu_seconds(each) for each in pids], machine()
        await asyncio.sleep(began + self._plan.until - time.monotonic())
        counted = measure(before, await scrape(fleet.urls))
        beats.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beats
        took = [cpu_seconds(each) - cpu for each, cpu in zip(pids, cpus, strict=True)]
        late = quantile(sorted(punctuality.late), 0.99) or 0.0
        return Seen(counted, (took[0], took[1], took[2]), machine().busy_since(ticks), late)

    @staticmethod
    async def _up(http: aiohttp.ClientSession, url: str, contestant: Contestant, log: Path) -> None:
        """Wait until a request gets through: routers listen before they know their engines."""
        body = {"model": NAME, "messages": [{"role": "user", "content": "ping"}], "max_tokens": 1}

        async def answers() -> bool:
            async with http.post(f"{url}/v1/chat/completions", json=body) as response:
                return response.status == 200

        try:
            await wait_for(answers, contestant.name)
        except TimeoutError as error:
            wrote = await asyncio.to_thread(log.read_text)
            raise TimeoutError(f"{error}; it wrote: {wrote[-LOG_BYTES:]}") from None
