"""What honest requests waited alone and beside an attack, as a table of ratios. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.table import Table

from promptgroup_local.load.summary import quantile

MOST_RATIO = 2.0
"""What the p99 of honest requests beside an attack may be of that without it."""
QUIET_RATIO = 1.4
"""What it may be, either way, beside no attack at all: otherwise the machine is too busy to tell anything."""


class Window(NamedTuple):
    """The honest requests of some seconds."""

    waits: Sequence[float]
    """Seconds from the moment at which a request was due to the end of its answer, ascending."""
    failed: int
    """Requests that had no answer with status 200."""


class Pair(NamedTuple):
    """Two windows, one right after the other."""

    alone: Window
    beside: Window
    sent: float = 0.0
    """What the attacker has sent in a second: connections, requests, parts of frames or changes."""

    def ratio(self, share: float) -> float:
        """Return how many times as long a quantile is beside the attack."""
        return quantile(self.beside.waits, share) / quantile(self.alone.waits, share)


class Row(NamedTuple):
    """One attack, all rounds. Times are milliseconds, and medians over the rounds, as the ratios are."""

    attack: str
    alone_p50: float
    beside_p50: float
    alone_p99: float
    beside_p99: float
    ratio_p50: float
    ratio_p99: float
    failed: int
    """Honest requests beside the attack that failed."""
    sent: float

    @property
    def holds(self) -> bool:
        """True if honest requests were served beside the attack, and in time."""
        return self.ratio_p99 <= MOST_RATIO and not self.failed


def is_quiet(row: Row) -> bool:
    """Return True if the row of no attack says that two windows of this machine can be compared."""
    return 1 / QUIET_RATIO <= row.ratio_p99 <= QUIET_RATIO


def summarize(pairs: Mapping[str, Sequence[Pair]]) -> list[Row]:
    """Return a row for each attack; a round in which others took the machine decides nothing by itself."""
    rows = []
    for attack, rounds in pairs.items():
        times = (
            statistics.median(quantile(window.waits, share) * 1000 for window in windows)
            for share in (0.5, 0.99)
            for windows in ([pair.alone for pair in rounds], [pair.beside for pair in rounds])
        )
        ratios = (statistics.median(pair.ratio(share) for pair in rounds) for share in (0.5, 0.99))
        rows.append(
            Row(
                attack,
                *times,
                *ratios,
                sum(pair.beside.failed for pair in rounds),
                statistics.median(pair.sent for pair in rounds),
            )
        )
    return rows


def shown(rows: Sequence[Row], title: str) -> Table:
    """Return the table that people read."""
    table = Table("honest requests beside", title=title)
    for column in (
        "p50 alone, ms",
        "beside",
        "p99 alone, ms",
        "beside",
        "ratio p50",
        "ratio p99",
        "failed",
        "attack/s",
        "",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        times = (f"{time:.1f}" for time in row[1:5])
        ratios = (f"{ratio:.2f}" for ratio in row[5:7])
        table.add_row(row.attack, *times, *ratios, str(row.failed), f"{row.sent:.0f}", "" if row.holds else "too much")
    return table


def markdown(rows: Sequence[Row]) -> str:
    """Return the same for a page."""
    columns = [
        "Honest requests beside",
        "p50 alone, ms",
        "beside",
        "p99 alone, ms",
        "beside",
        "p50, ratio",
        "p99, ratio",
    ]
    columns += ["failed", "attack a second"]
    lines = [f"| {' | '.join(columns)} |", "|---" + "|--:" * (len(columns) - 1) + "|"]
    for row in rows:
        times, ratios = (f"{time:.1f}" for time in row[1:5]), (f"{ratio:.2f}" for ratio in row[5:7])
        lines.append(f"| {' | '.join([row.attack, *times, *ratios, str(row.failed), f'{row.sent:.0f}'])} |")
    return "\n".join(lines)
