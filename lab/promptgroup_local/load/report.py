"""Runs side by side, as a table for the terminal."""

from collections.abc import Callable, Sequence

from rich.table import Table

from promptgroup_local.load.summary import Summary

_UNKNOWN = "-"


def comparison(rows: Sequence[Summary], *, title: str = "") -> Table:
    """One column a run, one line a figure."""
    table = Table(title=title or None)
    table.add_column("")
    for row in rows:
        table.add_column(row.name, justify="right")
    lines: Sequence[tuple[str, Callable[[Summary], str]]] = (
        ("requests", lambda row: str(row.requests)),
        ("failed", _failures),
        ("token hit rate, by the engines", lambda row: _percent(row.measured.hit_rate)),
        ("  of an infinite cache's", lambda row: _percent(row.of_possible)),
        ("TTFT p50", lambda row: _milliseconds(row.ttft_p50)),
        ("TTFT p99", lambda row: _milliseconds(row.ttft_p99)),
        ("whole answer p50", lambda row: _milliseconds(row.e2e_p50)),
        ("imbalance, max / mean", lambda row: _plain(row.measured.imbalance, "{:.2f}")),
        ("met a cold Tier 1", lambda row: _plain(row.measured.cold, "{:.0f}")),
    )
    for label, figure in lines:
        table.add_row(label, *(figure(row) for row in rows))
    return table


def _failures(row: Summary) -> str:
    """Return the number of failures, and the most frequent ones."""
    if not row.failures:
        return "0"
    return f"{row.failures} ({max(row.failed, key=lambda error: row.failed[error])})"


def _percent(value: float | None) -> str:
    return _plain(None if value is None else value * 100, "{:.1f} %")


def _milliseconds(value: float | None) -> str:
    return _plain(None if value is None else value * 1000, "{:.0f} ms")


def _plain(value: float | None, form: str) -> str:
    return _UNKNOWN if value is None else form.format(value)
