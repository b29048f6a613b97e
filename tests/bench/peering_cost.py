"""What it costs routers to tell each other what they do: CPU and traffic of each, by the number of routers.

python tests/bench/peering_cost.py
"""

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.base.settings import parse
from promptgroup_router.peers.transport import GossipTransport
from promptgroup_router.policy.gossip import LoadReport, PlacementReport, PrefixReport

ROUTERS = (1, 2, 4, 8)
NOTES_A_SECOND = 50
REPLICAS = 8
"""Busy ones: each router tells its load on each of them in every tick."""
START_SECONDS = 15.0
"""All have found each other by then, or something is wrong."""
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Driver:
    """A policy that always has the same to tell."""

    def __init__(self) -> None:
        self.heard = 0
        self._told = time.monotonic()
        self._session = secrets.randbits(60)

    def on_urgent(self, listener: Callable[[], None]) -> None:
        """Nothing is urgent."""

    def export(self, now: float) -> tuple[list[PlacementReport], list[LoadReport]]:
        count = int((now - self._told) * NOTES_A_SECOND)
        self._told += count / NOTES_A_SECOND
        self._session += count
        placements = [PlacementReport(self._session - each, 7, 11, 5, 3000) for each in range(count)]
        return placements, [LoadReport(member, 8, 24_000, 0.3, 0.05, int(now)) for member in range(REPLICAS)]

    def merge(
        self, sender: int, placements: Sequence[PlacementReport], loads: Sequence[LoadReport], now: float
    ) -> None:
        self.heard += len(placements) + len(loads)

    def restore(self, placements: Sequence[PlacementReport], now: float) -> None:
        self.heard += len(placements)

    def export_prefixes(self) -> list[PrefixReport]:
        return []

    def merge_prefixes(self, prefixes: Sequence[PrefixReport]) -> None:
        pass

    def expire_loads(self, now: float) -> None:
        pass

    def drop_peer(self, sender: int) -> None:
        pass

    def snapshot(self) -> Iterator[PlacementReport]:
        return iter(())


async def take_part(flags: Sequence[str]) -> None:
    """One router's exchange, in a process of its own; for each line of input a line with its counters."""
    settings = parse(["--table", "none", "--host", "127.0.0.1", *flags])
    assert settings.peer_key_file is not None
    metrics = Metrics()
    peering = GossipTransport(settings, settings.peer_key_file, Driver(), metrics, time.monotonic)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running = asyncio.ensure_future(peering.run())
    while await reader.readline():
        counted = {
            "peers": metrics.peers.values.get((), 0),
            "datagrams": metrics.peer_datagrams.values.get(("sent",), 0),
            "bytes": metrics.peer_bytes.values.get(("sent",), 0),
            "received": metrics.peer_datagrams.values.get(("received",), 0),
            "dropped": sum(metrics.peer_dropped.values.values()),
        }
        sys.stdout.write(json.dumps(counted) + "\n")
        sys.stdout.flush()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    peering.close()


class Process:
    """A router's exchange as others see it."""

    def __init__(self, flags: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--part", *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def counted(self) -> dict[str, float]:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return {**json.loads(self._process.stdout.readline()), "cpu": self._cpu()}

    def _cpu(self) -> float:
        """Seconds, user and system (proc(5), fields 14 and 15)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND

    def stop(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def measure(count: int, seconds: float, flags: Sequence[str]) -> dict[str, float]:
    """Means over the routers, per second."""
    processes = [Process(flags) for _ in range(count)]
    try:
        deadline = time.monotonic() + START_SECONDS
        while any(process.counted()["peers"] < count - 1 for process in processes):
            if time.monotonic() > deadline:
                sys.exit(f"{count} routers did not find each other within {START_SECONDS:.0f} s")
            time.sleep(0.1)
        before = [process.counted() for process in processes]
        began = time.monotonic()
        time.sleep(seconds)
        after = [process.counted() for process in processes]
        took = time.monotonic() - began
    finally:
        for process in processes:
            process.stop()
    return {
        what: sum(now[what] - then[what] for now, then in zip(after, before, strict=True)) / count / took
        for what in before[0]
    }


def main() -> None:
    if "--part" in sys.argv:
        uvloop.run(take_part(sys.argv[sys.argv.index("--part") + 1 :]))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="time of each measurement (default: %(default)s)")
    parser.add_argument("--tick", default="0.05", help="--peer-tick (default: %(default)s)")
    parser.add_argument("--port", default="19094", help="first of the ports that are used (default: %(default)s)")
    given = parser.parse_args()
    title = f"Each router tells {NOTES_A_SECOND} notes a second and {REPLICAS} loads every {given.tick} s"
    shown = Table(title=title, title_justify="left")
    for heading in ("routers", "CPU of a core", "datagrams/s sent", "kB/s sent", "kB/s in all", "dropped/s"):
        shown.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "key")
        key.write_bytes(secrets.token_bytes(32))
        flags = ["--peers", "127.0.0.1", "--peer-key-file", str(key), "--peer-port", given.port]
        flags += ["--peer-tick", given.tick, "--log-level", "WARNING"]
        for count in ROUTERS:
            of = measure(count, given.seconds, flags)
            cells = (of["datagrams"], of["bytes"] / 1000, count * of["bytes"] / 1000, of["dropped"])
            shown.add_row(str(count), f"{of['cpu']:.1%}", *(f"{each:.1f}" for each in cells))
    Console().print(shown)


if __name__ == "__main__":
    main()
