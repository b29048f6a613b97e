"""Tables for a terminal, and the same as Markdown and JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from promptgroup_research.experiments.gates import Gate
from promptgroup_research.experiments.runs import Cell


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of strings; the first column is a name."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title, title_justify="left")
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="right" if index else "left", no_wrap=not index)
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For a document."""
        lines = [
            f"**{self.title}**",
            "",
            _line(self.columns),
            _line("---" + ":" * bool(at) for at in range(len(self.columns))),
        ]
        return "\n".join([*lines, *map(_line, self.rows), ""])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def milliseconds(seconds: float) -> str:
    """As short as it can be read."""
    return f"{seconds * 1000:,.0f}"


def comparisons(cells: Sequence[Cell], titles: dict[str, str]) -> list[Sheet]:
    """One table a workload and load."""
    result = []
    for workload, load in dict.fromkeys((cell.workload, cell.load) for cell in cells):
        here = [cell for cell in cells if (cell.workload, cell.load) == (workload, load)]
        rows = tuple(
            (
                cell.policy, f"{cell.figures.hit:.1%}", milliseconds(cell.figures.mean), milliseconds(cell.figures.p50),
                milliseconds(cell.figures.p95), milliseconds(cell.figures.p99), f"{cell.figures.imbalance:.2f}",
                f"{cell.figures.refused:.0f}", f"{cell.figures.unfinished:.0f}",
            )
            for cell in here
        )  # fmt: skip
        columns = ("policy", "hit", "mean", "p50", "p95", "p99", "max/mean", "refused", "unfinished")
        result.append(
            Sheet(
                f"{titles[workload]}, {load:.0%} load: share of prompt tokens found cached, TTFT in ms", columns, rows
            )
        )
    return result


def verdicts(gates: Sequence[Gate]) -> Sheet:
    """The limits and the figures that were measured."""
    rows = []
    for gate in gates:
        limit = f"{'>=' if gate.at_least else '<='} {gate.limit:g}"
        rows.append((gate.where, gate.what, f"{gate.figure:.3f}", limit, "met" if gate.met else "MISSED"))
    return Sheet("Gates", ("where", "what", "figure", "limit", ""), tuple(rows))


def as_json(cells: Sequence[Cell], gates: Sequence[Gate]) -> str:
    """Everything, times in seconds."""
    document = {
        "cells": [asdict(cell) for cell in cells],
        "gates": [asdict(gate) | {"met": gate.met} for gate in gates],
    }
    return json.dumps(document, indent=1) + "\n"
