"""The operator with many groups: time to warm and routed, requests to the API server, CPU; then the same at rest.

A real control plane (etcd, API server, controllers, scheduler) and a node whose engines are hollow: stand-ins with a
real prefix cache and no process each. Everything shares this machine's cores, the operator among them. Without --spread
all engines are up as soon as their pods are: no model takes less than a minute to load, so that is the worst case.

    python tests/bench/operator_scale.py --size 20x5 --size 50x5 --rest 120
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from promptgroup_local.kubectl import wait_for

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest's own path
from support.fleet import Calls, Fleet, cpu_seconds, fleet, now, operator

PATIENCE = 900.0
"""Longest wait for a fleet to be warm, in seconds."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a time took."""

    seconds: float
    operator: float
    """CPU seconds."""
    watches: float
    """The part of the operator's main thread, in which Kopf watches."""
    api_server: float
    calls: Calls


@dataclass(frozen=True, slots=True)
class Result:
    """One size."""

    groups: int
    replicas: int
    creation: Spent
    rest: Spent
    changes: Spent
    """One change of each pod, by another than the operator."""
    memory: tuple[float, float]
    """MiB of the operator, resident, after creation and at the end."""
    to_warm: list[float]
    """Seconds from the pod's containers ready to its condition, ascending."""
    to_routed: list[float]
    """Seconds from the pod's containers ready to its slot in the PromptRoute."""
    told: list[float]
    """Seconds from the pod's condition to its slot in the PromptRoute."""


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", metavar="GxP", help="groups x pods of each (default: 20x5)")
    parser.add_argument("--rest", type=float, default=120.0, metavar="SECONDS", help="how long to look on at rest")
    parser.add_argument("--calm", type=float, default=45.0, metavar="SECONDS", help="time between creation and rest")
    parser.add_argument("--spread", type=float, default=0.0, metavar="SECONDS", help="engines take up to this to start")
    parser.add_argument("--rate", type=float, default=50.0, metavar="N", help="pods that change a second, afterwards")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and the API server's record here")
    parser.add_argument("--strict", action="store_true", help="end with 1 if a gate is missed (GATES, LINEAR)")
    arguments = parser.parse_args()
    results = []
    for size in arguments.size or ["20x5"]:
        groups, replicas = map(int, size.split("x"))
        results.append(measure(groups, replicas, arguments))
        Console(width=100).print(table(results))
    missed = [text for result in results for text in misses(result, results[0])] if arguments.strict else []
    for text in missed:
        Console(width=120, markup=False).print(f"gate missed: {text}")
    return 1 if missed else 0


def measure(groups: int, replicas: int, arguments: argparse.Namespace) -> Result:
    """A fresh cluster, a fleet created at once, then nothing."""
    folder = Path(tempfile.mkdtemp(prefix="operator-scale-"))
    try:
        with fleet(folder) as made, operator(made.cluster) as running:
            pid, server = running.process.pid, made.cluster.plane.pid("kube-apiserver")
            cpu = Path(f"/proc/{pid}"), Path(f"/proc/{pid}/task/{pid}"), Path(f"/proc/{server}")
            made.observe("default")
            start = begin(cpu)
            made.create("default", groups, replicas, arguments.spread)
            wait_for(lambda: True if made.settled("default", groups) else None, "the fleet to be warm", None, PATIENCE)
            creation, created = spent(made, start, cpu), resident(pid)
            time.sleep(arguments.calm)  # what creation left behind is no rest: first readings, garbage of the store
            start = begin(cpu)
            time.sleep(arguments.rest)
            rest = spent(made, start, cpu)
            start = begin(cpu)
            made.change_pods("default", arguments.rate)
            changes = spent(made, start, cpu)
            routed = [each for each in made.pods.values() if each.ready and each.warm and each.routed]
            return Result(
                groups,
                replicas,
                creation,
                rest,
                changes,
                (created, resident(pid)),
                sorted(each.warm - each.ready for each in routed),
                sorted(each.routed - each.ready for each in routed),
                sorted(each.routed - each.warm for each in routed),
            )
    finally:
        if arguments.keep is not None:
            shutil.copytree(folder / "logs", arguments.keep / f"{groups}x{replicas}", dirs_exist_ok=True)
            shutil.copy(folder / "audit.log", arguments.keep / f"{groups}x{replicas}")
        shutil.rmtree(folder, ignore_errors=True)


def begin(cpu: Sequence[Path]) -> tuple[float, datetime, list[float]]:
    """Return the time, by both clocks, and the CPU seconds of some processes and threads."""
    return time.monotonic(), now(), list(map(cpu_seconds, cpu))


def spent(made: Fleet, start: tuple[float, datetime, list[float]], cpu: Sequence[Path]) -> Spent:
    """Return what was spent since `start`."""
    then, since, before = start
    took = [cpu_seconds(path) - earlier for path, earlier in zip(cpu, before, strict=True)]
    return Spent(time.monotonic() - then, *took, made.calls(since, now()))


def resident(pid: int) -> float:
    """Return the MiB that a process has in memory (proc_pid_status(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def table(results: list[Result]) -> Table:
    """A column for each size."""
    made = Table(title="the operator with many groups")
    made.add_column("")
    for result in results:
        made.add_column(f"{result.groups} x {result.replicas}", justify="right")
    for label, cell in ROWS.items():
        made.add_row(label, *map(cell, results))
    return made


def each(count: float, result: Result) -> str:
    """A number for each group."""
    return f"{count / result.groups:.1f}"


def a_minute(count: float, result: Result) -> str:
    """A number for each minute of rest."""
    return f"{60 * count / result.rest.seconds:.1f}"


def change(seconds: float, rest: float, result: Result) -> str:
    """CPU milliseconds of a change, without what the operator takes at rest."""
    beside = rest / result.rest.seconds * result.changes.seconds
    return f"{1000 * (seconds - beside) / (result.groups * result.replicas):.2f}"


def core(seconds: float, result: Result) -> str:
    """CPU seconds of the rest as a share of one core."""
    return f"{seconds / result.rest.seconds:.2%}"


ROWS: dict[str, Callable[[Result], str]] = {
    "pods routed": lambda it: str(len(it.to_routed)),
    "created to all warm and routed, s": lambda it: f"{it.creation.seconds:.1f}",
    "pods a second": lambda it: f"{it.groups * it.replicas / it.creation.seconds:.1f}",
    "containers ready to warm, s: p50": lambda it: f"{at(it.to_warm, 0.5):.2f}",
    "  p99": lambda it: f"{at(it.to_warm, 0.99):.2f}",
    "containers ready to routed, s: p50": lambda it: f"{at(it.to_routed, 0.5):.2f}",
    "  p99 ": lambda it: f"{at(it.to_routed, 0.99):.2f}",
    "  longest": lambda it: f"{it.to_routed[-1]:.2f}",
    "warm to routed, s: p50": lambda it: f"{at(it.told, 0.5):.2f}",
    "  p99  ": lambda it: f"{at(it.told, 0.99):.2f}",
    "creation, a group: reads": lambda it: each(it.creation.calls.reads, it),
    "  writes": lambda it: each(it.creation.calls.writes, it),
    "creation, CPU s: operator": lambda it: f"{it.creation.operator:.1f}",
    "  its main thread": lambda it: f"{it.creation.watches:.1f}",
    "  API server": lambda it: f"{it.creation.api_server:.1f}",
    "memory of the operator, MiB: created": lambda it: f"{it.memory[0]:.0f}",
    "  at the end": lambda it: f"{it.memory[1]:.0f}",
    "rest, a minute: reads": lambda it: a_minute(it.rest.calls.reads, it),
    "  writes ": lambda it: a_minute(it.rest.calls.writes, it),
    "  watches begun": lambda it: a_minute(it.rest.calls.verbs["watch"], it),
    "rest, of a core: operator": lambda it: core(it.rest.operator, it),
    "  API server ": lambda it: core(it.rest.api_server, it),
    "a pod changes, CPU ms: operator": lambda it: change(it.changes.operator, it.rest.operator, it),
    "  its main thread ": lambda it: change(it.changes.watches, it.rest.watches, it),
    "  API server  ": lambda it: change(it.changes.api_server, it.rest.api_server, it),
    "  writes  ": lambda it: str(it.changes.calls.writes),
}


GATES: dict[str, tuple[Callable[[Result], float], float]] = {
    "creation, a group: reads": (lambda it: it.creation.calls.reads / it.groups, 11),
    "creation, a group: writes": (lambda it: it.creation.calls.writes / it.groups, 37),
    "creation, CPU: operator / API server": (lambda it: it.creation.operator / it.creation.api_server, 0.8),
    "rest: writes": (lambda it: it.rest.calls.writes, 0),
    # copies of objects that may not be watched are read again every ten minutes
    "rest, a group: reads": (lambda it: it.rest.calls.reads / it.groups, 0.5),
    "a pod changes: writes": (lambda it: it.changes.calls.writes, 0),
    "a pod changes, CPU: operator / API server": (lambda it: it.changes.operator / it.changes.api_server, 0.5),
}
"""Figure → how it is computed, and the most that it may be. Counts and ratios of one run hold on a busy machine."""

LINEAR: dict[str, tuple[Callable[[Result], float], float]] = {
    "creation, CPU of the operator for a group": (lambda it: it.creation.operator / it.groups, 1.4),
    "rest, CPU of the operator for a group": (lambda it: it.rest.operator / it.rest.seconds / it.groups, 1.4),
    "memory of the operator for a group": (lambda it: it.memory[1] / it.groups, 1.0),
}
"""Figure → how it is computed, and the most that it may be beside that of the first size."""


def misses(result: Result, first: Result) -> Iterator[str]:
    """Yield the gates that a size misses.

    Args:
        result: the size.
        first: the smallest one, with which the linear figures are compared.
    """
    size = f"{result.groups} x {result.replicas}"
    for label, (figure, most) in GATES.items():
        if figure(result) > most:
            yield f"{size}: {label} is {figure(result):.2f}, and at most {most} is expected"
    for label, (figure, most) in LINEAR.items():
        if figure(result) > most * figure(first):
            yield f"{size}: {label} is {figure(result) / figure(first):.2f} times that of the first size ({most})"


def at(values: list[float], share: float) -> float:
    """A quantile of ascending values."""
    return values[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    sys.exit(main())
