"""Honest requests beside each kind of attack: how much longer they wait, as ratios in one run.

    make bench-attacks [ARGS="--quick" "--only header" "--markdown FILE"]

A router that reads PromptRoutes, and a picker behind a real Envoy, run as in a cluster; engines are stand-ins. In each
round honest clients are measured alone, then beside the attack, one attack after the other; a ratio is the median over
the rounds. Exits with 1 where a p99 is more than twice that without the attack, or an honest request failed, and with 2
where windows without any attack differ too much to tell.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from bench.answering import AnsweringEngine
from bench.attacks import hostile, report
from bench.attacks.api_server import HOSTILE
from bench.attacks.honest import Clients, Engine
from bench.attacks.report import Pair
from promptgroup_local.ports import free_ports
from promptgroup_router.feed import table_file
from support.gateway import gateway
from support.keys import KEY_A, KEY_B, write_keys
from support.wire import ask, chat, post, table_of

NOTHING, SLOTS = "nothing (what the machine's noise is)", "100,000 slots of another namespace"
ROUNDS, SECONDS = 5, 4.0
QUICK_ROUNDS, QUICK_SECONDS = 2, 3.0
SETTLE_SECONDS = 1.0
"""Time that an attack has before honest clients are measured beside it, and that a server has after it."""
START_SECONDS = 60.0
MOST_CONNECTIONS = 1000
WIDTH = 160


class Attacker:
    """A process that attacks from `go` to `stop`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def go(self) -> None:
        """Begin to attack."""
        await self._tell(b"go\n")

    async def stop(self) -> int:
        """End the attack; return how much was sent."""
        return await self._tell(b"stop\n")

    async def line(self) -> bytes:
        """Return what the process says next.

        Raises:
            RuntimeError: it has ended.
        """
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("an attacker ended by itself")
        return line

    async def _tell(self, command: bytes) -> int:
        self._process.stdin.write(command)
        await self._process.stdin.drain()
        return int(await self.line())


@contextlib.asynccontextmanager
async def process(*words: str, nice: int = 0, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python process that ends with the block."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *(("nice", "-n", str(nice)) if nice else ()),
        *(sys.executable, "-m", *words),
        stdin=pipe,
        stdout=pipe,
        stderr=None if nice else asyncio.subprocess.DEVNULL,  # servers tell what is wrong with what attackers send
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


@contextlib.asynccontextmanager
async def engine(kind: type[AnsweringEngine]) -> AsyncIterator[str]:
    """An engine in this process; yields its address."""
    server = await asyncio.get_running_loop().create_server(kind, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


class Bench:
    """The servers that are attacked, the attackers, and the honest clients of each."""

    def __init__(self) -> None:
        self.attackers: dict[str, Attacker | None] = {NOTHING: None}
        self.clients: dict[str, Clients] = {}

    async def start(self, stack: contextlib.AsyncExitStack, folder: Path, only: Sequence[str]) -> None:
        """Start what the attacks need whose names have one of these parts."""
        honest, other = [await stack.enter_async_context(engine(kind)) for kind in (Engine, AnsweringEngine)]
        write_keys(folder / "keys", team_a=KEY_A, team_b=KEY_B)
        (folder / "account").mkdir()
        cluster = await self._start_attacker(stack, "bench.attacks.api_server", str(folder / "account"), honest, other)
        api_server = (await cluster.line()).decode().strip()
        port, admin, picker_port, picker_health, picker_admin = free_ports(5)
        where = ["--host", "127.0.0.1", "--log-level", "ERROR"]
        await stack.enter_async_context(
            process(
                *("promptgroup_router", *where, "--port", str(port), "--admin-port", str(admin)),
                *("--namespaces", f"chat,{HOSTILE}", "--allow-networks", "127.0.0.0/8"),
                *("--service-account-dir", str(folder / "account"), "--secrets-dir", str(folder / "keys")),
                *("--max-connections", str(MOST_CONNECTIONS)),
                KUBERNETES_SERVICE_HOST="127.0.0.1",
                KUBERNETES_SERVICE_PORT=api_server,
            )
        )
        table_file.write(folder / "table.json", table_of(honest))
        await stack.enter_async_context(
            process(
                *("promptgroup_picker", *where, "--port", str(picker_port), "--admin-port", str(picker_admin)),
                *("--health-port", str(picker_health), "--table", str(folder / "table.json"), "--plaintext"),
            )
        )
        envoy = await stack.enter_async_context(gateway(folder, [picker_port], [honest]))
        request = post(chat(), f"Authorization: Bearer {KEY_A}")
        at_router, at_gateway = Clients(port, request), Clients(envoy.strict, request)
        for clients in (at_router, at_gateway):
            stack.callback(clients.leave)
        await _served(port, request)
        await _served(envoy.strict, request)
        self.clients[NOTHING] = at_router
        ports = dict.fromkeys(hostile.AT_ADMIN, admin) | dict.fromkeys(hostile.AT_PICKER, picker_port)
        for kind in hostile.KINDS:
            if any(part in kind for part in only):
                self.attackers[kind] = await self._start_attacker(
                    stack, "bench.attacks.hostile", kind, str(ports.get(kind, port))
                )
                self.clients[kind] = at_gateway if kind in hostile.AT_PICKER else at_router
        if any(part in SLOTS for part in only):
            self.attackers[SLOTS], self.clients[SLOTS] = cluster, at_router

    async def _start_attacker(self, stack: contextlib.AsyncExitStack, *words: str) -> Attacker:
        return Attacker(await stack.enter_async_context(process(*words, nice=19)))

    async def pair(self, attack: str, seconds: float) -> Pair:
        """Measure honest clients alone, and beside an attack."""
        clients, attacker = self.clients[attack], self.attackers[attack]
        alone = await clients.window(seconds)
        began, sent = time.monotonic(), 0
        if attacker is not None:
            await attacker.go()
        await asyncio.sleep(SETTLE_SECONDS)
        beside = await clients.window(seconds)
        if attacker is not None:
            sent = await attacker.stop()
        rate = sent / (time.monotonic() - began)
        await asyncio.sleep(SETTLE_SECONDS)
        return Pair(alone, beside, rate)


async def _served(port: int, request: bytes) -> None:
    """Wait until a server sends requests to an engine."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            with contextlib.suppress(OSError, EOFError):
                if (await ask(port, request)).status == 200:
                    return
            await asyncio.sleep(0.1)


async def measure(rounds: int, seconds: float, only: Sequence[str], console: Console) -> dict[str, list[Pair]]:
    """Return the pairs of windows of each attack."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench()
        await bench.start(stack, folder, only)
        found: dict[str, list[Pair]] = {attack: [] for attack in bench.attackers}
        for number in range(rounds):
            for attack, pairs in found.items():
                pairs.append(await bench.pair(attack, seconds))
                told = f"round {number + 1} of {rounds}: {attack}: p99 times {pairs[-1].ratio(0.99):.2f}"
                console.print(told, highlight=False)
        return found


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and shorter ones")
    parser.add_argument(
        "--only", action="append", metavar="PART", help="attacks whose names have this part (repeatable)"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds (default: {ROUNDS}, or {QUICK_ROUNDS})")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table for a page, too")
    given = parser.parse_args()
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if given.quick else (ROUNDS, SECONDS)
    rounds = given.rounds or rounds
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    rows = report.summarize(uvloop.run(measure(rounds, seconds, given.only or [""], console)))
    console.print(report.shown(rows, f"{rounds} rounds of {seconds:g} s alone and beside each attack"))
    if given.markdown:
        given.markdown.write_text(report.markdown(rows) + "\n")
    if not report.is_quiet(rows[0]):
        console.print("the machine is too busy: windows without any attack differ by more than ratios are to tell")
        return 2
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
