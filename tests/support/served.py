"""A router in front of stand-in engines, in a thread of its own, for clients that block."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import uvloop

from promptgroup_contract.access import Access
from promptgroup_contract.caller_rules import NO_RULES, CallerRules
from promptgroup_contract.table import RoutingTable
from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.scheduler import Cost
from promptgroup_local.engine.server import serving
from promptgroup_operator.engines.dialects.dialect import Dialect, arguments
from promptgroup_operator.engines.dialects.vllm import VLLM
from promptgroup_router.server import Router
from support.fakeengine import until
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import routing

ENGINES = os.environ.get("COMPAT_ENGINES", "")
"""Addresses of engines that run already, separated by commas, instead of stand-ins: real ones of the model `llama`."""
START_SECONDS = 90.0
"""Within which engines and router are up."""


@dataclass(frozen=True)
class Served:
    """What a test may look at."""

    url: str
    router: Router

    def in_flight(self) -> int:
        """Requests that the router has sent and that have not ended."""
        return sum(self.router.state.balancer.placed.loads.values())


@contextlib.asynccontextmanager
async def standing_in(
    count: int, knobs: Knobs, known: str = ENGINES, dialect: Dialect = VLLM
) -> AsyncIterator[list[str]]:
    """Addresses of stand-in engines that speak a dialect, or of those that are known and run already."""
    if known or ENGINES:
        yield (known or ENGINES).split(",")[:count]
        return
    flags = parse(arguments(dialect, "llama", 0, ("--host=127.0.0.1",)))
    async with contextlib.AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(flags, knobs, dev_mode=True)) for _ in range(count)]
        yield [url.removeprefix("http://") for url in urls]


@contextlib.contextmanager
def served(
    folder: Path,
    *,
    engines: int = 3,
    system: str = SYSTEM,
    tools: str = "",
    time_scale: float = 0.0,
    cost: Cost = Cost(),  # noqa: B008 - it is frozen
    access: Access | None = None,
    callers: CallerRules = NO_RULES,
    error_rate: float = 0.0,
) -> Iterator[Served]:
    """Serve a group `support` of the model `llama`, with this prompt, while the context lasts.

    Secrets with keys lie in `folder/secrets`. Engines fail a share of the requests, the `error_rate`.
    """
    ready: Future[Served] = Future()
    stop = threading.Event()

    async def run() -> None:
        async with standing_in(
            engines, Knobs(cost, time_scale=time_scale, startup=0.0, error_rate=error_rate)
        ) as addresses:
            slots = tuple(slot(index, address=address) for index, address in enumerate(addresses))
            made = revision(system, slots, tools=tools)
            known: RoutingTable = table(group("support", made, access=access, callers=callers))
            async with routing(folder, known, secrets_dir=folder / "secrets") as router:
                await until(lambda: router.state.keys_tried, "the keys")
                ready.set_result(Served(f"http://127.0.0.1:{router.port}", router))
                await asyncio.get_running_loop().run_in_executor(None, stop.wait)

    def main() -> None:
        try:
            uvloop.run(run())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=main, name="served")
    thread.start()
    try:
        yield ready.result(START_SECONDS)
    finally:
        stop.set()
        thread.join(START_SECONDS)
