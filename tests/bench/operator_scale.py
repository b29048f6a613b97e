"""The operator with many groups: time to warm and routed, requests to the API server, CPU; then the same at rest.

A real control plane (etcd, API server, controllers, scheduler) and a node whose engines are hollow: stand-ins with a
real prefix cache and no process each. Everything shares this machine's cores, the operator among them.

    python tests/bench/operator_scale.py --size 20x5 --size 50x5 --rest 120
"""

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

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
    api_server: float
    calls: Calls


@dataclass(frozen=True, slots=True)
class Result:
    """One size."""

    groups: int
    replicas: int
    creation: Spent
    rest: Spent
    to_warm: list[float]
    """Seconds from the pod's containers ready to its condition, ascending."""
    to_routed: list[float]
    """Seconds from the pod's containers ready to its slot in the PromptRoute."""


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", metavar="GxP", help="groups x pods of each (default: 20x5)")
    parser.add_argument("--rest", type=float, default=120.0, metavar="SECONDS", help="how long to look on at rest")
    parser.add_argument("--calm", type=float, default=45.0, metavar="SECONDS", help="time between creation and rest")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and the API server's record here")
    arguments = parser.parse_args()
    print(HEADER, flush=True)
    for size in arguments.size or ["20x5"]:
        groups, replicas = map(int, size.split("x"))
        print(row(measure(groups, replicas, arguments)), flush=True)
    return 0


def measure(groups: int, replicas: int, arguments: argparse.Namespace) -> Result:
    """A fresh cluster, a fleet created at once, then nothing."""
    folder = Path(tempfile.mkdtemp(prefix="operator-scale-"))
    try:
        with fleet(folder) as made, operator(made.cluster) as running:
            pids = running.process.pid, made.cluster.plane.pid("kube-apiserver")
            made.observe("default")
            start = time.monotonic(), now(), *map(cpu_seconds, pids)
            made.create("default", groups, replicas)
            wait_for(lambda: True if made.settled("default", groups) else None, "the fleet to be warm", None, PATIENCE)
            creation = spent(made, start, pids)
            time.sleep(arguments.calm)  # what creation left behind is no rest: first readings, garbage of the store
            start = time.monotonic(), now(), *map(cpu_seconds, pids)
            time.sleep(arguments.rest)
            rest = spent(made, start, pids)
            ready = {name: each for name, each in made.pods.items() if each.ready is not None}
            return Result(
                groups,
                replicas,
                creation,
                rest,
                sorted(each.warm - each.ready for each in ready.values() if each.warm is not None),
                sorted(each.routed - each.ready for each in ready.values() if each.routed is not None),
            )
    finally:
        if arguments.keep is not None:
            shutil.copytree(folder / "logs", arguments.keep / f"{groups}x{replicas}", dirs_exist_ok=True)
            shutil.copy(folder / "audit.log", arguments.keep / f"{groups}x{replicas}")
        shutil.rmtree(folder, ignore_errors=True)


def spent(made: Fleet, start: tuple, pids: tuple[int, int]) -> Spent:
    """What was spent since `start`."""
    then, since, *cpu = start
    took = [cpu_seconds(pid) - before for pid, before in zip(pids, cpu, strict=True)]
    return Spent(time.monotonic() - then, *took, made.calls(since, now()))


HEADER = """\
groups  pods  warm,s  pods/s | ready→routed s: p50  p99  max (→warm p50 p99) | creation, a group: reads writes watches \
operator CPU s  API server CPU s | rest, a minute: reads writes watches  operator CPU %  API server CPU %"""


def row(result: Result) -> str:
    """A line of the table."""
    made, rest = result.creation, result.rest
    pods, minutes = result.groups * result.replicas, rest.seconds / 60
    routed, warm = result.to_routed, result.to_warm
    return (
        f"{result.groups:6d} {len(routed):5d} {made.seconds:7.1f} {pods / made.seconds:7.1f} | "
        f"{at(routed, 0.5):.2f} {at(routed, 0.99):.2f} {routed[-1]:.2f} ({at(warm, 0.5):.2f} {at(warm, 0.99):.2f}) | "
        f"{made.calls.reads / result.groups:.1f} {made.calls.writes / result.groups:.1f} "
        f"{made.calls.verbs['watch'] / result.groups:.2f} {made.operator:.1f} {made.api_server:.1f} | "
        f"{rest.calls.reads / minutes:.1f} {rest.calls.writes / minutes:.1f} {rest.calls.verbs['watch'] / minutes:.1f} "
        f"{100 * rest.operator / rest.seconds:.2f} {100 * rest.api_server / rest.seconds:.2f}"
    )


def at(values: list[float], share: float) -> float:
    """A quantile of ascending values."""
    return values[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    sys.exit(main())
