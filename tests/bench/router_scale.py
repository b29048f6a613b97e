"""What a router takes with many groups: how long a change of the table holds its loop, and what a request costs.

python tests/bench/router_scale.py [--groups 10,1000,10000] [--slots 1000] [--routers 2,10,100]

Each change is made as the feed makes it, in steps. The figure is the longest step in CPU time, and all of them
together, of the least of some runs: what else runs on the machine only adds to it. A request's cost is that of
`python_part.py`, between transports that only count, of routers that take turns in one process.
"""

import argparse
import asyncio
import gc
import json
import logging
import resource
import secrets
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

from peering_cost import NOTES_A_SECOND, REPLICAS, Driver
from python_part import BATCH, LOW, Bench, group, python, request
from rich.console import Console
from rich.table import Table

from promptgroup_contract.encoding import decode_table
from promptgroup_contract.table import Group, RoutingTable, SlotState
from promptgroup_router.admin import table_steps
from promptgroup_router.base import build
from promptgroup_router.base.exposition import PROMETHEUS
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.base.steps import SLICE_SECONDS
from promptgroup_router.decision.composition import router_state
from promptgroup_router.explain import explain, parse_explain_request
from promptgroup_router.feed.publish import Publisher
from promptgroup_router.feed.table_file import encode_steps, parse_steps
from promptgroup_router.peers.protocol import GossipProtocol
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.gossip import LoadReport, PlacementReport
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index
from promptgroup_router.rings.ids import MemberHash

TICKS = 100
"""Ticks of routers that tell each other, behind the first second."""
TICK_SECONDS = 0.05
RUNS = 3
PASSING = {"the copy is encoded", "/explain"}
"""What is let go soon, so that collections visit it."""


def held(steps: Generator[None, None, object], *, lasting: bool) -> tuple[float, float]:
    """Return the longest step and all of them, in milliseconds of CPU; collections visit what they do in a router."""
    clock = time.thread_time_ns
    longest, whole, since = 0, 0, clock()
    made: object = None
    while True:
        began = clock()
        done = False
        try:
            next(steps)
        except StopIteration as end:
            done, made = True, end.value  # who asked for it has it still: it is let go later
        now = clock()
        longest, whole = max(longest, now - began), whole + now - began
        if lasting and (done or now - since >= SLICE_SECONDS * 1e9):
            gc.freeze()
            since = now
        if done:
            del made
            return longest / 1e6, whole / 1e6


def one(work: Callable[[], object]) -> Generator[None, None, object]:
    """Work that is done at once."""
    yield
    return work()


def away(found: Group) -> Group:
    """A group without its first slot."""
    first, *slots = found.revisions[0].slots
    revision = replace(found.revisions[0], slots=(replace(first, state=SlotState.ABSENT), *slots))
    return replace(found, revisions=(revision, *found.revisions[1:]))


class Changes:
    """A router whose table changes."""

    def __init__(self, groups: int, slots: int) -> None:
        listed = [group(number, slots) for number in range(groups + 1)]
        for number, each in enumerate(listed):
            for revision in each["revisions"]:
                revision["engine"] = {"settings": "same"}
                for slot in revision["slots"]:
                    slot["address"] = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:{8000 + slot['slot']}"
        self.content = json.dumps({"format": 1, "version": "v0", "groups": listed[:-1]}).encode()
        self.table = decode_table(json.loads(self.content))
        self.more = decode_table({"format": 1, "version": "more", "groups": listed[-1:]}).groups
        self.state = router_state()
        self.publisher = Publisher(self.state, time.monotonic, None)
        self.version = 0

    def publish(self, groups: tuple[Group, ...]) -> Generator[None, None, object]:
        self.version += 1
        return self.publisher.install_steps(RoutingTable(groups, f"v{self.version}"), "bench")

    def cases(self) -> Generator[tuple[str, Callable[[], Generator[None, None, object]]], None, None]:
        groups = self.table.groups
        yield "a table file is parsed", lambda: parse_steps(self.content, "bench")
        yield "first table", lambda: self.publish(groups)
        yield "the same again", lambda: self.publish(groups)
        yield "a slot leaves", lambda: self.publish((away(groups[0]), *groups[1:]))
        yield "the slot comes back", lambda: self.publish(groups)
        yield "a group comes", lambda: self.publish((*groups, *self.more))
        yield "a group leaves", lambda: self.publish(groups)
        yield "the copy is encoded", lambda: encode_steps(self.table)
        yield "a page of metrics", lambda: self.state.exposition_steps(time.monotonic(), 0, PROMETHEUS)
        yield "/table", lambda: table_steps(self.state, time.monotonic())
        body = request(0, 8192, 0, stream=False).partition(b"\r\n\r\n")[2].decode()
        question = json.dumps({"body": body}).encode()
        yield "/explain", lambda: one(lambda: explain(self.state, parse_explain_request(question), time.monotonic()))
        yield "all groups leave", lambda: self.publish(())


def changes(sizes: list[int], slots: int) -> Table:
    shown = Table("CPU, ms: longest step (all)", *(f"{size:,} groups" for size in sizes), box=None)
    rows: dict[str, list[str]] = {}
    for size in sizes:
        least: dict[str, tuple[float, float]] = {}
        for _ in range(RUNS if size < 5000 else 2):
            router = Changes(size, slots)
            gc.collect()
            gc.freeze()
            for name, work in router.cases():
                steps = work()
                longest, whole = held(steps, lasting=name not in PASSING)
                del steps
                gc.freeze()
                known = least.get(name, (longest, whole))
                least[name] = min(known[0], longest), min(known[1], whole)
            gc.unfreeze()
        for name, (longest, whole) in least.items():
            rows.setdefault(name, []).append(f"{longest:.1f} ({whole:.0f})")
    for name, cells in rows.items():
        shown.add_row(name, *cells)
    return shown


async def requests(sizes: list[tuple[int, int]], batches: int) -> Table:
    """Requests of routers that take turns; the first is what the others are compared with."""
    shown = Table("groups x slots", "request, µs", "ratio", "memory of the process, MiB", box=None)
    routers, memory = [], []
    for groups, slots in sizes:
        given = argparse.Namespace(groups=groups, slots=slots, sessions=500, clients=16, body=8192, keys=None)
        bench = Bench(given, asyncio.get_running_loop())
        await bench.warm_up()
        routers.append(bench)
        memory.append(resident())
    gc.collect()
    gc.freeze()
    rounds = 12
    found: list[list[float]] = [[] for _ in routers]
    for _ in range(rounds):
        for bench, samples in zip(routers, found, strict=True):
            for _ in range(batches // rounds):
                began = time.thread_time_ns()
                for _ in range(BATCH):
                    bench.whole()
                samples.append((time.thread_time_ns() - began) / BATCH / 1000)
    least = [sorted(each)[int(len(each) * LOW)] for each in found]
    before = 0.0
    for (groups, slots), cost, held_memory in zip(sizes, least, memory, strict=True):
        shown.add_row(
            f"{groups:,} x {slots:,}", f"{cost:.1f}", f"{cost / least[0]:.2f}", f"+{held_memory - before:.0f}"
        )
        before = held_memory
    return shown


def gossip(counts: list[int]) -> Table:
    """One router among others that each tell 50 placements a second and 8 loads in every tick, without sockets."""
    shown = Table("routers", "sent, kB/s", "received, kB/s", "datagrams/s, both", "CPU without the kernel, %", box=None)
    for count in counts:
        addresses = [("10.0.0.1", 1 + number) for number in range(count)]
        key, now, wall = secrets.token_bytes(32), 100.0, 1e9
        balancer = Balancer(Health())
        served = decode_table({"format": 1, "version": "v", "groups": [group(0, REPLICAS)]})
        balancer.install(build_index(served), now)
        members = list(balancer.members.replicas.values())
        routers = [GossipProtocol(balancer.peers, Metrics(), 1)]
        routers += [
            GossipProtocol(Teller([each.key for each in members]), Metrics(), 2 + at) for at in range(count - 1)
        ]
        for at, router in enumerate(routers):
            router.key = key
            router.aim(addresses if not at else addresses[:1])
        spent = sent = received = datagrams = 0
        for tick in range(20 + TICKS):
            now, wall = now + TICK_SECONDS, wall + TICK_SECONDS
            told = [
                (data, addresses[at])
                for at, router in enumerate(routers[1:], 1)
                for data, to in router.tick(now, wall)
                if to == addresses[0]
            ]
            began = time.thread_time_ns()
            for data, source in told:
                routers[0].receive(data, source, now, wall)
            out = list(routers[0].tick(now, wall))
            took = time.thread_time_ns() - began
            by_address = dict(zip(addresses, routers, strict=True))
            for data, to in out:
                if to != addresses[0]:
                    by_address[to].receive(data, addresses[0], now, wall)
            if tick >= 20:
                spent += took
                sent, received = sent + sum(len(data) for data, _ in out), received + sum(len(data) for data, _ in told)
                datagrams += len(out) + len(told)
        seconds = TICKS * TICK_SECONDS
        cells = (sent / seconds / 1000, received / seconds / 1000, datagrams / seconds, spent / seconds / 1e7)
        shown.add_row(str(count), *(f"{cell:,.1f}" for cell in cells))
    return shown


class Teller(Driver):
    """A policy that tells the loads of these members."""

    def __init__(self, members: list[MemberHash]) -> None:
        super().__init__()
        self._members, self._due = members, 0.0

    def export(self, now: float) -> tuple[list[PlacementReport], list[LoadReport]]:
        self._due += NOTES_A_SECOND * TICK_SECONDS
        count, self._due = int(self._due), self._due % 1
        self._session += count
        placements = [
            PlacementReport(self._session - each, self._members[each % len(self._members)], 11, 5, 3000)
            for each in range(count)
        ]
        return placements, [LoadReport(member, 8, 24_000, 0.3, 0.05, int(now)) for member in self._members]


def resident() -> float:
    """Return the memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", default="10,1000,10000", help="groups of the tables (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=1000, help="slots of the group with many (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=1200, help=f"of {BATCH} requests (default: %(default)s)")
    parser.add_argument("--routers", default="2,10,100", help="that tell each other (default: %(default)s)")
    parser.add_argument("--part", choices=("changes", "requests", "gossip"), help="only this part")
    given = parser.parse_args()
    logging.disable()
    console = Console(width=110)
    sizes = [int(each) for each in given.groups.split(",")]
    sys.stdout.write(f"{python()}, router {'compiled' if build.compiled() else 'interpreted'}\n")
    if given.part in (None, "changes"):
        console.print(changes(sizes, 4))
    if given.part in (None, "requests"):
        kinds = [*((size, 4) for size in sizes), (1, 4), (1, given.slots)]
        console.print(asyncio.run(requests(kinds, given.batches)))
    if given.part in (None, "gossip"):
        console.print(gossip([int(each) for each in given.routers.split(",")]))


if __name__ == "__main__":
    main()
