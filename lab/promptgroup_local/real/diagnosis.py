"""`make demo-vllm-diagnosis VLLM=DIR`, `make demo-sglang-diagnosis SGLANG=DIR`: two real engines with small KV caches.

The same engines, one after the other: nobody asks, and the warm prefix is looked after, also when their caches were
reset; a load that fits; clients that put the time on top of the declared prompt; more sessions than fit, for which
alone more replicas are asked for. Each time a condition of the group must say so, from the engines' own counters. The
exit status is 1 when one does not.
"""

import asyncio
import itertools
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import uvloop
from rich.console import Console
from rich.table import Table

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster import binaries
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import DEADLINE, Kubectl, KubectlError, wait_for
from promptgroup_local.load.client import Outcome, Target, drive
from promptgroup_local.load.counters import Measured, measure, scrape
from promptgroup_local.load.prompts import system_prompt
from promptgroup_local.load.workload import Conversation, conversations, sessions, tasks
from promptgroup_local.real.engine import MODEL, REPLICAS, START_SECONDS, TASK, RealEngine, chosen
from promptgroup_local.real.sglang import SGLANG
from promptgroup_local.real.vllm import VLLM

GROUP = "real-diagnosis"
TOUCH_SECONDS = 20
"""Refresh interval of a warm prefix, instead of five minutes."""
LEAST_SECONDS = 90.0
"""Shortest time of a load: it then fills the window of the operator."""
LONGEST_SECONDS = 300.0
"""Longest time of a load: the condition at that time is the result."""
LOOK_SECONDS = 1.0
"""Polling interval of all waits."""
SEEDS = 100
"""Seeds of one kind of clients: ten sessions each."""
DECLARED = len(system_prompt(TASK, 1).encode())


@dataclass(frozen=True, slots=True)
class Clients:
    """Sessions in a closed loop."""

    sessions: int
    """Concurrent sessions; the next one begins when one has ended."""
    turns: int
    pause: float
    """Seconds between an answer and the next turn."""
    on_top: Callable[[], str] = str


_ASKED = re.compile(r"the load asks for (\d+)")


def _clock() -> str:
    return f"It is {datetime.now(UTC).isoformat()}.\n"


@dataclass(frozen=True, slots=True)
class Step:
    """An action on the engines, and the condition of the group that must report it."""

    name: str
    condition: str
    status: str
    reason: str
    says: str
    """Part of the message."""
    clients: Sequence[Clients] = ()
    found: float = 0.0
    """Least hit rate by the engines' counters, 0 to 1."""
    more: bool = False
    """True if the operator must ask for more replicas, False if it must not."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a step."""

    step: Step
    outcomes: Sequence[Outcome]
    measured: Measured
    said: Mapping[str, str]
    """The condition."""
    size: Mapping[str, str]
    """ScalingActive, which reports the size that the group would have without the bound."""

    @property
    def kept(self) -> bool:
        """True if the result is the expected one."""
        # the condition's reason stays for a stabilization window, the number in its message is current
        search = _ASKED.search(self.size.get("message", ""))
        more = search is not None and int(search[1]) > REPLICAS
        result = (self.measured.hit_rate or 0.0) >= self.step.found
        return result and more == self.step.more and _as_promised(self.step, self.said)


ALL = f"{REPLICAS} of {REPLICAS} replicas"
TOUCHED = Step("prefixes touched", "PrefixWarm", "True", "PrefixCached", ALL, found=0.95)
RESET = Step("caches reset", "PrefixWarm", "True", "PrefixEvicted", "(the cache was reset)", found=0.9)
LOADS = (
    Step("4 sessions", "CacheEffective", "True", "Healthy", "of prompt tokens were found", [Clients(4, 6, 1.0)]),
    Step(
        "2 of 4 drift",
        "CacheEffective",
        "False",
        "PromptDrift",
        f"differ from the declared prompt from byte 0 of {DECLARED} on",
        [Clients(2, 6, 1.0), Clients(2, 6, 1.0, _clock)],
    ),
    Step(
        "32 sessions",
        "CacheEffective",
        "False",
        "Thrashing",
        "the KV cache is too small",
        [Clients(32, 12, 10.0)],
        more=True,
    ),
)


class Diagnosis:
    """The steps, on a group that runs."""

    def __init__(self, kubectl: Kubectl, engine: RealEngine) -> None:
        self._kubectl = kubectl
        self._reset = engine.reset
        self._router = lab.router_url(kubectl)
        self._engines = [lab.engine_url(pod) for pod in lab.engine_pods(kubectl, GROUP)]

    async def touched(self) -> Row:
        """Send no requests until the operator has sent another one to each engine."""
        before = await scrape(self._engines)
        async with asyncio.timeout(DEADLINE):
            while True:
                measured = measure(before, await scrape(self._engines))
                if all(measured.requests.values()):
                    return Row(TOUCHED, (), measured, *await self._conditions(TOUCHED))
                await asyncio.sleep(LOOK_SECONDS)

    async def reset(self) -> Row:
        """Reset both caches; once the operator has reported it, send one request to each engine."""
        async with asyncio.timeout(DEADLINE):
            for url in self._engines:
                await self._emptied(url)
        await asyncio.to_thread(wait_for, self._all_told, f"{RESET.reason} of every replica")
        settled = await self._settled(RESET, 0.0, DEADLINE)
        before, drawn = await scrape(self._engines), itertools.islice(_endless(0, turns=1), REPLICAS)
        outcomes = await drive(drawn, Target(self._engines, MODEL), concurrency=1)
        return Row(RESET, outcomes, measure(before, await scrape(self._engines)), *settled)

    async def _emptied(self, url: str) -> None:
        """Reset one cache; an engine refuses it while a request of the operator runs, vLLM with status 200."""
        async with aiohttp.ClientSession() as http:
            while True:
                async with http.post(f"{url}{self._reset}") as response:
                    if response.ok and b"false" not in await response.read():
                        return
                await asyncio.sleep(LOOK_SECONDS)

    async def load(self, step: Step, seed: int) -> Row:
        """Drive a load until the condition is as expected, or the time is up."""
        outcomes: list[Outcome] = []
        before = await scrape(self._engines)
        async with asyncio.TaskGroup() as group:
            loads = [
                group.create_task(
                    drive(
                        _endless(seed + SEEDS * number, clients.turns),
                        Target([self._router], MODEL, on_top=clients.on_top),
                        concurrency=clients.sessions,
                        pause=clients.pause,
                        record=outcomes.append,
                    )
                )
                for number, clients in enumerate(step.clients)
            ]
            settled = await self._settled(step, LEAST_SECONDS, LONGEST_SECONDS)
            measured = measure(before, await scrape(self._engines))
            for item in loads:
                item.cancel()
        return Row(step, outcomes, measured, *settled)

    async def _settled(self, step: Step, least: float, longest: float) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The conditions once they are as promised, after `least` seconds; as they are after `longest`."""
        began = time.monotonic()
        while True:
            conditions, elapsed = await self._conditions(step), time.monotonic() - began
            if elapsed > longest or (elapsed > least and _as_promised(step, conditions[0])):
                return conditions
            await asyncio.sleep(LOOK_SECONDS)

    async def _conditions(self, step: Step) -> tuple[Mapping[str, str], Mapping[str, str]]:
        thread = await asyncio.to_thread(self._kubectl.condition, GROUP, step.condition)
        return thread, await asyncio.to_thread(self._kubectl.condition, GROUP, "ScalingActive")

    def _all_told(self) -> bool | None:
        conditions = [pod["status"]["conditions"] for pod in lab.engine_pods(self._kubectl, GROUP)]
        gates = [item for condition in conditions for item in condition if item["type"] == names.CONDITION_PREFIX_WARM]
        return all(gate["reason"] == RESET.reason for gate in gates) or None


def _as_promised(step: Step, value: Mapping[str, str]) -> bool:
    result = value.get("status"), value.get("reason")
    return result == (step.status, step.reason) and step.says in value.get("message", "")


def _endless(seed: int, turns: int) -> Iterator[Conversation]:
    """Sessions of one task, none twice."""
    for item in itertools.count(seed):
        yield from conversations(sessions(tasks([TASK]), 10, item, turns=turns))


async def _steps(diagnosis: Diagnosis, console: Console) -> list[Row]:
    rows = []
    for step in (diagnosis.touched(), diagnosis.reset()):
        rows.append(await step)
        _tell(console, rows[-1])
    for number, load in enumerate(LOADS, 1):
        rows.append(await diagnosis.load(load, number * SEEDS * 10))
        _tell(console, rows[-1])
    return rows


def _tell(console: Console, row: Row) -> None:
    text = f"{_words(row.step.condition, row.said)}: {row.said.get('message')}"
    size = f"{_words('ScalingActive', row.size)}: {row.size.get('message')}"
    failed = Counter(outcome.error for outcome in row.outcomes if outcome.failed)
    why = "".join(f"\n  {count} of {len(row.outcomes)} requests failed: {error}" for error, count in failed.items())
    console.print(f"{row.step.name}\n  {text}\n  {size}{why}", highlight=False, soft_wrap=True)


def _words(kind: str, value: Mapping[str, str]) -> str:
    return f"{kind}={value.get('status')} {value.get('reason')}"


def report(rows: Sequence[Row], engine: str) -> Table:
    """One line a step."""
    table = Table(title=f"Two {engine} engines with small caches: what the group's conditions say")
    for heading in ("step", "requests", "failed", "hit rate", "said", "as it must"):
        table.add_column(heading, justify="right" if heading in ("requests", "failed", "hit rate") else "left")
    table.caption = f"hit rate: by {engine}'s counters; drift: the time on top of the declared prompt"
    for row in rows:
        rate, failed = row.measured.hit_rate, sum(outcome.failed for outcome in row.outcomes)
        table.add_row(
            row.step.name,
            str(len(row.outcomes)),
            str(failed),
            "-" if rate is None else f"{rate:.1%}",
            str(row.said.get("reason")),
            "yes" if row.kept else "NO",
        )
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    engine, folder = chosen((VLLM, SGLANG), "promptgroup_local.real.diagnosis", __doc__, argv)
    console = Console()
    try:
        with (
            tempfile.TemporaryDirectory() as state,
            LocalCluster(Path(state), images=engine.images(folder), say=console.print) as cluster,
        ):
            kubectl = cluster.kubectl(GROUP)
            lab.install_operator(kubectl)
            lab.set_operator(kubectl, refresh_seconds=TOUCH_SECONDS)
            kubectl.make_namespace(GROUP)
            lab.install_router(kubectl)
            console.print(f"starting {REPLICAS} {engine.name} engines")
            sizing = {"minReplicas": REPLICAS, "maxReplicas": REPLICAS}
            kubectl.apply(engine.group(GROUP, engine.small, sizing=sizing))
            kubectl.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}", START_SECONDS)
            wait_for(lambda: kubectl.get("promptroute", GROUP), "the route")
            rows = uvloop.run(_steps(Diagnosis(kubectl, engine), console))
    except (binaries.MissingPrograms, KubectlError, TimeoutError) as error:
        console.print(f"[red]error[/red]: {error}", highlight=False)
        return 1
    console.print(report(rows, engine.name))
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
