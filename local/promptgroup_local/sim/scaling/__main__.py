"""`python -m promptgroup_local.sim.scaling`: the project's sizing beside HorizontalPodAutoscaler, in a simulation.

Without flags: five loads, seeds that nothing was tuned on, HorizontalPodAutoscaler at every target of a sweep; then
what was to be reached and whether it was. `--help` has the rest.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from promptgroup_local.sim.report import verdicts
from promptgroup_local.sim.runs import spread
from promptgroup_local.sim.scaling import drawing, judge
from promptgroup_local.sim.scaling.loads import Scene, scenes
from promptgroup_local.sim.scaling.play import Course, play
from promptgroup_local.sim.scaling.scalers import Fixed, HpaOnKvUsage, HpaOnQueue, Scaler
from promptgroup_local.sim.scaling.sizer import Sizer
from promptgroup_local.sim.trace import TraceError

NAMES = ("day", "burst", "thrash", "drift", "trace")
TUNING, JUDGING = (1, 2, 3, 4, 5, 6), (31, 32)
"""Seeds that constants of the sizing may be chosen on, and those that it is judged by."""
QUEUE = (3.0, 5.0, 8.0, 12.0, 16.0, 20.0, 25.0, 32.0)
KV = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6)
"""Targets of HorizontalPodAutoscaler: requests a replica, and the share of the cache that is held."""
DAY_QUEUE, DAY_KV = (12.0, 16.0, 20.0, 25.0, 32.0), (0.15, 0.2, 0.3)
"""The same for a day, about its best."""
FIXED = {"day": range(5, 7), "burst": range(3, 7), "thrash": range(4, 9), "drift": range(2, 5), "trace": range(6, 10)}
WIDTH = 150
"""Columns of tables that go to a file or a pipe."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    scene: str
    kind: str
    value: float
    seed: int
    quick: bool
    recorded: Path | None


def made(kind: str, value: float, scene: Scene) -> Scaler:
    """A new scaler."""
    match kind:
        case judge.QUEUE:
            return HpaOnQueue(value, scene.least, scene.most)
        case judge.KV:
            return HpaOnKvUsage(value, scene.least, scene.most)
        case judge.FIXED:
            return Fixed(int(value))
        case _:
            return Sizer(scene)


def run(job: Job) -> Course:
    """Simulate."""
    scene = scenes(job.recorded, quick=job.quick)[job.scene]
    return play(scene, partial(made, job.kind, job.value), job.seed)


def jobs(chosen: argparse.Namespace) -> list[Job]:
    """Every run."""
    seeds = (TUNING if chosen.seeds == "tuning" else JUDGING)[: 1 if chosen.quick else None]
    step = 3 if chosen.quick else 1
    found = []
    for scene in chosen.scene:
        ways: list[tuple[str, float]] = [(judge.OURS, 0.0)]
        if not chosen.ours:
            queue, kv = (DAY_QUEUE, DAY_KV) if scene == "day" else (QUEUE, KV)
            swept: tuple[tuple[str, Sequence[float]], ...] = (
                (judge.QUEUE, queue), (judge.KV, kv), (judge.FIXED, FIXED[scene]),
            )  # fmt: skip
            ways += [(kind, value) for kind, values in swept for value in values[::step]]
        found += [Job(scene, *way, seed, chosen.quick, chosen.trace) for way in ways for seed in seeds]
    return found


def options() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(
        prog="python -m promptgroup_local.sim.scaling", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--scene", nargs="+", choices=NAMES, default=list(NAMES), help=", ".join(NAMES))
    parser.add_argument("--ours", action="store_true", help="the project's sizing alone")
    parser.add_argument("--seeds", choices=("judging", "tuning"), default="judging")
    parser.add_argument("--trace", type=Path, help="file in Mooncake's format; without it the trace is synthetic")
    parser.add_argument("--quick", action="store_true", help="one seed, a sixth of the time, few targets")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, help="write the courses there")
    parser.add_argument("--plots", type=Path, help="write plots (SVG) into this folder")
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a gate is missed")
    return parser


def main() -> int:
    """Run what was asked for."""
    parser = options()
    chosen = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    try:
        kinds = scenes(chosen.trace, quick=chosen.quick)
    except TraceError as problem:
        parser.error(f"argument --trace: {problem}")
    todo = jobs(chosen)
    with Progress(
        TextColumn("runs"), MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("", total=len(todo))
        results = spread(run, todo, chosen.jobs, lambda done: bar.update(task, completed=done))
    courses: dict[str, list[Course]] = {}
    for job, course in zip(todo, results, strict=True):
        courses.setdefault(job.scene, []).append(course)
    judged = judge.gates(kinds, courses)
    tables = [*judge.sheets(kinds, courses), verdicts(judged)]
    for table in tables:
        console.print(table.rich())
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(table.markdown() for table in tables), encoding="utf-8")
    if chosen.json:
        document = {name: [asdict(course) for course in found] for name, found in courses.items()}
        chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if chosen.plots:
        chosen.plots.mkdir(parents=True, exist_ok=True)
        for name, found in courses.items():
            (chosen.plots / f"{name}.svg").write_text(drawn(kinds[name], found), encoding="utf-8")
    return int(chosen.strict and not all(gate.met for gate in judged))


def drawn(scene: Scene, courses: list[Course]) -> str:
    """The first seed of ours and of the best of each family."""
    found = judge.standings(courses)
    best = [judge.tuned(found, family) for family in (judge.OURS, judge.QUEUE, judge.KV, judge.FIXED)]
    return drawing.over_time(scene.title, [each.courses[0] for each in best if each is not None])


if __name__ == "__main__":
    sys.exit(main())
