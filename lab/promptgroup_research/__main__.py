"""`python -m promptgroup_research`: the project's routing policy and its peers', measured in a simulation.

Without flags: three workloads at 75 and 85 % of their capacity, every policy, five seeds that nothing was tuned on,
then the limits and whether they were met. `--help` has the rest.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console

from promptgroup_cli.reach.trace import TraceError
from promptgroup_research.experiments import (
    article,
    bursts,
    capacity,
    greetings,
    leaving,
    noise,
    scenarios,
    sizes,
    tiers,
)
from promptgroup_research.experiments.catalogue import (
    GATED,
    JUDGING,
    POLICIES,
    SESSIONS,
    SHARING,
    TUNING,
    WORKLOADS,
    Recorded,
    Workload,
    workload,
)
from promptgroup_research.experiments.gates import OURS, QUICK, WHOLE, Gate, gates
from promptgroup_research.experiments.report import Sheet, as_json, comparisons, verdicts
from promptgroup_research.experiments.runs import Cell, Job, cells, run
from promptgroup_research.output import command_line, plots
from promptgroup_research.output.command_line import add_flags, count, watched, write

LOADS = (0.75, 0.85)
PLOTTED = ("none", "join", "leave", "lost", "restart", "prompt-new")
WIDTH = 130
"""Columns of tables that go to a file or a pipe."""


def options() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_research", description=(__doc__ or "").split("\n")[0])
    group = parser.add_mutually_exclusive_group()
    names = ", ".join(scenarios.NAMES)
    group.add_argument("--scenario", nargs="*", choices=scenarios.NAMES, metavar="NAME",
                      help=f"replicas or prompts change: all of these, or some of {names}")  # fmt: skip
    group.add_argument("--article", action="store_true", help="the tables of articles on prefix caching, measured")
    group.add_argument("--bursts", nargs="?", type=count, const=len(bursts.SEEDS), metavar="SEEDS",
                      help=f"agents under a burst of 3 x capacity: so many seeds ({len(bursts.SEEDS)})")  # fmt: skip
    group.add_argument("--greetings", action="store_true", help="sessions that begin with the same short message")
    group.add_argument("--leaving", action="store_true", help="the slots that leave: the highest, or the coldest")
    group.add_argument("--tiers", action="store_true", help="KV tiers behind the engines: host memory, or a pool")
    group.add_argument("--noise", action="store_true", help="engines whose speed varies, and that tell late")
    group.add_argument("--sizes", action="store_true", help="caches half and twice as large, 32 and 100 replicas")
    group.add_argument("--capacity", action="store_true", help="recompute what 100 %% load is")
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(GATED))
    parser.add_argument("--policy", nargs="+", choices=sorted(POLICIES), default=list(POLICIES), metavar="NAME",
                        help=", ".join(POLICIES))  # fmt: skip
    parser.add_argument("--load", nargs="+", type=_load, default=list(LOADS), help="shares of the capacity: 0.75 0.85")
    add_flags(parser, quick="one seed and a minute of it")
    return parser


def _load(text: str) -> float:
    value = float(text)
    if not 0 < value <= 2:
        raise argparse.ArgumentTypeError(f"{text}: a share of the capacity is expected, 0.85 for 85 %")
    return value


@dataclass(slots=True)
class Findings:
    """The results that are shown and written."""

    sheets: list[Sheet] = field(default_factory=list)
    judged: list[Gate] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    drawings: dict[str, str] = field(default_factory=dict)


def compared(
    chosen: argparse.Namespace, seeds: Sequence[int], kinds: Mapping[str, Workload], console: Console
) -> Findings:
    """Policies side by side, and the gates."""
    titles = {name: kind.title for name, kind in kinds.items()}
    jobs = [
        Job(name, policy, load, seed, chosen.quick, chosen.recorded)
        for name in chosen.workload
        for load in chosen.load
        for policy in chosen.policy
        for seed in seeds[: kinds[name].seeds]
    ]
    result = Findings(cells=cells(jobs, watched(console, run, jobs, chosen.jobs)))
    result.judged = gates(result.cells, QUICK if chosen.quick else WHOLE)
    result.sheets = [*comparisons(result.cells, titles), verdicts(result.judged)]
    for name, load in dict.fromkeys((cell.workload, cell.load) for cell in result.cells):
        here = [cell for cell in result.cells if (cell.workload, cell.load) == (name, load)]
        for kind, drawing in plots.comparison(here, f"{titles[name]}, {load:.0%} load").items():
            result.drawings[f"{name}-{load * 100:.0f}-{kind}"] = drawing
    return result


def played(chosen: argparse.Namespace, seeds: Sequence[int], titles: dict[str, str], console: Console) -> Findings:
    """Scenarios, and the limits of their cost."""
    names = [name for name in scenarios.BIN if name in chosen.workload]
    jobs = [
        scenarios.Job(scenario, name, seed, policy)
        for name in names
        for scenario in chosen.scenario or scenarios.NAMES
        for policy in (OURS, scenarios.ORACLE)
        for seed in seeds
    ]
    outcomes = scenarios.outcomes(jobs, watched(console, scenarios.run, jobs, chosen.jobs))
    judged = scenarios.gates(outcomes)
    result = Findings([*scenarios.sheets(outcomes, titles), verdicts(judged)], judged)
    for name in names:
        of_one = [
            outcome
            for outcome in outcomes
            if (outcome.workload, outcome.policy) == (name, OURS) and outcome.scenario in PLOTTED
        ]
        result.drawings[f"{name}-events"] = plots.over_time(of_one, f"{titles[name]}: TTFT p99 over time")
    return result


def left(chosen: argparse.Namespace, seeds: Sequence[int], titles: dict[str, str], console: Console) -> list[Sheet]:
    """Return a table for each workload of the cost of replicas that leave."""
    runs = leaving.jobs(chosen.workload, seeds, chosen.recorded)
    losses = watched(console, leaving.run, runs, chosen.jobs)
    sheets = []
    for name in chosen.workload:
        here = [(job, loss) for job, loss in zip(runs, losses, strict=True) if job.workload == name]
        title = f"{titles[name]}, {leaving.LOAD:.0%} load of the replicas that stay"
        sheets.append(leaving.sheet(title, [job for job, _ in here], [loss for _, loss in here]))
    return sheets


def findings(
    chosen: argparse.Namespace, seeds: Sequence[int], kinds: Mapping[str, Workload], console: Console
) -> Findings:
    """Run the requested experiments."""
    titles = {name: kind.title for name, kind in kinds.items()}
    if chosen.scenario is not None:
        return played(chosen, seeds, titles, console)
    if chosen.article:
        parts = article.jobs(seeds)
        return Findings(article.sheets(parts, watched(console, article.run, parts, chosen.jobs)))
    if chosen.bursts:
        runs = bursts.jobs(bursts.SEEDS[: chosen.bursts])
        courses = watched(console, bursts.run, runs, chosen.jobs)
        judged = bursts.gates(runs, courses)
        return Findings([bursts.sheet(runs, courses), verdicts(judged)], judged)
    if chosen.leaving:
        return Findings(left(chosen, seeds, titles, console))
    if chosen.tiers:
        tiered = tiers.jobs(chosen.workload, seeds, quick=chosen.quick)
        return Findings(tiers.sheets(tiered, watched(console, tiers.run, tiered, chosen.jobs), titles))
    if chosen.greetings:
        alike = greetings.jobs(seeds)
        return Findings([greetings.sheet(alike, watched(console, greetings.run, alike, chosen.jobs))])
    if chosen.noise:
        shaken = noise.jobs(chosen.workload, seeds, TUNING if chosen.seeds == "tuning" else JUDGING)
        of_noise = noise.means(shaken, watched(console, noise.run, shaken, chosen.jobs))
        judged = noise.gates(of_noise)
        return Findings([noise.sheet(of_noise), verdicts(judged)], judged)
    if chosen.sizes:
        sized = sizes.jobs(chosen.workload, seeds)
        of_sizes = sizes.means(sized, watched(console, sizes.run, sized, chosen.jobs))
        judged = sizes.gates(of_sizes)
        return Findings([sizes.sheet(of_sizes), verdicts(judged)], judged)
    return compared(chosen, seeds, kinds, console)


def main() -> int:
    """Run the requested experiments, show their results and write them."""
    parser = options()
    chosen = parser.parse_args()
    console = command_line.console(WIDTH)
    seeds: tuple[int, ...] = TUNING if chosen.seeds == "tuning" else JUDGING
    seeds = seeds[:1] if chosen.quick else seeds
    chosen.recorded = Recorded(chosen.trace) if chosen.trace else None
    try:
        if chosen.recorded and "trace" in chosen.workload:
            chosen.recorded = capacity.of_file(chosen.recorded)
        kinds = {name: workload(name, chosen.recorded) for name in WORKLOADS}
    except TraceError as problem:
        parser.error(f"argument --trace: {problem}")
    if chosen.sizes:
        chosen.workload = [name for name in chosen.workload if name in SHARING]
    if chosen.leaving or chosen.tiers:
        chosen.workload = [name for name in chosen.workload if name in SESSIONS]
    if chosen.capacity:
        for name in chosen.workload:
            figure = kinds[name].capacity
            if name != "trace" or not chosen.recorded:
                figure = capacity.measured(Job(name, "oracle", 1.0, 1), figure)
            console.print(f"{kinds[name].title}: {figure:.2f} requests/s")
        return 0
    result = findings(chosen, seeds, kinds, console)
    for sheet in result.sheets:
        console.print(sheet.rich())
    write(chosen, result.sheets, lambda: as_json(result.cells, result.judged), result.drawings)
    return int(chosen.strict and not all(gate.met for gate in result.judged))


if __name__ == "__main__":
    sys.exit(main())
