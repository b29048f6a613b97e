"""`python -m promptgroup_research.scaling`: the project's sizing beside HorizontalPodAutoscaler, in a simulation.

Without flags: five loads, seeds that nothing was tuned on, HorizontalPodAutoscaler at every target of a sweep; then
the limits and whether they were met. `--help` has the rest.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from promptgroup_cli.reach.trace import TraceError
from promptgroup_research.experiments.report import verdicts
from promptgroup_research.output import command_line
from promptgroup_research.output.command_line import add_flags, watched, write
from promptgroup_research.scaling import drawing, judge
from promptgroup_research.scaling.loads import Scene, scenes
from promptgroup_research.scaling.play import Course, play
from promptgroup_research.scaling.scalers import Fixed, Hpa, Scaler
from promptgroup_research.scaling.sizer import Sizer

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
            return Hpa.on_queue(value, scene.least, scene.most)
        case judge.KV:
            return Hpa.on_kv_usage(value, scene.least, scene.most)
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
    result = []
    for scene in chosen.scene:
        ways: list[tuple[str, float]] = [(judge.OURS, 0.0)]
        if not chosen.ours:
            queue, kv = (DAY_QUEUE, DAY_KV) if scene == "day" else (QUEUE, KV)
            swept: tuple[tuple[str, Sequence[float]], ...] = (
                (judge.QUEUE, queue), (judge.KV, kv), (judge.FIXED, FIXED[scene]),
            )  # fmt: skip
            ways += [(kind, value) for kind, values in swept for value in values[::step]]
        result += [Job(scene, *way, seed, chosen.quick, chosen.trace) for way in ways for seed in seeds]
    return result


def options() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(
        prog="python -m promptgroup_research.scaling", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--scene", nargs="+", choices=NAMES, default=list(NAMES), help=", ".join(NAMES))
    parser.add_argument("--ours", action="store_true", help="the project's sizing alone")
    add_flags(parser, quick="one seed, a sixth of the time, few targets")
    return parser


def main() -> int:
    """Run the requested experiments."""
    parser = options()
    chosen = parser.parse_args()
    console = command_line.console(WIDTH)
    try:
        kinds = scenes(chosen.trace, quick=chosen.quick)
    except TraceError as problem:
        parser.error(f"argument --trace: {problem}")
    todo = jobs(chosen)
    results = watched(console, run, todo, chosen.jobs)
    courses: dict[str, list[Course]] = {}
    for job, course in zip(todo, results, strict=True):
        courses.setdefault(job.scene, []).append(course)
    judged = judge.gates(kinds, courses)
    tables = [*judge.sheets(kinds, courses), judge.floor(courses), verdicts(judged)]
    for table in tables:
        console.print(table.rich())
    drawings = {name: drawn(kinds[name], result) for name, result in courses.items()} if chosen.plots else {}
    write(chosen, tables, lambda: _json(courses), drawings)
    return int(chosen.strict and not all(gate.met for gate in judged))


def _json(courses: Mapping[str, Sequence[Course]]) -> str:
    document = {name: [asdict(course) for course in result] for name, result in courses.items()}
    return json.dumps(document, indent=1) + "\n"


def drawn(scene: Scene, courses: list[Course]) -> str:
    """The first seed of ours and of the best of each family."""
    standings = judge.standings(courses)
    best = [judge.tuned(standings, family) for family in (judge.OURS, judge.QUEUE, judge.KV, judge.FIXED)]
    return drawing.over_time(scene.title, [item.courses[0] for item in best if item is not None])


if __name__ == "__main__":
    sys.exit(main())
