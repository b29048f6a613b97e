"""The common parts of the simulators' command lines: flags, progress, and the requested files."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from promptgroup_research.experiments.report import Sheet
from promptgroup_research.experiments.runs import spread

T = TypeVar("T")
R = TypeVar("R")


def count(text: str) -> int:
    """A number of processes, or of runs.

    Raises:
        argparse.ArgumentTypeError: it is less than one.
        ValueError: it is no number.
    """
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least one process is needed")
    return value


def add_flags(parser: argparse.ArgumentParser, quick: str) -> None:
    """Add the flags that every simulator has; `quick` says what its short run leaves out."""
    parser.add_argument("--seeds", choices=("judging", "tuning"), default="judging")
    parser.add_argument("--trace", type=Path, help="file in Mooncake's format; without it the trace is synthetic")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--plots", type=Path, help="write plots (SVG) into this folder")
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a gate is missed")


def console(width: int) -> Console:
    """A table that is folded cannot be read: `width` columns where they are not a terminal's."""
    return Console() if sys.stdout.isatty() else Console(width=width)


def watched(out: Console, work: Callable[[T], R], jobs: Sequence[T], processes: int) -> list[R]:
    """Do all jobs, and show how many are done."""
    with Progress(TextColumn("runs"), MofNCompleteColumn(), TimeElapsedColumn(), console=out, transient=True) as bar:
        task = bar.add_task("", total=len(jobs))
        return spread(work, jobs, processes, lambda done: bar.update(task, completed=done))


def write(
    chosen: argparse.Namespace, sheets: Sequence[Sheet], figures: Callable[[], str], drawings: Mapping[str, str]
) -> None:
    """Write the requested files: `figures` as JSON, `drawings` by the name of their file."""
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(sheet.markdown() for sheet in sheets), encoding="utf-8")
    if chosen.json:
        chosen.json.write_text(figures(), encoding="utf-8")
    if chosen.plots:
        chosen.plots.mkdir(parents=True, exist_ok=True)
        for name, drawing in drawings.items():
            (chosen.plots / f"{name}.svg").write_text(drawing, encoding="utf-8")
