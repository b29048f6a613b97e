"""`python -m promptgroup_local.sim`: the project's routing policy and its peers', measured in a simulation.

Without flags: three workloads at 75 and 85 % of their capacity, every policy, five seeds that nothing was tuned on,
then what was to be reached and whether it was. `--help` has the rest.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from promptgroup_local.sim import article, capacity, scenarios
from promptgroup_local.sim.catalogue import JUDGING, POLICIES, TUNING, WORKLOADS, workload
from promptgroup_local.sim.gates import Gate, gates
from promptgroup_local.sim.report import Sheet, as_json, comparisons, verdicts
from promptgroup_local.sim.runs import Job, cells, run, spread
from promptgroup_local.sim.trace import TraceError

LOADS = (0.75, 0.85)
WIDTH = 130
"""Columns of tables that go to a file or a pipe."""

T = TypeVar("T")
R = TypeVar("R")


def options() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_local.sim", description=(__doc__ or "").split("\n")[0])
    what = parser.add_mutually_exclusive_group()
    names = ", ".join(scenarios.NAMES)
    what.add_argument("--scenario", nargs="*", choices=scenarios.NAMES, metavar="NAME",
                      help=f"replicas or prompts change: all of these, or some of {names}")  # fmt: skip
    what.add_argument("--article", action="store_true", help="the tables of articles on prefix caching, measured")
    what.add_argument("--capacity", action="store_true", help="recompute what 100 %% load is")
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--policy", nargs="+", choices=sorted(POLICIES), default=list(POLICIES), metavar="NAME",
                        help=", ".join(POLICIES))  # fmt: skip
    parser.add_argument("--load", nargs="+", type=_load, default=list(LOADS), help="shares of the capacity: 0.75 0.85")
    parser.add_argument("--seeds", choices=("judging", "tuning"), default="judging")
    parser.add_argument("--trace", type=Path, help="file in Mooncake's format; without it the trace is synthetic")
    parser.add_argument("--quick", action="store_true", help="one seed and a minute of it")
    parser.add_argument("--jobs", type=_jobs, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a gate is missed")
    return parser


def _load(text: str) -> float:
    value = float(text)
    if not 0 < value <= 2:
        raise argparse.ArgumentTypeError(f"{text}: a share of the capacity is expected, 0.85 for 85 %")
    return value


def _jobs(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least one process is needed")
    return value


def _watched(console: Console, work: Callable[[T], R], jobs: Sequence[T], processes: int) -> list[R]:
    """Do all jobs, and show how many are done."""
    with Progress(
        TextColumn("runs"), MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("", total=len(jobs))
        return spread(work, jobs, processes, lambda done: bar.update(task, completed=done))


def main() -> int:
    """Run what was asked for."""
    parser = options()
    chosen = parser.parse_args()
    # a table that is folded cannot be read: wide enough where the width is not a terminal's
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    seeds: tuple[int, ...] = TUNING if chosen.seeds == "tuning" else JUDGING
    seeds = seeds[:1] if chosen.quick else seeds
    try:
        titles = {name: workload(name, chosen.trace).title for name in WORKLOADS}
    except TraceError as problem:
        parser.error(f"argument --trace: {problem}")
    if chosen.capacity:
        for name in chosen.workload:
            found = capacity.measured(
                Job(name, "oracle", 1.0, 1, recorded=chosen.trace), workload(name, chosen.trace).capacity
            )
            console.print(f"{titles[name]}: {found:.2f} requests/s")
        return 0
    sheets: list[Sheet]
    judged: list[Gate]
    document = ""
    if chosen.scenario is not None:
        names = [name for name in WORKLOADS[:2] if name in chosen.workload]
        asked = [
            scenarios.Job(scenario, name, seed)
            for name in names for scenario in chosen.scenario or scenarios.NAMES for seed in seeds
        ]  # fmt: skip
        outcomes = scenarios.outcomes(asked, _watched(console, scenarios.run, asked, chosen.jobs))
        sheets, judged = scenarios.sheets(outcomes, titles), scenarios.gates(outcomes)
        sheets.append(verdicts(judged))
    elif chosen.article:
        parts = article.jobs(seeds)
        sheets, judged = article.sheets(parts, _watched(console, article.run, parts, chosen.jobs)), []
    else:
        jobs = [
            Job(name, policy, load, seed, chosen.quick, chosen.trace)
            for name in chosen.workload for load in chosen.load for policy in chosen.policy for seed in seeds
        ]  # fmt: skip
        found_cells = cells(jobs, _watched(console, run, jobs, chosen.jobs))
        judged = gates(found_cells)
        sheets = [*comparisons(found_cells, titles), verdicts(judged)]
        document = as_json(found_cells, judged)
    for sheet in sheets:
        console.print(sheet.rich())
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(sheet.markdown() for sheet in sheets), encoding="utf-8")
    if chosen.json:
        chosen.json.write_text(document, encoding="utf-8")
    return int(chosen.strict and not all(gate.met for gate in judged))


if __name__ == "__main__":
    sys.exit(main())
