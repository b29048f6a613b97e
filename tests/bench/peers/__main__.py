"""This project's router beside other real routers, on stand-in engines, over real sockets.

    make bench-peers [PEERS="--quick --only cache_aware"]

Each router in turn gets the same load, open loop, over the same engine processes; caches are emptied in between.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import uvloop
from rich.console import Console

from bench.peers import mix, report, routers
from bench.peers.bench import Bench, Plan
from bench.peers.report import Run
from bench.peers.routers import CONTESTANTS
from bench.peers.simulated import measured_capacity

SEEDS = (11, 12)
LOAD = 0.8
"""Share of the engines' capacity."""
WARM_UP, LENGTH = 45.0, 75.0
"""Seconds before requests are measured, in which caches are written once; and seconds that are measured."""
QUICK_WARM_UP, QUICK_LENGTH = 15.0, 20.0
WIDTH = 200
"""Columns where the output is no terminal."""


def main() -> int:
    """Entry point; returns the exit status."""
    given = _parser().parse_args()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if given.capacity:
        console.print(f"{measured_capacity():.1f} requests a second", highlight=False)
        return 0
    if given.show:
        _show(console, [Run(**each) for path in given.show for each in json.loads(path.read_text())], "earlier runs")
        return 0
    chosen = [each for each in CONTESTANTS if not given.only or any(part in each.name for part in given.only)]
    if not chosen:
        console.print(f"error: --only names none of: {'; '.join(each.name for each in CONTESTANTS)}")
        return 2
    seeds = given.seeds or (SEEDS[:1] if given.quick else SEEDS)
    warm_up, length = (QUICK_WARM_UP, QUICK_LENGTH) if given.quick else (WARM_UP, LENGTH)
    plan = Plan(given.load * mix.CAPACITY, warm_up, length)
    title = f"{given.load:.0%} of capacity ({plan.rate:.1f} requests a second), {mix.ENGINES} engines"
    console.print(f"{title}: {len(chosen)} routers, seeds {seeds}, {plan.until:.0f} s each", highlight=False)
    try:
        routers.install(chosen)
        with tempfile.TemporaryDirectory() as folder:
            runs = uvloop.run(Bench(Path(folder), plan).all(chosen, seeds, lambda run: _tell(console, run)))
    except (TimeoutError, subprocess.CalledProcessError) as error:
        console.print(f"[red]error[/red]: {error}", highlight=False)
        return 1
    if given.json:
        given.json.write_text(json.dumps([asdict(run) for run in runs]))
    _show(console, runs, title)
    return _judged(console, runs, quick=given.quick) if given.strict else 0


def _judged(console: Console, runs: Sequence[Run], *, quick: bool) -> int:
    rows = report.rows(runs)
    if not report.quiet(rows):
        console.print("the machine was busy: times are not judged", highlight=False)
    peers = [each.name for each in CONTESTANTS if not each.ours]
    missed = report.missed(rows, CONTESTANTS[0].name, peers, quick=quick)
    for line in missed:
        console.print(f"[red]missed[/red]: {line}", highlight=False)
    return int(bool(missed))


def _tell(console: Console, run: Run) -> None:
    row = report.rows([run])[0]
    failed = f", failed {run.failed}" if run.failed else ""
    console.print(
        f"seed {run.seed} {run.router}: hit {run.hit:.1%}, TTFT mean {row.mean * 1000:.0f}, p99 {row.p99 * 1000:.0f} ms"
        f", machine {run.machine:.0%}, timers {run.late * 1000:.0f} ms late{failed}",
        highlight=False,
    )


def _show(console: Console, runs: Sequence[Run], title: str) -> None:
    order = [each.name for each in CONTESTANTS]
    rows = sorted(report.rows(runs), key=lambda row: order.index(row.router))
    console.print(report.table(rows, title))
    peers = [each.name for each in CONTESTANTS if not each.ours]
    for line in report.verdicts(rows, CONTESTANTS[0].name, peers):
        console.print(line, highlight=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="20 s of measurement, one seed")
    add("--only", action="append", metavar="PART", help="only routers with this in their name; repeatable")
    add("--seeds", type=int, nargs="+", metavar="N", help="of the load (default: 11 12)")
    add("--load", type=float, default=LOAD, help="share of capacity (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write every run with all its TTFTs here")
    add("--show", type=Path, nargs="+", metavar="FILE", help="print the table of such files, and end")
    add("--strict", action="store_true", help="exit with 1 where a gate is missed; times count on a quiet machine only")
    add("--capacity", action="store_true", help="find the capacity by simulation, and end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
